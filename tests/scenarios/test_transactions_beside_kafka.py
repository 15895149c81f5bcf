"""The same transactions at Apache Kafka and at this broker: step by step the same codes, epochs and states."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from ottla.coordinators.machine import ProducerIdentity
from ottla.errors import ErrorCode
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from tests.kafka_peer import Clients
from tests.patience import PATIENCE_S
from tests.raw_client import RawClient
from tests.scenarios.client_calls import create_topic, make_batch
from tests.scenarios.transactional_producer import (
    TransactionalProducer,
    describe_transaction,
    fetch_offset,
    list_transactions,
    write_marker,
)

GROUP, TRANSACTION = 0, 1
VERSIONS = pytest.mark.parametrize("version", [1, 2])

Told = list[tuple[str, object]]


@pytest.fixture(scope="module")
def both(both_clients: Clients) -> Clients:
    """Both brokers, each with a topic of two partitions."""
    for client in both_clients:
        create_topic(client, "t", partitions=2)
        await_leaders(client)
    return both_clients


def await_success(ask: Callable[[], int]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while code := ask():
        assert time.monotonic() < deadline, ErrorCode(code).name


def await_leaders(client: RawClient) -> None:
    """Apache Kafka answers NOT_LEADER_OR_FOLLOWER for a while after it has created a topic."""
    for partition in (0, 1):
        await_success(lambda partition=partition: client.fetch("t", partition, 0).error_code)  # type: ignore[misc]


class Steps:
    """Producers that use one transactional id one after the other, and the answers that each got."""

    def __init__(self, client: RawClient, name: str, version: int) -> None:
        self.client = client
        self.name = name
        self.group = f"group-of-{name}"
        self.version = version
        self.told: Told = []
        self.find(TRANSACTION, name)
        self.find(GROUP, self.group)
        topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
        offsets = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=self.group, topics=topics)])
        await_success(lambda: client.request(offsets, 9).groups[0].error_code)

    def find(self, kind: int, key: str) -> None:
        request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
        await_success(lambda: self.client.request(request, 4).coordinators[0].error_code)

    def note(self, step: str, value: object) -> None:
        self.told.append((step, value))

    def producer(self, *, initialised: bool = True, **options: Any) -> TransactionalProducer:
        producer = TransactionalProducer(self.client, self.name, self.version, **options)
        if initialised:
            await_success(producer.init)
        return producer

    def settle(self) -> None:
        while describe_transaction(self.client, self.name).transaction_state.startswith("Prepare"):
            pass


def compare(both: Clients, name: str, version: int, script: Callable[[Steps], None]) -> None:
    told = []
    for client in both:
        steps = Steps(client, f"{name}-{version}", version)
        script(steps)
        told.append(steps.told)
    theirs, ours = told
    assert ours == theirs


@VERSIONS
def test_a_transaction_and_its_end(version: int, both: Clients) -> None:
    def script(steps: Steps) -> None:
        producer, note = steps.producer(), steps.note
        note("offset, not added", producer.commit_offset(steps.group, "t", 5))
        if version == 1:
            note("produce 10, not added", producer.send("t", b"x", version=10))
            note("produce 11, not added", producer.send("t", b"x", version=11))
            note("add", producer.add("t", 0, 9))
            note("add", producer.add("t", 0))
        note("produce", producer.send("t", b"x"))
        if version == 1:
            note("add offsets", producer.add_offsets(steps.group))
        note("offset", producer.commit_offset(steps.group, "t", 5))
        note("offset, stable", fetch_offset(steps.client, steps.group, "t", stable=True)[1])
        note("commit", producer.end(True, heard=False))
        steps.settle()
        note("commit again", producer.end(True, heard=False))
        note("abort instead", producer.end(False, heard=False))
        note("produce late", producer.send("t", b"late", partition=1))
        note("offset now", fetch_offset(steps.client, steps.group, "t", stable=True))

    compare(both, "ends", version, script)


def test_the_end_of_an_empty_transaction(both: Clients) -> None:
    def script(steps: Steps) -> None:
        producer, note = steps.producer(), steps.note
        for committed in (True, False, False, True):
            note(f"end {committed}", producer.end(committed))
            steps.settle()
            note("epoch", producer.producer.epoch)

    compare(both, "empty", 2, script)


@VERSIONS
def test_a_second_producer_of_a_transactional_id(version: int, both: Clients) -> None:
    def script(steps: Steps) -> None:
        first, note = steps.producer(), steps.note
        if version == 1:
            note("add", first.add("t", 0))
        note("produce", first.send("t", b"y"))
        second = steps.producer(initialised=False)
        note("init", second.init())
        steps.settle()
        await_success(second.init)
        note("epoch", second.producer.epoch)
        for number in (3, 1):
            note(f"zombie adds {number}", first.add("t", 0, version=number))
        note("zombie produces", first.send("t", b"q"))
        note("zombie ends", first.end(True))
        note("zombie adds offsets", first.add_offsets(steps.group))
        note("zombie commits offsets", first.commit_offset(steps.group, "t", 9))
        note("zombie continues", first.init(continues=True))
        note("continues", second.init(continues=True))
        note("epoch", second.producer.epoch)
        second.become(ProducerIdentity(999_999, 0))
        note("stranger produces", second.send("t", b"q"))
        note("stranger ends", second.end(True))

    compare(both, "owners", version, script)


@VERSIONS
def test_unknown_producers_and_empty_requests(version: int, both: Clients) -> None:
    def script(steps: Steps) -> None:
        nobody, note = steps.producer(initialised=False), steps.note
        nobody.become(ProducerIdentity(888_888, 0))
        await_success(lambda: describe_transaction(steps.client, steps.name).error_code not in (0, 105))
        note("end", nobody.end(True))
        note("produce", nobody.send("t", b"q"))
        note("add", nobody.add("t", 0))
        note("describe", ErrorCode(describe_transaction(steps.client, steps.name).error_code))
        note("describe nothing", ErrorCode(describe_transaction(steps.client, "").error_code))
        for timeout_ms in (10**9, 0, -1):
            note(f"time-out {timeout_ms}", steps.producer(initialised=False, timeout_ms=timeout_ms).init())
        batch = make_batch(b"q", producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)
        refused = steps.client.produce("t", 0, batch)
        note("produce without an id", refused and ErrorCode(refused.error_code))

    compare(both, "nobody", version, script)


@VERSIONS
def test_transactions_are_described_and_listed_alike(version: int, both: Clients) -> None:
    def script(steps: Steps) -> None:
        producer, note, client = steps.producer(timeout_ms=12_345), steps.note, steps.client
        shown = describe_transaction(client, steps.name)
        note("empty", (shown.transaction_state, shown.transaction_timeout_ms, shown.transaction_start_time_ms))
        if version == 1:
            note("add", producer.add("t", 0, 1))
        note("produce", producer.send("t", b"x"))
        shown = describe_transaction(client, steps.name)
        note("ongoing", (shown.transaction_state, shown.producer_epoch, shown.transaction_start_time_ms > 0))
        note("partitions", [(topic.topic, sorted(topic.partitions)) for topic in shown.topics])
        for filters in (
            {"state_filters": ["Ongoing"]},
            {"state_filters": ["Ongoing", "Foo"]},
            {"state_filters": ["Empty"]},
            {"transactional_id_pattern": "shown-."},
            {"transactional_id_pattern": "shown"},
            {"transactional_id_pattern": "("},
            {"duration_filter": 3_600_000, "state_filters": ["Ongoing"]},
        ):
            answer = list_transactions(client, producer_id_filters=[producer.producer.id], **filters)
            names = [each.transactional_id for each in answer.transaction_states]
            note(f"list {filters}", (ErrorCode(answer.error_code), answer.unknown_state_filters, names))
        note("abort", producer.end(False))

    compare(both, "shown", version, script)


def test_markers(both: Clients) -> None:
    def script(steps: Steps) -> None:
        producer, note, client = steps.producer(), steps.note, steps.client
        note("produce", producer.send("t", b"m", partition=1))
        open_one = producer.producer
        raised = ProducerIdentity(open_one.id, open_one.epoch + 1)
        for step, owner, epoch, version in (
            ("epoch of the transaction, v2", open_one, 5, 2),
            ("raised", raised, 5, 2),
            ("once more", raised, 5, 2),
            ("epoch of the past", open_one, 5, 0),
            ("coordinator of the past", raised, 4, 0),
        ):
            code = write_marker(client, "t", owner, partition=1, coordinator_epoch=epoch, transaction_version=version)
            note(step, code)
        note("nowhere", write_marker(client, "nowhere", raised))

    compare(both, "markers", 2, script)
