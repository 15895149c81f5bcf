"""Every API in every version, sent by a client without rights to Apache Kafka and to us: the same answers.

All clients are anonymous here; the ACLs tell them apart by their address.
"""

from collections.abc import Iterator
from typing import Any

import pytest

import ottla.testing
from benchmarks.peers.apache_kafka import ApacheKafka
from benchmarks.peers.broker_process import HOST
from ottla.security.operations import CLUSTER_NAME, Operation, ResourceType
from ottla.wire.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from tests.kafka_peer import BROKER_OPTIONS, SETTINGS, Addresses
from tests.patience import PATIENCE_S
from tests.raw_client import RawClient
from tests.scenarios.access import ADDRESSES, STANDARD_AUTHORIZER, add, rule
from tests.scenarios.answer_comparison import OWN, find_differences
from tests.scenarios.every_request import HANDLERS, WITH_A_CODEC_OF_THEIR_OWN
from tests.scenarios.test_access_walk import build

pytestmark = pytest.mark.long

GUARD = {"authorizer.class.name": STANDARD_AUTHORIZER, "allow.everyone.if.no.acl.found": "true"}
UNLIKE = {
    "ApiVersions": "a list of what each broker has",
    "SaslHandshake": "there is no SASL on this listener",
    "SaslAuthenticate": "there is no SASL on this listener",
    "GetTelemetrySubscriptions": "random client ids",
    "PushTelemetry": "no plug-in that takes metrics",
    "DescribeCluster": "brokers have different numbers and addresses",
}
UNCOMPARED = {"brokers", "controller_id", "user"}
"""Brokers differ; Kafka leaves out the user that a refused DescribeUserScramCredentials has named."""
RIGHTS = [
    rule("*", Operation.ALL, kind, CLUSTER_NAME if kind is ResourceType.CLUSTER else "*", host=ADDRESSES["root"])
    for kind in (ResourceType.CLUSTER, ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID)
]


@pytest.fixture(scope="module")
def guarded(kafka_tools: None) -> Iterator[Addresses]:
    given: dict[str, Any] = {name.replace(".", "_"): value for name, value in {**SETTINGS, **GUARD}.items()}
    with (
        ApacheKafka(settings={**SETTINGS, **GUARD}, options=BROKER_OPTIONS) as kafka,
        ottla.testing.broker(**given) as broker,
    ):
        addresses = ((HOST, kafka.port), (broker.host, broker.port))
        for address in addresses:
            with RawClient(*address, timeout_s=PATIENCE_S) as root:
                add(root, *RIGHTS)
        yield addresses


PAIRS = [
    (name, version)
    for name, handler in HANDLERS.items()
    if name not in WITH_A_CODEC_OF_THEIR_OWN and name not in UNLIKE
    for version in handler.versions
]


@pytest.mark.parametrize(("api", "version"), PAIRS)
def test_nobody_gets_the_answer_of_kafka(api: str, version: int, guarded: Addresses) -> None:
    request = build(api, version, "secret", bytes(range(16)))
    if isinstance(request, DescribeUserScramCredentialsRequest):
        request.users = [UserName(name="carol")]  # Kafka 4.3 gives a client that may not list all users no answer
    answers = []
    for address in guarded:
        with RawClient(*address, timeout_s=PATIENCE_S, source=ADDRESSES["nobody"]) as intruder:
            answers.append(intruder.request(request, version))
    theirs, ours = answers
    assert not find_differences(theirs, ours, OWN | UNCOMPARED)
