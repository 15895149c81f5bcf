"""Produce: append record batches to partitions.

Versions: 5 log start offset; 7 zstd (KIP-110); 8 record errors (KIP-467); 9 flexible; 10 new leader in the answer
(KIP-951); 12 transactions v2 (KIP-890); 13 topics by id (KIP-516).
A plain function: batches are checked and appended before the next request of the connection is looked at, so order is
never in doubt. What comes back is the answer, or a future if acknowledging has to wait (in-sync replicas, fsync), or a
coroutine, for which the connection waits, if a batch is so large that it is checked in a thread, or is the first of a
transaction in its partition: then the transaction's coordinator is asked. It ends when all is appended, with the answer
or the future.
"""

import asyncio
from collections.abc import Coroutine, Mapping
from functools import partial
from typing import Any, NamedTuple

from ottla.broker.call import Call, CloseConnection
from ottla.broker.node import Node
from ottla.cluster.topics import is_internal
from ottla.coordinators.machine import Producer
from ottla.coordinators.transactions.admission import Speech, admit
from ottla.errors import ErrorCode, KafkaError
from ottla.observability.metrics import TopicMeter
from ottla.records import batch
from ottla.records.batch import BatchHeader
from ottla.records.compression import ZSTD
from ottla.replication.partition import Partition
from ottla.replication.record_checks import Outcome
from ottla.replication.transactions import is_open
from ottla.replication.validation import Checked, RefusedRecords
from ottla.storage.log import Appended
from ottla.wire import produce
from ottla.wire.produce import PartitionData, PartitionResult, ProduceRequest, ProduceResponse, TopicData, TopicResult

API_KEY = 0
VERSIONS = produce.VERSIONS
ZSTD_FROM = 7
ABORTABLE_FROM = 11
ADDED_FROM = 12

Waiting = tuple[PartitionResult, asyncio.Future[None], TopicMeter]
Response = ProduceResponse | None


class Arrival(NamedTuple):
    """A batch on its way into its partition, and what its producer will be told."""

    partition: Partition
    result: PartitionResult
    batch: Checked | asyncio.Future[Outcome]

    @property
    def header(self) -> BatchHeader:
        """Of a batch that has been checked."""
        assert isinstance(self.batch, Checked)
        return self.batch.header


def handle(
    node: Node, call: Call[ProduceRequest]
) -> Response | asyncio.Future[Response] | Coroutine[Any, Any, Response | asyncio.Future[Response]]:
    request = call.body
    if request.acks not in (-1, 0, 1):
        raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS)
    arrivals: list[Arrival] = []
    waiting: list[Waiting] = []
    topics = []
    for topic in request.topics:
        topics.append(receive_topic(node, call, topic, arrivals, waiting))
    response = ProduceResponse(topics)
    if not arrivals:
        return acknowledge(node, call, response, waiting) if waiting else finish(call, response)
    if all(arrival.batch.__class__ is Checked for arrival in arrivals) and not begins_transaction(arrivals):
        return append_all(node, call, response, arrivals, waiting)
    return append_when_checked(node, call, response, arrivals, waiting)


def receive_topic(
    node: Node, call: Call[ProduceRequest], topic: TopicData, arrivals: list[Arrival], waiting: list[Waiting]
) -> TopicResult:
    """Check every batch for one topic, or begin to. Those that pass at once, as nearly all do, are appended; those that
    have something to wait for, and all behind them, are added to `arrivals`."""
    results = []
    acks = call.body.acks
    at_once = call.body.transactional_id is None
    now_ms = node.clock.now_ms()
    for data in topic.partitions:
        result = PartitionResult(data.index)
        results.append(result)
        try:
            partition = find(node, call, topic, data.index)
        except KafkaError as error:
            fail(node, result, error, node.replicas.meters.elsewhere)
            continue
        partition.meter.produces += 1
        try:
            records, header = sound_batch(call, data)
            state = partition.admit(header, acks)
            checked = node.record_checks.check(records, header, partition.rules, now_ms)
            if not at_once or arrivals or not isinstance(checked, Checked):
                arrivals.append(Arrival(partition, result, checked))
                continue
            if checked.header is not header:  # packed anew, and maybe larger
                state = partition.admit(checked.header, acks)
            appended = partition.append_admitted(state, checked.records, checked.header, now_ms)
            tell(partition, appended, acks, result, waiting)
        except KafkaError as error:
            refuse(node, partition, result, error)
    return TopicResult(topic.name, topic.topic_id, results)


def sound_batch(call: Call[ProduceRequest], data: PartitionData) -> tuple[memoryview, BatchHeader]:
    """The batch and its header; of the records only the checksum is known to be right."""
    if data.records is None:
        raise KafkaError(ErrorCode.INVALID_RECORD, "no records")
    header = batch.check_client_batch(data.records)
    attributes = header.attributes
    if attributes & batch.TRANSACTIONAL and not call.body.transactional_id:
        message = "records of a transaction need its transactional id"
        raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, message)
    if attributes & batch.CODEC_MASK == ZSTD and call.version < ZSTD_FROM:
        message = f"zstd needs Produce version {ZSTD_FROM}, this is {call.version}"
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, message)
    return data.records, header


async def append_when_checked(
    node: Node, call: Call[ProduceRequest], response: ProduceResponse, arrivals: list[Arrival], waiting: list[Waiting]
) -> Response | asyncio.Future[Response]:
    checked: list[Arrival] = []
    for arrival in arrivals:
        outcome = await arrival.batch if isinstance(arrival.batch, asyncio.Future) else arrival.batch
        if isinstance(outcome, KafkaError):
            refuse(node, arrival.partition, arrival.result, outcome)
        else:
            checked.append(arrival._replace(batch=outcome))
    if call.body.transactional_id is not None and begins_transaction(checked):
        checked = await admitted(node, call, call.body.transactional_id, checked)
    return append_all(node, call, response, checked, waiting)


def begins_transaction(arrivals: list[Arrival]) -> bool:
    """Whether a batch is the first of its transaction in its partition."""
    for arrival in arrivals:
        header = arrival.header
        if header.is_transactional and not is_open(arrival.partition, header.producer_id, header.producer_epoch):
            return True
    return False


async def admitted(
    node: Node, call: Call[ProduceRequest], transactional_id: str, arrivals: list[Arrival]
) -> list[Arrival]:
    """Those that may be appended, as of now: whatever their transaction's coordinator has to say against is refused."""
    speech = speech_of(call.version)
    if speech is not Speech.ADD and not node.config.transaction_partition_verification_enable:
        return arrivals
    headers = [arrival.header for arrival in arrivals]
    partitions = [arrival.partition for arrival in arrivals if arrival.header.is_transactional]
    producers = {Producer(header.producer_id, header.producer_epoch) for header in headers if header.is_transactional}
    refused: Mapping[Partition, KafkaError]
    if len(producers) == 1:
        refused = await admit(node.transactions, transactional_id, producers.pop(), partitions, speech)
    else:
        error = KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, "batches of several producers in one transaction")
        refused = dict.fromkeys(partitions, error)
    kept = []
    for arrival in arrivals:
        if arrival.partition in refused and arrival.header.is_transactional:
            refuse(node, arrival.partition, arrival.result, refused[arrival.partition])
        else:
            kept.append(arrival)
    return kept


def speech_of(version: int) -> Speech:
    if version >= ADDED_FROM:
        return Speech.ADD
    return Speech.VERIFY if version >= ABORTABLE_FROM else Speech.OLD


def append_all(
    node: Node, call: Call[ProduceRequest], response: ProduceResponse, arrivals: list[Arrival], waiting: list[Waiting]
) -> Response | asyncio.Future[Response]:
    acks = call.body.acks
    now_ms = node.clock.now_ms()
    for partition, result, checked in arrivals:
        assert isinstance(checked, Checked)
        try:
            appended = partition.append(checked.records, checked.header, now_ms, acks)
        except KafkaError as error:
            refuse(node, partition, result, error)
        else:
            tell(partition, appended, acks, result, waiting)
    return acknowledge(node, call, response, waiting) if waiting else finish(call, response)


def tell(partition: Partition, appended: Appended, acks: int, result: PartitionResult, waiting: list[Waiting]) -> None:
    """Where the batch is now; and if its acknowledgement has to wait, that goes to `waiting`."""
    result.base_offset = appended.base_offset
    result.log_append_time_ms = appended.log_append_time
    result.log_start_offset = partition.log.log_start_offset
    if acks and (future := partition.acknowledged(appended, acks)) is not None:
        waiting.append((result, future, partition.meter))


def find(node: Node, call: Call[ProduceRequest], topic: TopicData, index: int) -> Partition:
    if call.version >= produce.TOPIC_ID_FROM:
        partition = node.replicas.get_by_id(topic.topic_id, index)
    else:
        partition = node.replicas.get(topic.name, index)
    if is_internal(partition.topic):
        message = f"{partition.topic} is internal: only the broker writes to it"
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, message)
    return partition


def acknowledge(
    node: Node, call: Call[ProduceRequest], response: ProduceResponse, waiting: list[Waiting]
) -> asyncio.Future[ProduceResponse | None]:
    """The answer once every append is acknowledged, or has failed, or the client's time-out is over."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[ProduceResponse | None] = loop.create_future()
    left = len(waiting)

    def settle(result: PartitionResult, meter: TopicMeter, future: asyncio.Future[None]) -> None:
        nonlocal left
        left -= 1
        error = None if future.cancelled() else future.exception()
        if answer.done():  # too late, or nobody waits any more
            return
        if error is not None:
            fail(node, result, error, meter)
        if not left:
            timer.cancel()
            answer.set_result(response)

    def expire() -> None:
        if answer.done():
            return
        for result, future, meter in waiting:
            if not future.done():
                fail(node, result, KafkaError(ErrorCode.REQUEST_TIMED_OUT), meter)
        answer.set_result(response)

    timer = loop.call_later(max(call.body.timeout_ms, 0) / 1000, expire)
    for result, future, meter in waiting:
        future.add_done_callback(partial(settle, result, meter))
    return answer


def refuse(node: Node, partition: Partition, result: PartitionResult, error: KafkaError) -> None:
    fail(node, result, error, partition.meter)
    if error.code in (ErrorCode.INVALID_RECORD, ErrorCode.INVALID_TIMESTAMP):
        result.log_start_offset = partition.log.log_start_offset
    if isinstance(error, RefusedRecords):
        result.record_errors = error.record_errors


def fail(node: Node, result: PartitionResult, error: BaseException, meter: TopicMeter) -> None:
    result.error_code = error.code if isinstance(error, KafkaError) else ErrorCode.UNKNOWN_SERVER_ERROR
    result.error_message = error.message or None if isinstance(error, KafkaError) else None
    result.base_offset = -1
    meter.failed_produces += 1
    node.request_meters.told(API_KEY, result.error_code)


def finish(call: Call[ProduceRequest], response: ProduceResponse) -> ProduceResponse | None:
    if call.body.acks == 0:
        failed = [partition for topic in response.topics for partition in topic.partitions if partition.error_code]
        if failed:
            # A producer that wants no answer learns of a failure in the only way left: it connects again and asks
            # for metadata.
            raise CloseConnection(f"acks=0 and {ErrorCode(failed[0].error_code).name}")
        return None
    return response


def refusal(call: Call[ProduceRequest], code: ErrorCode, message: str) -> ProduceResponse:
    return ProduceResponse(
        [
            TopicResult(
                topic.name,
                topic.topic_id,
                [PartitionResult(data.index, code, error_message=message or None) for data in topic.partitions],
            )
            for topic in call.body.topics
        ]
    )


CODEC = (produce.read_request, produce.write_response, refusal)
