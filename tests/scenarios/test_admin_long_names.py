"""Names as long as the wire has room for: every admin API refuses them in an answer, and none breaks the connection."""

import pytest

from ottla.wire.message import Message
from ottla.wire.messages.describe_cluster import DescribeClusterRequest
from tests.raw_client import RawClient
from tests.scenarios.admin_requests import ADMIN_REQUESTS

LONGEST = "x" * 32767
BY_TOPIC = sorted(set(ADMIN_REQUESTS) - {"DescribeCluster", "DescribeLogDirs", "ListConfigResources", "UpdateFeatures"})
"""What is not about topics, or says nothing of those that it does not know, is left out."""


def codes(value: object) -> list[int]:
    if isinstance(value, list):
        return [code for each in value for code in codes(each)]
    if not isinstance(value, Message):
        return []
    own = [value.error_code] if hasattr(value, "error_code") else []
    return own + [code for name, *_ in value.FIELDS for code in codes(getattr(value, name))]


@pytest.mark.parametrize("api", BY_TOPIC)
def test_the_longest_topic_name(api: str, client: RawClient) -> None:
    """Refused, with a message that fits where there is one, in the oldest version and in the newest."""
    for version in (0, -1):
        message = ADMIN_REQUESTS[api](0, LONGEST)
        answer = client.request(message, type(message).VERSIONS[version])
        assert any(codes(answer))
    assert client.request(DescribeClusterRequest(), 0).error_code == 0
