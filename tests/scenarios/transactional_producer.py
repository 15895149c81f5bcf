"""A transactional producer over a raw client, for both versions of transactions: one method per request."""

from typing import Any

from ottla.coordinators.machine import ProducerIdentity
from ottla.errors import ErrorCode
from ottla.records.batch import decode, headers
from ottla.wire.fetch import PartitionResult as Fetched
from ottla.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from ottla.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from ottla.wire.messages.describe_transactions import DescribeTransactionsRequest
from ottla.wire.messages.end_txn import EndTxnRequest
from ottla.wire.messages.init_producer_id import InitProducerIdRequest
from ottla.wire.messages.list_transactions import ListTransactionsRequest
from ottla.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from ottla.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tests.raw_client import RawClient
from tests.scenarios.client_calls import make_batch, produce_batch

READ_COMMITTED = 1
NOBODY = ProducerIdentity(-1, -1)


RETRIED = ([ErrorCode.CONCURRENT_TRANSACTIONS], [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS])
"""Errors after which a client retries: the last transaction is being ended, or the broker has just started."""


class TransactionalProducer:
    """Keeps its producer id, epoch and sequence numbers, as a client library does."""

    def __init__(self, client: RawClient, transactional_id: str, version: int = 2, timeout_ms: int = 60_000) -> None:
        self.client = client
        self.transactional_id = transactional_id
        self.version = version
        self.timeout_ms = timeout_ms
        self.producer = NOBODY
        self._sequences: dict[tuple[str, int], int] = {}

    def init(self, *, continues: bool = False) -> ErrorCode:
        expected = self.producer if continues else NOBODY
        answer = self.client.request(
            InitProducerIdRequest(
                transactional_id=self.transactional_id,
                transaction_timeout_ms=self.timeout_ms,
                producer_id=expected.id,
                producer_epoch=expected.epoch,
            ),
            5,
        )
        if not answer.error_code:
            self.become(ProducerIdentity(answer.producer_id, answer.producer_epoch))
        return ErrorCode(answer.error_code)

    def initialise(self) -> "TransactionalProducer":
        while (code := self.init()) is ErrorCode.CONCURRENT_TRANSACTIONS:
            pass
        assert code is ErrorCode.NONE
        return self

    def become(self, producer: ProducerIdentity) -> None:
        if producer != self.producer:
            self._sequences.clear()
        self.producer = producer

    def add(self, topic: str, *partitions: int, version: int = 3) -> list[ErrorCode]:
        """Send AddPartitionsToTxn, as clients of transactions v1 do. Returns a code for each partition."""
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer.id,
            v3_and_below_producer_epoch=self.producer.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=list(partitions))],
        )
        (answer,) = self.client.request(request, version).results_by_topic_v3_and_below
        return [ErrorCode(each.partition_error_code) for each in answer.results_by_partition]

    def batch(self, topic: str, *values: bytes, partition: int = 0) -> bytearray:
        return make_batch(
            *values,
            producer_id=self.producer.id,
            producer_epoch=self.producer.epoch,
            base_sequence=self._sequences.get((topic, partition), 0),
            transactional=True,
        )

    def send(self, topic: str, *values: bytes, partition: int = 0, version: int | None = None) -> ErrorCode:
        """Produce, in the version that belongs to the version of transactions."""
        version = version or (12 if self.version == 2 else 11)
        batch = self.batch(topic, *values, partition=partition)
        result = produce_batch(
            self.client, topic, batch, partition=partition, version=version, transactional_id=self.transactional_id
        )
        if not result.error_code:
            place = (topic, partition)
            self._sequences[place] = self._sequences.get(place, 0) + len(values)
        return ErrorCode(result.error_code)

    def write(self, topic: str, *values: bytes, partition: int = 0) -> None:
        """Write records in the transaction, with all requests that this needs."""
        if self.version < 2:
            while (codes := self.add(topic, partition)) in RETRIED:
                pass
            assert codes == [ErrorCode.NONE]
        while (code := self.send(topic, *values, partition=partition)) is ErrorCode.CONCURRENT_TRANSACTIONS:
            pass
        assert code is ErrorCode.NONE

    def end(self, committed: bool, *, heard: bool = True) -> ErrorCode:
        answer = self.client.request(
            EndTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=self.producer.id,
                producer_epoch=self.producer.epoch,
                committed=committed,
            ),
            5 if self.version == 2 else 4,
        )
        if not answer.error_code and self.version == 2 and heard:
            self.become(ProducerIdentity(answer.producer_id, answer.producer_epoch))
        return ErrorCode(answer.error_code)

    def commit(self) -> None:
        self._end_and_await_markers(True)

    def abort(self) -> None:
        self._end_and_await_markers(False)

    def _end_and_await_markers(self, committed: bool) -> None:
        """End the transaction, and wait until all markers are written."""
        assert self.end(committed) is ErrorCode.NONE
        while describe_transaction(self.client, self.transactional_id).transaction_state.startswith("Prepare"):
            pass

    def add_offsets(self, group: str) -> ErrorCode:
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer.id,
            producer_epoch=self.producer.epoch,
            group_id=group,
        )
        return ErrorCode(self.client.request(request, 4).error_code)

    def commit_offset(self, group: str, topic: str, offset: int, *, version: int | None = None) -> ErrorCode:
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group,
            producer_id=self.producer.id,
            producer_epoch=self.producer.epoch,
            topics=[
                TxnOffsetCommitRequestTopic(
                    name=topic,
                    partitions=[TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset)],
                )
            ],
        )
        answer = self.client.request(request, version or (5 if self.version == 2 else 4))
        return ErrorCode(answer.topics[0].partitions[0].error_code)


def read_committed_values(client: RawClient, topic: str, partition: int = 0) -> list[bytes]:
    """The values that a read_committed consumer gets: it skips the aborted transactions that the broker lists."""
    found: list[bytes] = []
    offset = 0
    while True:
        fetched = client.fetch(topic, partition, offset, isolation_level=READ_COMMITTED)
        assert fetched.error_code == 0, ErrorCode(fetched.error_code).name
        data = bytes(fetched.records) if isinstance(fetched.records, memoryview | bytes | bytearray) else b""
        if not data:
            assert offset == fetched.last_stable_offset
            return found
        found += select_visible_values(data, fetched, offset)
        offset = max(header.next_offset for _, header in headers(data))


def select_visible_values(data: bytes, fetched: Fetched, offset: int) -> list[bytes]:
    aborted: set[int] = set()
    begins = sorted(fetched.aborted_transactions or (), key=lambda each: each.first_offset)
    values: list[bytes] = []
    for position, header in headers(data):
        while begins and begins[0].first_offset <= header.last_offset:
            aborted.add(begins.pop(0).producer_id)
        if header.is_control:
            aborted.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in aborted):
            values += [record.value or b"" for record in decode(data, position) if record.offset >= offset]
    return values


def describe_transaction(client: RawClient, transactional_id: str) -> Any:
    (state,) = client.request(DescribeTransactionsRequest(transactional_ids=[transactional_id]), 0).transaction_states
    return state


def list_transactions(client: RawClient, version: int = 2, **filters: Any) -> Any:
    return client.request(ListTransactionsRequest(**filters), version)


def describe_producers(client: RawClient, topic: str, partition: int = 0) -> Any:
    request = DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=[partition])])
    return client.request(request, 0).topics[0].partitions[0].active_producers


def write_marker(
    client: RawClient,
    topic: str,
    producer: ProducerIdentity,
    *,
    committed: bool = False,
    coordinator_epoch: int = 0,
    transaction_version: int = 0,
    partition: int = 0,
) -> ErrorCode:
    """Send WriteTxnMarkers, as an admin client or a coordinator does."""
    marker = WritableTxnMarker(
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        transaction_result=committed,
        topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[partition])],
        coordinator_epoch=coordinator_epoch,
        transaction_version=transaction_version,
    )
    answer = client.request(WriteTxnMarkersRequest(markers=[marker]), 2)
    return ErrorCode(answer.markers[0].topics[0].partitions[0].error_code)


def fetch_offset(client: RawClient, group: str, topic: str, *, stable: bool = False) -> tuple[int, ErrorCode]:
    asked = OffsetFetchRequestGroup(
        group_id=group, topics=[OffsetFetchRequestTopics(name=topic, partition_indexes=[0])]
    )
    answer = client.request(OffsetFetchRequest(groups=[asked], require_stable=stable), 9)
    (found,) = answer.groups[0].topics[0].partitions
    return found.committed_offset, ErrorCode(found.error_code)
