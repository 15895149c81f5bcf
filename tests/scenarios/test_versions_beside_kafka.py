"""Every version of every API of this broker, sent to Apache Kafka too: the same fields and error codes."""

import time
from typing import Any, NamedTuple

import pytest

from ottla.broker.handler_table import TELEMETRY
from ottla.wire import fetch, produce
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.metadata import MetadataRequest
from tests.kafka_peer import Clients
from tests.patience import PATIENCE_MS, PATIENCE_S
from tests.raw_client import RawClient
from tests.scenarios.answer_comparison import OWN, find_differences
from tests.scenarios.client_calls import LATEST, append, decode_values, list_offset, make_batch
from tests.scenarios.every_request import HANDLERS, WITH_A_CODEC_OF_THEIR_OWN, ask_until_settled, build_request

BOTH_CODECS = ("Produce", "Fetch")
WITH_A_TOPIC_OF_THEIR_OWN = {"CreatePartitions", "DeleteTopics"}
"""APIs of which each version changes what the next one would find."""
ALSO_OWN = OWN | {
    "api_keys",
    "finalized_features",
    "finalized_features_epoch",
    "supported_features",
    "producer_id",
    "synonyms",
}
READING = [name for name in HANDLERS if name.startswith(("Describe", "List", "Metadata", "OffsetF"))]
PAIRS = [
    (name, version)
    for name, handler in sorted(HANDLERS.items())
    # Kafka answers requests of telemetry that it does not advertise; a broker without a metrics port refuses them.
    if name not in WITH_A_CODEC_OF_THEIR_OWN and name not in TELEMETRY
    for version in handler.versions
]


class Side(NamedTuple):
    client: RawClient
    topic_ids: dict[str, bytes]


def name_topic(api: str, version: int) -> str:
    return f"{api}-{version}" if api in WITH_A_TOPIC_OF_THEIR_OWN else "shared"


def prepare(client: RawClient) -> Side:
    """Create the topics, with a record each, and wait until the coordinators are ready."""
    names = [*dict.fromkeys(name_topic(*pair) for pair in PAIRS), *BOTH_CODECS]
    topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names]
    created = client.request(CreateTopicsRequest(topics=topics, timeout_ms=PATIENCE_MS), 7).topics
    assert {each.error_code for each in created} == {0}
    for name in names:
        while list_offset(client, name, LATEST).error_code:
            pass
        if name not in BOTH_CODECS:
            append(client, name, b"one")
    for kind in (0, 1):
        ask_until_settled(client, FindCoordinatorRequest(coordinator_keys=["group"], key_type=kind), 6)
    described = client.request(MetadataRequest(topics=None), 12).topics
    return Side(client, {each.name: each.topic_id for each in described})


@pytest.fixture(scope="module")
def both(both_clients: Clients) -> tuple[Side, Side]:
    theirs, ours = both_clients
    return prepare(theirs), prepare(ours)


def answer(side: Side, api: str, version: int) -> Any:
    topic = name_topic(api, version)
    return ask_until_settled(side.client, build_request(api, version, topic, side.topic_ids[topic]), version)


def find_differences_of(kafka: Side, ottla: Side, api: str, version: int, deadline: float) -> list[str]:
    """Find the fields in which the answers differ. A change may be visible a moment after its answer, so a request that
    changes nothing is repeated until the deadline."""
    while True:
        ours = answer(ottla, api, version)
        found = find_differences(answer(kafka, api, version), ours, ALSO_OWN)
        if not found or api not in READING or time.monotonic() > deadline:
            return found


def test_every_version_is_answered_alike(both: tuple[Side, Side]) -> None:
    # All versions of all APIs that have generated messages are sent, one after the other.
    different = []
    deadline = time.monotonic() + PATIENCE_S
    for api, version in PAIRS:
        different += [f"{api} {version}{place}" for place in find_differences_of(*both, api, version, deadline)]
    assert not different, "\n".join(different)


@pytest.mark.parametrize("version", produce.VERSIONS)
def test_every_version_of_produce(version: int, both: tuple[Side, Side]) -> None:
    # Both get the same batch, and give the same offset and error.
    results = []
    for client, topic_ids in both:
        target = topic_ids["Produce"] if version >= produce.TOPIC_ID_FROM else "Produce"
        results.append(client.produce(target, 0, make_batch(b"one", b"two"), 1, version))
    theirs, ours = results
    assert theirs == ours


@pytest.mark.parametrize("version", fetch.VERSIONS)
def test_every_version_of_fetch(version: int, both: tuple[Side, Side]) -> None:
    # Both have the same log, and return the same records and offsets.
    results = []
    for client, topic_ids in both:
        if version == fetch.VERSIONS[0]:
            append(client, "Fetch", b"one", b"two")
        target = topic_ids["Fetch"] if version >= fetch.TOPIC_ID_FROM else "Fetch"
        found = client.fetch(target, 0, 0, version)
        results.append(
            (
                decode_values(found),
                found.error_code,
                found.high_watermark,
                found.last_stable_offset,
                found.log_start_offset,
                list(found.aborted_transactions or ()),
            )
        )
    theirs, ours = results
    assert theirs == ours
