"""Access rules on a broker without an authorizer: each request gets the error and message of Kafka."""

import pytest

from ottla.errors import ErrorCode
from tests.kafka_peer import Clients
from tests.raw_client import RawClient
from tests.scenarios.admin_requests import ADMIN_REQUESTS
from tests.scenarios.every_request import HANDLERS

ACL_APIS = ("DescribeAcls", "CreateAcls", "DeleteAcls")
PAIRS = [(api, version) for api in ACL_APIS for version in HANDLERS[api].versions]


def ask_for_results(client: RawClient, api: str, version: int) -> list[tuple[int, str | None]]:
    """Every error code of the answer, with its message: DescribeAcls has one, the other APIs one for each rule."""
    answer = client.request(ADMIN_REQUESTS[api](version, "orders"), version)
    if api == "DescribeAcls":
        assert answer.resources == []
        return [(answer.error_code, answer.error_message)]
    results = answer.results if api == "CreateAcls" else answer.filter_results
    return [(each.error_code, each.error_message) for each in results]


@pytest.mark.parametrize(("api", "version"), PAIRS)
def test_access_rules_need_an_authorizer(api: str, version: int, client: RawClient) -> None:
    # There is one result for each of the two rules, in every version.
    message = "No Authorizer is configured on the broker" if api == "DescribeAcls" else "No Authorizer is configured."
    count = 1 if api == "DescribeAcls" else 2
    assert ask_for_results(client, api, version) == [(ErrorCode.SECURITY_DISABLED, message)] * count


@pytest.mark.parametrize(("api", "version"), PAIRS)
def test_the_answer_is_that_of_apache_kafka(api: str, version: int, both_clients: Clients) -> None:
    # The message is the same too, because tools show it.
    theirs, ours = both_clients
    assert ask_for_results(theirs, api, version) == ask_for_results(ours, api, version)
