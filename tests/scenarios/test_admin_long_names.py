"""Topic names of the largest length that the protocol has: every admin API refuses them, and the connection stays."""

import pytest

from ottla.wire.message import Message
from ottla.wire.messages.describe_cluster import DescribeClusterRequest
from tests.raw_client import RawClient
from tests.scenarios.admin_requests import ADMIN_REQUESTS

LONGEST = "x" * 32767
BY_TOPIC = sorted(set(ADMIN_REQUESTS) - {"DescribeCluster", "DescribeLogDirs", "ListConfigResources", "UpdateFeatures"})
"""The admin APIs that name topics and answer unknown ones with an error."""


def find_codes(value: object) -> list[int]:
    if isinstance(value, list):
        return [code for each in value for code in find_codes(each)]
    if not isinstance(value, Message):
        return []
    own = [value.error_code] if hasattr(value, "error_code") else []
    return own + [code for name, *_ in value.FIELDS for code in find_codes(getattr(value, name))]


@pytest.mark.parametrize("api", BY_TOPIC)
def test_the_longest_topic_name_is_refused(api: str, client: RawClient) -> None:
    """The name is refused in the oldest and in the newest version. An error message must fit into the answer."""
    for version in (0, -1):
        message = ADMIN_REQUESTS[api](0, LONGEST)
        answer = client.request(message, type(message).VERSIONS[version])
        assert any(find_codes(answer))
    assert client.request(DescribeClusterRequest(), 0).error_code == 0
