"""Produce: append record batches to partitions.

Versions: 5 log start offset; 7 zstd (KIP-110); 8 record errors (KIP-467); 9 flexible; 10 new leader in the answer
(KIP-951); 12 transactions v2 (KIP-890); 13 topics by id (KIP-516).
`handle` is a plain function: it checks and appends all batches before the connection handles its next request, so the
order of batches is never in doubt. It returns
- the answer, in most cases;
- a future, if the acknowledgement has to wait for in-sync replicas or for an fsync;
- a coroutine, if a batch is so large that it is checked in a thread, or is the first of a transaction in its partition,
  so that the transaction coordinator has to be asked. The connection waits for the coroutine. It ends when all batches
  are appended, and returns the answer or the future.
"""

import asyncio
from collections.abc import Coroutine, Mapping
from functools import partial
from typing import Any, NamedTuple

from ottla.broker.call import Call, CloseConnection
from ottla.broker.node import Node
from ottla.cluster.topics import is_internal
from ottla.coordinators.machine import ProducerIdentity
from ottla.coordinators.transactions.admission import TransactionVerification
from ottla.errors import ErrorCode, KafkaError
from ottla.handlers.authorization import may, refusal, require
from ottla.handlers.new_leader import find_new_leader
from ottla.observability.metrics import TopicMeter
from ottla.records import batch
from ottla.records.batch import BatchHeader
from ottla.records.compression import ZSTD
from ottla.replication.partition import Partition
from ottla.replication.record_checks import CheckResult
from ottla.replication.transactions import is_open
from ottla.replication.validation import CheckedBatch, RefusedRecords
from ottla.security import rights
from ottla.storage.log import Appended
from ottla.wire import produce
from ottla.wire.produce import PartitionData, PartitionResult, ProduceRequest, ProduceResponse, TopicData, TopicResult

API_KEY = 0
REQUIRES = rights.parts(rights.WRITE_TOPIC, rights.WRITE_TRANSACTIONAL_ID)
ZSTD_FROM = 7
ABORTABLE_FROM = 11
ADDED_FROM = 12

UnacknowledgedAppend = tuple[PartitionResult, asyncio.Future[None], TopicMeter]
"""The result of an append, the future that is done when it may be acknowledged, and the meter of its topic."""
Response = ProduceResponse | None


class PendingBatch(NamedTuple):
    """A batch that is not appended yet, and the result that its producer will get."""

    partition: Partition
    result: PartitionResult
    batch: CheckedBatch | asyncio.Future[CheckResult]

    @property
    def header(self) -> BatchHeader:
        """Header of the batch, which must have been checked."""
        assert isinstance(self.batch, CheckedBatch)
        return self.batch.header


def handle(
    node: Node, call: Call[ProduceRequest]
) -> Response | asyncio.Future[Response] | Coroutine[Any, Any, Response | asyncio.Future[Response]]:
    request = call.body
    if request.acks not in (-1, 0, 1):
        raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS)
    if node.authorizer is not None:
        require_transactional_id(node, call)
    pending: list[PendingBatch] = []
    waiting: list[UnacknowledgedAppend] = []
    response = ProduceResponse([])
    for topic in request.topics:
        receive_topic(node, call, topic, response, pending, waiting)
    if not pending:
        return acknowledge(node, call, response, waiting) if waiting else finish(call, response)
    if all(each.batch.__class__ is CheckedBatch for each in pending) and not begins_transaction(pending):
        return append_all(node, call, response, pending, waiting)
    return append_when_checked(node, call, response, pending, waiting)


def receive_topic(
    node: Node,
    call: Call[ProduceRequest],
    topic: TopicData,
    response: ProduceResponse,
    pending: list[PendingBatch],
    waiting: list[UnacknowledgedAppend],
) -> None:
    """Check every batch for one topic, and append those whose check is done at once, as nearly all are.

    A batch that has to wait, and all batches behind it, are added to `pending`. All get a result in `response`.
    """
    results: list[PartitionResult] = []
    response.topics.append(TopicResult(topic.name, topic.topic_id, results))
    acks = call.body.acks
    at_once = call.body.transactional_id is None
    now_ms = node.clock.now_ms()
    forbidden = node.authorizer is not None and not may_write(node, call, topic)
    for data in topic.partitions:
        result = PartitionResult(data.index)
        results.append(result)
        try:
            if forbidden:
                raise refusal(rights.WRITE_TOPIC)
            partition = find(node, call, topic, data.index)
        except KafkaError as error:
            fail(node, call, response, result, error, node.replicas.meters.elsewhere)
            continue
        partition.meter.produces += 1
        try:
            records, header = check_batch(call, data)
            state = partition.admit(header, acks)
            checked = node.record_checks.check(records, header, partition.rules, now_ms)
            if not at_once or pending or not isinstance(checked, CheckedBatch):
                pending.append(PendingBatch(partition, result, checked))
                continue
            if checked.header is not header:  # recompressed, and maybe larger
                state = partition.admit(checked.header, acks)
            appended = partition.append_admitted(state, checked.records, checked.header, now_ms)
            complete(partition, appended, acks, result, waiting)
        except KafkaError as error:
            refuse(node, call, response, partition, result, error)


def require_transactional_id(node: Node, call: Call[ProduceRequest]) -> None:
    """A request with transactional records needs the right on its transactional id. The flag of the batches counts, not
    whether the request names an id (CVE-2018-17196)."""
    for topic in call.body.topics:
        for data in topic.partitions:
            if data.records is not None and batch.has_transactional_flag(data.records):
                if call.body.transactional_id is None:
                    raise refusal(rights.WRITE_TRANSACTIONAL_ID)
                require(node, call, rights.WRITE_TRANSACTIONAL_ID, call.body.transactional_id)
                return


def may_write(node: Node, call: Call[ProduceRequest], topic: TopicData) -> bool:
    """Whether the client may write to the topic. An id that no topic has is answered as unknown."""
    name: str | None = topic.name
    if call.version >= produce.TOPIC_ID_FROM:
        name = node.image.topic_names.get(topic.topic_id)
    return name is None or may(node, call, rights.WRITE_TOPIC, name)


def check_batch(call: Call[ProduceRequest], data: PartitionData) -> tuple[memoryview, BatchHeader]:
    """Check everything but the single records: the header and the checksum. Returns the batch and its header."""
    if data.records is None:
        raise KafkaError(ErrorCode.INVALID_RECORD, "no records")
    header = batch.check_client_batch(data.records)
    attributes = header.attributes
    if attributes & batch.TRANSACTIONAL and not call.body.transactional_id:
        message = "a transactional batch needs a transactional.id in the request"
        raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, message)
    if attributes & batch.CODEC_MASK == ZSTD and call.version < ZSTD_FROM:
        message = f"zstd needs Produce version {ZSTD_FROM}, this is {call.version}"
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, message)
    return data.records, header


async def append_when_checked(
    node: Node,
    call: Call[ProduceRequest],
    response: ProduceResponse,
    pending: list[PendingBatch],
    waiting: list[UnacknowledgedAppend],
) -> Response | asyncio.Future[Response]:
    checked: list[PendingBatch] = []
    for each in pending:
        result = await each.batch if isinstance(each.batch, asyncio.Future) else each.batch
        if isinstance(result, KafkaError):
            refuse(node, call, response, each.partition, each.result, result)
        else:
            checked.append(each._replace(batch=result))
    if call.body.transactional_id is not None and begins_transaction(checked):
        checked = await admit_transactional(node, call, response, call.body.transactional_id, checked)
    return append_all(node, call, response, checked, waiting)


def begins_transaction(pending: list[PendingBatch]) -> bool:
    """Whether one of the batches is the first of its transaction in its partition."""
    for each in pending:
        header = each.header
        if header.is_transactional and not is_open(each.partition, header.producer_id, header.producer_epoch):
            return True
    return False


async def admit_transactional(
    node: Node,
    call: Call[ProduceRequest],
    response: ProduceResponse,
    transactional_id: str,
    pending: list[PendingBatch],
) -> list[PendingBatch]:
    """Ask the transaction coordinator. Returns the batches that may be appended; the others are refused."""
    verification = TransactionVerification.choose(call.version, abortable_from=ABORTABLE_FROM, added_from=ADDED_FROM)
    adds = verification is TransactionVerification.ADD_PARTITION
    if not adds and not node.config.transaction_partition_verification_enable:
        return pending
    headers = [each.header for each in pending]
    partitions = [each.partition for each in pending if each.header.is_transactional]
    producers = {
        ProducerIdentity(header.producer_id, header.producer_epoch) for header in headers if header.is_transactional
    }
    refused: Mapping[Partition, KafkaError]
    if len(producers) == 1:
        refused = await node.admission.admit(transactional_id, producers.pop(), partitions, verification)
    else:
        error = KafkaError(
            ErrorCode.INVALID_PRODUCER_ID_MAPPING, "the batches of one transaction come from several producers"
        )
        refused = dict.fromkeys(partitions, error)
    kept = []
    for each in pending:
        if each.partition in refused and each.header.is_transactional:
            refuse(node, call, response, each.partition, each.result, refused[each.partition])
        else:
            kept.append(each)
    return kept


def append_all(
    node: Node,
    call: Call[ProduceRequest],
    response: ProduceResponse,
    pending: list[PendingBatch],
    waiting: list[UnacknowledgedAppend],
) -> Response | asyncio.Future[Response]:
    acks = call.body.acks
    now_ms = node.clock.now_ms()
    for partition, result, checked in pending:
        assert isinstance(checked, CheckedBatch)
        try:
            appended = partition.append(checked.records, checked.header, now_ms, acks)
        except KafkaError as error:
            refuse(node, call, response, partition, result, error)
        else:
            complete(partition, appended, acks, result, waiting)
    return acknowledge(node, call, response, waiting) if waiting else finish(call, response)


def complete(
    partition: Partition, appended: Appended, acks: int, result: PartitionResult, waiting: list[UnacknowledgedAppend]
) -> None:
    """Fill in the result of an append. If its acknowledgement has to wait, it is added to `waiting`."""
    result.base_offset = appended.base_offset
    result.log_append_time_ms = appended.log_append_time
    result.log_start_offset = partition.log.log_start_offset
    if acks and (future := partition.wait_for_acks(appended, acks)) is not None:
        waiting.append((result, future, partition.meter))


def find(node: Node, call: Call[ProduceRequest], topic: TopicData, index: int) -> Partition:
    if call.version >= produce.TOPIC_ID_FROM:
        partition = node.replicas.get_by_id(topic.topic_id, index)
    else:
        partition = node.replicas.get(topic.name, index)
    if is_internal(partition.topic):
        message = f"{partition.topic} is an internal topic: only the broker writes to it"
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, message)
    return partition


def find_error(node: Node, future: asyncio.Future[None]) -> BaseException | None:
    """Why an append is not acknowledged now; None if it is.

    A leader that cannot reach the store may have been replaced without knowing it. Told REQUEST_TIMED_OUT, clients
    would try it again and again, and ask nobody who leads.
    """
    if not future.done() or future.cancelled():
        return KafkaError(ErrorCode.REQUEST_TIMED_OUT if node.is_connected() else ErrorCode.NOT_LEADER_OR_FOLLOWER)
    return future.exception()


def acknowledge(
    node: Node, call: Call[ProduceRequest], response: ProduceResponse, waiting: list[UnacknowledgedAppend]
) -> asyncio.Future[ProduceResponse | None]:
    """A future of the answer: done when every append is acknowledged or has failed, or when the time-out is over."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[ProduceResponse | None] = loop.create_future()
    left = len(waiting)

    def settle(result: PartitionResult, meter: TopicMeter, future: asyncio.Future[None]) -> None:
        nonlocal left
        left -= 1
        error = find_error(node, future)
        if answer.done():  # the time-out is over, or the client is gone
            return
        if error is not None:
            fail(node, call, response, result, error, meter)
        if not left:
            timer.cancel()
            answer.set_result(response)

    def expire() -> None:
        if answer.done():
            return
        for result, future, meter in waiting:
            # A wait that failed in this iteration of the event loop is done, but `settle` has not been called for it.
            if result.error_code == ErrorCode.NONE and (error := find_error(node, future)) is not None:
                fail(node, call, response, result, error, meter)
        answer.set_result(response)

    timer = loop.call_later(max(call.body.timeout_ms, 0) / 1000, expire)
    for result, future, meter in waiting:
        future.add_done_callback(partial(settle, result, meter))
    return answer


def refuse(
    node: Node,
    call: Call[ProduceRequest],
    response: ProduceResponse,
    partition: Partition,
    result: PartitionResult,
    error: KafkaError,
) -> None:
    fail(node, call, response, result, error, partition.meter)
    if error.code in (ErrorCode.INVALID_RECORD, ErrorCode.INVALID_TIMESTAMP):
        result.log_start_offset = partition.log.log_start_offset
    if isinstance(error, RefusedRecords):
        result.record_errors = error.record_errors


def fail(
    node: Node,
    call: Call[ProduceRequest],
    response: ProduceResponse,
    result: PartitionResult,
    error: BaseException,
    meter: TopicMeter,
) -> None:
    """Fill in the result of a batch that was not appended, or not acknowledged."""
    result.error_code = error.code if isinstance(error, KafkaError) else ErrorCode.UNKNOWN_SERVER_ERROR
    result.error_message = error.message or None if isinstance(error, KafkaError) else None
    result.base_offset = -1
    meter.failed_produces += 1
    node.request_meters.count_error(API_KEY, result.error_code)
    if result.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER and call.version >= produce.LEADER_FROM:
        name_leader(node, call, response, result)


def name_leader(node: Node, call: Call[ProduceRequest], response: ProduceResponse, result: PartitionResult) -> None:
    topic = next(topic for topic in response.topics if any(each is result for each in topic.partitions))
    leader = find_new_leader(node, call.client, topic.name, topic.topic_id, result.index)
    if leader is None or leader.broker_id == node.broker_id:  # this broker was replaced, and does not know by whom
        return
    result.current_leader_id, result.current_leader_epoch = leader.broker_id, leader.epoch
    if leader.endpoint is not None and leader.endpoint not in response.node_endpoints:
        response.node_endpoints = (*response.node_endpoints, leader.endpoint)


def finish(call: Call[ProduceRequest], response: ProduceResponse) -> ProduceResponse | None:
    if call.body.acks == 0:
        failed = [partition for topic in response.topics for partition in topic.partitions if partition.error_code]
        if failed:
            # A producer with acks=0 gets no answer. Closing its connection is the only way to let it know: it connects
            # again and asks for metadata.
            raise CloseConnection(f"acks=0 and {ErrorCode(failed[0].error_code).name}")
        return None
    return response


def build_error_response(call: Call[ProduceRequest], code: ErrorCode, message: str) -> ProduceResponse:
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


CODEC = (produce.read_request, produce.write_response, build_error_response)
