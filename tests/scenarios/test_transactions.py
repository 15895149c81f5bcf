"""Transactions over the wire: committed records are visible, aborted ones are not, and no other producer interferes.

Fencing, late requests, hanging transactions, time-outs, pending offsets and readers of committed records. What the
coordinator decides by itself is tested in tests/unit.
"""

from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

import ottla.testing
from ottla.coordinators.machine import ProducerIdentity
from ottla.errors import ErrorCode
from ottla.testing import LocalBroker
from ottla.wire.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from ottla.wire.messages.describe_transactions import TopicData
from tests.raw_client import RawClient
from tests.scenarios.client_calls import (
    LATEST,
    append,
    connect,
    create_topic,
    delete_topic,
    list_offset,
    read_all_values,
)
from tests.scenarios.transactional_producer import (
    READ_COMMITTED,
    TransactionalProducer,
    describe_producers,
    describe_transaction,
    fetch_offset,
    list_transactions,
    read_committed_values,
    write_marker,
)

VERSIONS = pytest.mark.parametrize("version", [1, 2])

_numbers = count()


@pytest.fixture
def name() -> str:
    """A transactional id of its own for each test."""
    return f"transactional-{next(_numbers)}"


@VERSIONS
def test_committed_records_are_seen_and_aborted_ones_are_not(
    version: int, client: RawClient, topic: str, name: str
) -> None:
    producer = TransactionalProducer(client, name, version).initialise()
    producer.write(topic, b"a", b"b")
    assert read_committed_values(client, topic) == []
    assert read_all_values(client, topic) == [b"a", b"b"]
    producer.commit()
    producer.write(topic, b"c")
    producer.abort()
    producer.write(topic, b"d")
    producer.commit()
    append(client, topic, b"e")
    assert read_committed_values(client, topic) == [b"a", b"b", b"d", b"e"]
    assert describe_transaction(client, name).transaction_state == "CompleteCommit"


@VERSIONS
def test_a_transaction_ends_alike_in_all_partitions(version: int, client: RawClient, name: str) -> None:
    topic = f"wide-{version}"
    create_topic(client, topic, partitions=5)
    producer = TransactionalProducer(client, name, version).initialise()
    for committed in (True, False, True):
        for partition in range(5):
            producer.write(topic, b"%d" % committed, partition=partition)
        (producer.commit if committed else producer.abort)()
    for partition in range(5):
        assert read_committed_values(client, topic, partition) == [b"1", b"1"]


@VERSIONS
def test_an_open_transaction_holds_readers_of_committed_records_back(
    version: int, client: RawClient, topic: str, name: str
) -> None:
    # The last stable offset is where the first open transaction begins, in Fetch and in ListOffsets.
    append(client, topic, b"before")
    producer = TransactionalProducer(client, name, version).initialise()
    producer.write(topic, b"open")
    append(client, topic, b"after")
    fetched = client.fetch(topic, 0, 0, isolation_level=READ_COMMITTED)
    assert (fetched.high_watermark, fetched.last_stable_offset) == (3, 1)
    assert list_offset(client, topic, LATEST, isolation_level=READ_COMMITTED).offset == 1
    assert list_offset(client, topic, LATEST).offset == 3
    producer.commit()
    assert list_offset(client, topic, LATEST, isolation_level=READ_COMMITTED).offset == 4
    assert read_committed_values(client, topic) == [b"before", b"open", b"after"]


@VERSIONS
@pytest.mark.parametrize("committed", [True, False])
def test_a_long_poll_wakes_when_the_transaction_ends(
    version: int, committed: bool, client: RawClient, other: RawClient, topic: str, name: str
) -> None:
    # KAFKA-5376: a reader of committed records waits for the last stable offset, not only for the high watermark.
    producer = TransactionalProducer(client, name, version).initialise()
    producer.write(topic, b"one")
    wanted = FetchTopic(topic, bytes(16), [FetchPartition(0, fetch_offset=0, max_bytes=1 << 20)])
    request = FetchRequest(
        max_wait_ms=30_000, min_bytes=1, max_bytes=1 << 20, isolation_level=READ_COMMITTED, topics=[wanted]
    )
    other.send_fetch(request, 12)
    append(client, topic, b"more")  # moves the high watermark alone, and is answered after the fetch has begun to wait
    producer.commit() if committed else producer.abort()
    fetched = other.read_fetch(12).topics[0].partitions[0]
    assert fetched.last_stable_offset == 3
    assert [each.first_offset for each in fetched.aborted_transactions or ()] == ([] if committed else [0])


def test_aborted_transactions_overlap_and_cross_segments(client: RawClient, name: str) -> None:
    # Three producers at once over several segments. Every fetch lists the aborted transactions of the records it
    # returns.
    topic = "overlapping"
    create_topic(client, topic, configs={"segment.bytes": str(1 << 20)})
    producers = [TransactionalProducer(client, f"{name}-{number}").initialise() for number in range(3)]
    large = bytes(300_000)
    expected = []
    for turn in range(8):
        for number, producer in enumerate(producers):
            value = b"%d-%d-" % (turn, number) + large
            producer.write(topic, value)
            if (turn // 2 + number) % 2 == 0:
                expected.append(value[:4])
        if turn % 2:
            for number, producer in enumerate(producers):
                (producer.commit if (turn // 2 + number) % 2 == 0 else producer.abort)()
    assert [value[:4] for value in read_committed_values(client, topic)] == expected


def test_a_fetch_from_the_middle_of_an_aborted_batch(client: RawClient, topic: str, name: str) -> None:
    # The whole batch comes, with the aborted transaction that it belongs to, so that the client can skip it.
    producer = TransactionalProducer(client, name).initialise()
    producer.write(topic, b"a", b"b", b"c")
    producer.abort()
    fetched = client.fetch(topic, 0, 1, isolation_level=READ_COMMITTED)
    assert [(each.producer_id, each.first_offset) for each in fetched.aborted_transactions or ()] == [
        (producer.producer.id, 0)
    ]


# Who may not


def test_a_second_producer_of_a_transactional_id_fences_the_first_in_every_api(
    client: RawClient, topic: str, name: str
) -> None:
    first = TransactionalProducer(client, name, 1).initialise()
    first.write(topic, b"lost")
    second = TransactionalProducer(client, name, 1)
    assert second.init() is ErrorCode.CONCURRENT_TRANSACTIONS
    second.initialise()
    assert first.add(topic, 0, version=3) == [ErrorCode.PRODUCER_FENCED]
    assert first.add(topic, 0, version=1) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert first.send(topic, b"zombie") is ErrorCode.INVALID_PRODUCER_EPOCH
    assert first.end(True) is ErrorCode.PRODUCER_FENCED
    assert first.add_offsets("g") is ErrorCode.PRODUCER_FENCED
    assert first.commit_offset("g", topic, 5) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert first.init(continues=True) is ErrorCode.PRODUCER_FENCED
    second.write(topic, b"kept")
    second.commit()
    assert read_committed_values(client, topic) == [b"kept"]
    assert fetch_offset(client, "g", topic) == (-1, ErrorCode.NONE)


def test_a_version_2_producer_is_fenced_in_produce_alone(client: RawClient, topic: str, name: str) -> None:
    # A producer of version 2 does not send AddPartitionsToTxn: the broker asks the coordinator before the first batch.
    first = TransactionalProducer(client, name).initialise()
    TransactionalProducer(client, name).initialise()
    assert first.send(topic, b"zombie") is ErrorCode.INVALID_PRODUCER_EPOCH
    assert first.commit_offset("g", topic, 5) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert read_all_values(client, topic) == []


def test_late_requests_do_not_enter_the_next_transaction(client: RawClient, topic: str, name: str) -> None:
    producer = TransactionalProducer(client, name).initialise()
    late = TransactionalProducer(client, name)
    late.become(producer.producer)
    producer.write(topic, b"first")
    assert late.end(True, heard=False) is ErrorCode.NONE
    while producer.end(True) is not ErrorCode.NONE:  # the retry is answered once the markers have landed
        pass
    producer.write(topic, b"second")
    assert late.send(topic, b"late") is ErrorCode.INVALID_PRODUCER_EPOCH
    assert late.send("nowhere-yet", b"late") is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert late.end(True) is ErrorCode.PRODUCER_FENCED
    assert late.commit_offset("g", topic, 1) is ErrorCode.INVALID_PRODUCER_EPOCH
    producer.abort()
    assert read_committed_values(client, topic) == [b"first"]


@pytest.mark.parametrize(
    ("produce", "code"), [(10, ErrorCode.INVALID_TXN_STATE), (11, ErrorCode.TRANSACTION_ABORTABLE)]
)
def test_a_late_batch_begins_no_hanging_transaction(
    produce: int, code: ErrorCode, client: RawClient, topic: str, name: str
) -> None:
    # KIP-890 part 1: the partition asks the coordinator, which answers that the partition is in no transaction.
    producer = TransactionalProducer(client, name, 1).initialise()
    assert producer.send(topic, b"never added", version=produce) is code
    producer.write(topic, b"one")
    assert producer.send(topic, b"two", version=produce) is ErrorCode.NONE
    producer.abort()
    assert producer.send(topic, b"late", version=produce) is code
    append(client, topic, b"plain")
    assert read_committed_values(client, topic) == [b"plain"]


def test_another_producer_id_cannot_write_under_a_transactional_id(client: RawClient, topic: str, name: str) -> None:
    first = TransactionalProducer(client, name).initialise()
    stranger = TransactionalProducer(client, name)
    stranger.become(ProducerIdentity(first.producer.id + 1_000_000, 0))
    assert stranger.send(topic, b"x") is ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_an_unknown_partition_keeps_the_others_out_of_the_transaction(client: RawClient, topic: str, name: str) -> None:
    producer = TransactionalProducer(client, name, 1).initialise()
    assert producer.add(topic, 0, 7) == [ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert producer.add("__transaction_state", 0) == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    assert describe_transaction(client, name).transaction_state == "Empty"
    unknown = TransactionalProducer(client, "nobody-knows", 1)
    assert unknown.add(topic, 0) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING]


def test_init_producer_id_refuses_invalid_ids(client: RawClient) -> None:
    # An empty transactional id, and a producer id without its epoch. The longest string there is, is a valid id.
    assert TransactionalProducer(client, "").init() is ErrorCode.INVALID_REQUEST
    half = TransactionalProducer(client, "half")
    half.become(ProducerIdentity(5, -1))
    assert half.init(continues=True) is ErrorCode.INVALID_REQUEST
    assert TransactionalProducer(client, "i" * 32_767).init() is ErrorCode.NONE


def test_brokers_add_and_verify_many_transactions_at_once(client: RawClient, topic: str, name: str) -> None:
    # AddPartitionsToTxn from version 4 on: an answer for each transaction and partition.
    first, second = (TransactionalProducer(client, f"{name}-{number}").initialise() for number in range(2))
    first.write(topic, b"one")

    def asked(producer: TransactionalProducer, where: str, *, verify: bool) -> AddPartitionsToTxnTransaction:
        return AddPartitionsToTxnTransaction(
            transactional_id=producer.transactional_id,
            producer_id=producer.producer.id,
            producer_epoch=producer.producer.epoch,
            verify_only=verify,
            topics=[AddPartitionsToTxnTopic(name=where, partitions=[0])],
        )

    transactions = [
        asked(first, topic, verify=True),
        asked(second, topic, verify=True),
        asked(second, topic, verify=False),
        asked(second, topic, verify=True),
        asked(second, "n" * 30_000, verify=False),
    ]
    answer = client.request(AddPartitionsToTxnRequest(transactions=transactions), 5)
    found = [each.topic_results[0].results_by_partition[0] for each in answer.results_by_transaction]
    assert [each.partition_error_code for each in found] == [
        ErrorCode.NONE,
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    first.abort()
    second.abort()


# Offsets


@VERSIONS
def test_offsets_of_a_transaction_are_pending_until_it_ends(
    version: int, client: RawClient, topic: str, name: str
) -> None:
    # OffsetFetch returns the old offset; with require_stable it answers UNSTABLE_OFFSET_COMMIT.
    group = f"group-of-{name}"
    producer = TransactionalProducer(client, name, version).initialise()
    for committed, offset, counts in ((True, 10, 10), (False, 20, 10), (True, 30, 30)):
        before = fetch_offset(client, group, topic)[0]
        if version == 1:
            assert producer.add_offsets(group) is ErrorCode.NONE
        assert producer.commit_offset(group, topic, offset) is ErrorCode.NONE
        assert fetch_offset(client, group, topic) == (before, ErrorCode.NONE)
        assert fetch_offset(client, group, topic, stable=True)[1] is ErrorCode.UNSTABLE_OFFSET_COMMIT
        (producer.commit if committed else producer.abort)()
        assert fetch_offset(client, group, topic, stable=True) == (counts, ErrorCode.NONE)


@pytest.mark.parametrize(("version", "code"), [(3, ErrorCode.INVALID_TXN_STATE), (4, ErrorCode.TRANSACTION_ABORTABLE)])
def test_offsets_without_their_group_in_the_transaction_are_refused(
    version: int, code: ErrorCode, client: RawClient, topic: str, name: str
) -> None:
    producer = TransactionalProducer(client, name, 1).initialise()
    assert producer.commit_offset("g", topic, 5, version=version) is code
    assert producer.commit_offset("", topic, 5, version=version) is ErrorCode.INVALID_GROUP_ID


# Looking, and mending


def test_transactions_are_described_and_listed(client: RawClient, topic: str, name: str) -> None:
    producer = TransactionalProducer(client, name, timeout_ms=12_345).initialise()
    assert describe_transaction(client, name).transaction_state == "Empty"
    producer.write(topic, b"one")
    found = describe_transaction(client, name)
    assert (found.error_code, found.transaction_state, found.transaction_timeout_ms) == (0, "Ongoing", 12_345)
    assert ProducerIdentity(found.producer_id, found.producer_epoch) == producer.producer
    assert found.topics == [TopicData(topic=topic, partitions=[0])]
    assert found.transaction_start_time_ms > 0
    assert describe_transaction(client, "nobody").error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert describe_transaction(client, "").error_code == ErrorCode.INVALID_REQUEST
    own: dict[str, Any] = {"producer_id_filters": [producer.producer.id]}
    for filters, is_in in (
        ({}, True),
        ({"state_filters": ["Ongoing"]}, True),
        ({"state_filters": ["CompleteCommit", "Empty"]}, False),
        ({"duration_filter": 3_600_000}, False),
        ({"transactional_id_pattern": "transactional-.*"}, True),
        ({"transactional_id_pattern": "transactional"}, False),
    ):
        answer = list_transactions(client, **own, **filters)
        assert [each.transactional_id for each in answer.transaction_states] == [name] * is_in, filters
    answer = list_transactions(client, state_filters=["Ongoing", "Sleeping"], **own)
    assert answer.unknown_state_filters == ["Sleeping"]
    assert [each.transaction_state for each in answer.transaction_states] == ["Ongoing"]
    assert list_transactions(client, state_filters=["Sleeping"]).transaction_states == []
    assert list_transactions(client, transactional_id_pattern="(").error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    producer.abort()


def test_a_hanging_transaction_is_found_and_ended() -> None:
    # With verification off a late batch can still begin a transaction that its coordinator does not know. An admin ends
    # it.
    with ottla.testing.broker(transaction_partition_verification_enable=False) as broker, connect(broker) as client:
        broker.create_topic("t")
        producer = TransactionalProducer(client, "x", 1).initialise()
        assert producer.send("t", b"hanging") is ErrorCode.NONE
        append(client, "t", b"behind")
        assert read_committed_values(client, "t") == []
        assert describe_transaction(client, "x").topics == []
        (found,) = describe_producers(client, "t")
        assert (found.producer_id, found.current_txn_start_offset) == (producer.producer.id, 0)
        assert write_marker(client, "t", ProducerIdentity(found.producer_id, found.producer_epoch)) is ErrorCode.NONE
        (found,) = describe_producers(client, "t")
        assert (found.current_txn_start_offset, found.coordinator_epoch) == (-1, 0)
        assert read_committed_values(client, "t") == [b"behind"]


def test_offsets_of_a_fenced_producer_do_no_harm_without_verification() -> None:
    # The log refuses the old epoch. The coordinator of the group is not affected: it is not loaded again.
    with ottla.testing.broker(transaction_partition_verification_enable=False) as broker, connect(broker) as client:
        broker.create_topic("t")
        first = TransactionalProducer(client, "x", 1).initialise()
        second = TransactionalProducer(client, "x", 1).initialise()
        assert second.add_offsets("g") is ErrorCode.NONE
        assert second.commit_offset("g", "t", 7) is ErrorCode.NONE
        assert first.commit_offset("g", "t", 5) is ErrorCode.INVALID_PRODUCER_EPOCH
        assert fetch_offset(client, "g", "t") == (-1, ErrorCode.NONE)
        second.commit()
        assert fetch_offset(client, "g", "t") == (7, ErrorCode.NONE)


def test_outdated_markers_are_refused(client: RawClient, topic: str, name: str) -> None:
    # With an older coordinator epoch, an older producer epoch, or in version 2 the producer epoch of the transaction.
    producer = TransactionalProducer(client, name).initialise()
    producer.write(topic, b"one")
    open_one = producer.producer
    assert write_marker(client, topic, open_one, transaction_version=2) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert read_committed_values(client, topic) == []
    raised = ProducerIdentity(open_one.id, open_one.epoch + 1)
    assert write_marker(client, topic, raised, coordinator_epoch=9, transaction_version=2) is ErrorCode.NONE
    assert write_marker(client, topic, raised, coordinator_epoch=9, transaction_version=2) is ErrorCode.NONE
    assert write_marker(client, topic, open_one, coordinator_epoch=9) is ErrorCode.INVALID_PRODUCER_EPOCH
    fenced = write_marker(client, topic, raised, coordinator_epoch=8)
    assert fenced is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert write_marker(client, "nowhere", raised) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# Time, and trouble


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalBroker]:
    """A broker of its own, for tests that advance its clock or kill it."""
    with ottla.testing.broker() as running:
        yield running


@VERSIONS
def test_a_transaction_that_takes_too_long_is_aborted(broker: LocalBroker, version: int, name: str) -> None:
    topic = f"late-{version}"
    broker.create_topic(topic, retention_ms=-1)  # its records have old timestamps
    with connect(broker) as client:
        producer = TransactionalProducer(client, name, version, timeout_ms=30_000).initialise()
        producer.write(topic, b"too late")
        append(client, topic, b"plain")
        broker.advance(seconds=29)
        assert describe_transaction(client, name).transaction_state == "Ongoing"
        broker.advance(seconds=11)
        assert describe_transaction(client, name).transaction_state == "CompleteAbort"
        assert read_committed_values(client, topic) == [b"plain"]
        assert producer.end(True) is ErrorCode.PRODUCER_FENCED
        assert producer.send(topic, b"x") is ErrorCode.INVALID_PRODUCER_EPOCH
        # A client of version 2 may abort a transaction that is already aborted, and goes on.
        assert producer.end(False) is (ErrorCode.NONE if version == 2 else ErrorCode.PRODUCER_FENCED)


def test_an_idle_transactional_id_expires(broker: LocalBroker, name: str) -> None:
    with connect(broker) as client:
        producer = TransactionalProducer(client, name).initialise()
        broker.advance(days=8)
        assert describe_transaction(client, name).error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        assert producer.end(False) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert producer.init(continues=True) is ErrorCode.NONE


def test_a_topic_that_is_deleted_does_not_keep_its_transaction_open(broker: LocalBroker, name: str) -> None:
    broker.create_topic("going")
    broker.create_topic("staying")
    with connect(broker) as client:
        producer = TransactionalProducer(client, name).initialise()
        producer.write("going", b"one")
        producer.write("staying", b"two")
        assert delete_topic(client, "going") == 0
        producer.commit()
        assert read_committed_values(client, "staying") == [b"two"]


@VERSIONS
@pytest.mark.parametrize("ending", [None, True, False])
def test_transactions_survive_a_kill(broker: LocalBroker, version: int, ending: bool | None, name: str) -> None:
    # An open transaction is still open, a decided one is completed, and the producer goes on.
    topic = f"killed-{version}-{ending}"
    group = f"group-of-{name}"
    broker.create_topic(topic)
    with connect(broker) as client:
        producer = TransactionalProducer(client, name, version).initialise()
        producer.write(topic, b"one")
        if version == 1:
            producer.add_offsets(group)
        assert producer.commit_offset(group, topic, 7) is ErrorCode.NONE
        if ending is not None:
            assert producer.end(ending) is ErrorCode.NONE
    broker.kill()
    broker.restart()
    with connect(broker) as client:
        producer.client = client
        if ending is None:
            assert read_committed_values(client, topic) == []
            assert fetch_offset(client, group, topic, stable=True)[1] is ErrorCode.UNSTABLE_OFFSET_COMMIT
            producer.write(topic, b"two")
            producer.commit()
            assert read_committed_values(client, topic) == [b"one", b"two"]
            assert fetch_offset(client, group, topic, stable=True) == (7, ErrorCode.NONE)
        else:
            while not describe_transaction(client, name).transaction_state.startswith("Complete"):
                pass  # the coordinator is loading, or ends the transaction
            assert read_committed_values(client, topic) == [b"one"] * ending
            assert fetch_offset(client, group, topic, stable=True) == (7 if ending else -1, ErrorCode.NONE)
            producer.write(topic, b"two")
            producer.commit()
            assert read_committed_values(client, topic) == [b"one"] * ending + [b"two"]
