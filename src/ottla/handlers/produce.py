"""Produce: append record batches to partitions.

Versions: 5 log start offset; 8 record errors (KIP-467); 9 flexible; 10 new leader in the answer (KIP-951);
12 transactions v2 (KIP-890); 13 topics by id (KIP-516).
A plain function: batches are checked and appended before the next request of the connection is looked at, so order is
never in doubt. What comes back is the answer, or a future if acknowledging has to wait (in-sync replicas, fsync).
"""

import asyncio
from functools import partial
from typing import Any

from ottla import batch
from ottla.call import Answer, Call, CloseConnection
from ottla.cluster.topics import is_internal
from ottla.errors import ErrorCode, KafkaError
from ottla.metrics import TopicMeter
from ottla.node import Node
from ottla.replication.partition import Partition
from ottla.storage.log import Appended
from ottla.wire import produce
from ottla.wire.produce import PartitionData, PartitionResult, ProduceRequest, ProduceResponse, TopicData, TopicResult

VERSIONS = produce.VERSIONS

Waiting = tuple[PartitionResult, asyncio.Future[None], TopicMeter]


def handle(node: Node, call: Call[ProduceRequest]) -> ProduceResponse | asyncio.Future[ProduceResponse | None] | None:
    request = call.body
    if request.acks not in (-1, 0, 1):
        raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS)
    waiting: list[Waiting] = []
    response = ProduceResponse([append_topic(node, call, topic, waiting) for topic in request.topics])
    if waiting:
        return acknowledge(call, response, waiting)
    return finish(node, call, response)


def append_topic(node: Node, call: Call[ProduceRequest], topic: TopicData, waiting: list[Waiting]) -> TopicResult:
    acks = call.body.acks
    result = TopicResult(topic.name, topic.topic_id)
    for data in topic.partitions:
        meter = node.replicas.meters.elsewhere
        try:
            partition = find(node, call, topic, data.index)
            meter = partition.meter
            meter.produces += 1
            appended = append(node, partition, data, acks)
        except KafkaError as error:
            meter.failed_produces += 1
            result.partitions.append(
                PartitionResult(data.index, error.code, error_message=error.message or None)
            )
            continue
        outcome = PartitionResult(
            data.index,
            base_offset=appended.base_offset,
            log_append_time_ms=appended.log_append_time,
            log_start_offset=partition.log.log_start_offset,
        )
        result.partitions.append(outcome)
        if acks and (future := partition.acknowledged(appended, acks)) is not None:
            waiting.append((outcome, future, meter))
    return result


def find(node: Node, call: Call[ProduceRequest], topic: TopicData, index: int) -> Partition:
    if call.version >= produce.TOPIC_ID_FROM:
        partition = node.replicas.get_by_id(topic.topic_id, index)
    else:
        partition = node.replicas.get(topic.name, index)
    if is_internal(partition.topic):
        message = f"{partition.topic} is internal: only the broker writes to it"
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, message)
    return partition


def append(node: Node, partition: Partition, data: PartitionData, acks: int) -> Appended:
    if data.records is None:
        raise KafkaError(ErrorCode.INVALID_RECORD, "no records")
    header = batch.check_client_batch(data.records)
    if header.is_transactional:
        raise KafkaError(ErrorCode.INVALID_TXN_STATE, "this broker has no open transaction of that producer")
    return partition.append(data.records, header, node.clock.now_ms(), acks)


def acknowledge(
    call: Call[ProduceRequest], response: ProduceResponse, waiting: list[Waiting]
) -> asyncio.Future[ProduceResponse | None]:
    """The answer once every append is acknowledged, or has failed, or the client's time-out is over."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[ProduceResponse | None] = loop.create_future()
    left = len(waiting)

    def settle(result: PartitionResult, meter: TopicMeter, future: asyncio.Future[None]) -> None:
        nonlocal left
        left -= 1
        if answer.done():
            return
        error = None if future.cancelled() else future.exception()
        if error is not None:
            fail(result, error, meter)
        if not left:
            timer.cancel()
            answer.set_result(response)

    def expire() -> None:
        if answer.done():
            return
        for result, future, meter in waiting:
            if not future.done():
                fail(result, KafkaError(ErrorCode.REQUEST_TIMED_OUT), meter)
        answer.set_result(response)

    timer = loop.call_later(max(call.body.timeout_ms, 0) / 1000, expire)
    for result, future, meter in waiting:
        future.add_done_callback(partial(settle, result, meter))
    return answer


def fail(result: PartitionResult, error: BaseException, meter: TopicMeter) -> None:
    meter.failed_produces += 1
    result.error_code = error.code if isinstance(error, KafkaError) else ErrorCode.UNKNOWN_SERVER_ERROR
    result.error_message = error.message or None if isinstance(error, KafkaError) else None
    result.base_offset = -1


def finish(node: Node, call: Call[ProduceRequest], response: ProduceResponse) -> ProduceResponse | None:
    failed = [partition for topic in response.topics for partition in topic.partitions if partition.error_code]
    if call.body.acks == 0:
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


def write(version: int, response: Any, header: bytes) -> Answer:
    return [produce.write_response(version, response, header)]


CODEC = (produce.read_request, write, refusal)
