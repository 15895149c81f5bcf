"""Reading from a follower in the consumer's rack (KIP-392): where the leader sends it, and what the follower gives."""

import asyncio
from typing import Any

import pytest

from ottla.broker.broker import Broker
from ottla.config.broker_table import RACK_AWARE_SELECTOR
from ottla.errors import ErrorCode
from ottla.handlers import fetch
from ottla.wire.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionResult
from tests.simulation.loop import simulate
from tests.unit.handlers.three_brokers import (
    OTHERS,
    TOPIC_ID,
    append,
    ask,
    fence,
    follow,
    move_leader,
    shared,
    start,
)

SECOND, THIRD = OTHERS
FETCH = 1


async def start_leader() -> Broker:
    broker = await start()
    broker.node.config = broker.node.config.with_changes({"replica.selector.class": RACK_AWARE_SELECTOR})
    append(shared(broker), 3)
    for other in OTHERS:
        follow(broker, other, 3)
    return broker


def fetch_at(
    broker: Broker, offset: int, rack: str = "", version: int = 17, wait_ms: int = 0, epoch: int = -1, **fields: Any
) -> Any:
    asked = FetchPartition(0, epoch, offset, max_bytes=1000)
    topic = FetchTopic(topic_id=TOPIC_ID, partitions=[asked])
    request = FetchRequest(max_wait_ms=wait_ms, min_bytes=1, session_epoch=-1, topics=[topic], rack_id=rack)
    for name, value in fields.items():
        setattr(request, name, value)
    return fetch.handle(broker.node, ask(FETCH, version, request))


def result_of(response: Any) -> PartitionResult:
    assert isinstance(response, FetchResponse)
    (result,) = response.topics[0].partitions
    return result


def test_the_leader_sends_a_consumer_to_the_follower_in_its_rack() -> None:
    async def scenario() -> None:
        broker = await start_leader()
        result = result_of(fetch_at(broker, 1, f"rack-{THIRD}", wait_ms=60_000))
        assert (result.error_code, result.preferred_read_replica, result.records) == (0, THIRD, None)
        assert (result.high_watermark, result.log_start_offset) == (3, 0)
        for rack in ("", "elsewhere"):
            result = result_of(fetch_at(broker, 1, rack))
            assert result.preferred_read_replica == -1 and result.records is not None
        broker.abort()

    simulate(scenario())


def test_in_a_session_the_consumer_is_told_each_time() -> None:
    async def scenario() -> None:
        broker = await start_leader()
        first = fetch_at(broker, 3, f"rack-{THIRD}", session_epoch=0)
        assert result_of(first).preferred_read_replica == THIRD
        options: dict[str, Any] = {"session_id": first.session_id, "session_epoch": 1, "topics": []}
        again = fetch_at(broker, 3, f"rack-{THIRD}", wait_ms=60_000, **options)
        assert result_of(again).preferred_read_replica == THIRD
        broker.abort()

    simulate(scenario())


def test_without_the_selector_nobody_is_sent_anywhere() -> None:
    async def scenario() -> None:
        broker = await start_leader()
        broker.node.config = broker.node.config.with_changes({"replica.selector.class": None})
        assert result_of(fetch_at(broker, 1, f"rack-{THIRD}")).preferred_read_replica == -1
        broker.abort()

    simulate(scenario())


def test_a_follower_that_is_gone_out_of_sync_or_without_the_offset_is_not_chosen() -> None:
    async def scenario() -> None:
        broker = await start_leader()
        append(shared(broker))
        follow(broker, SECOND, 4)
        assert result_of(fetch_at(broker, 4, f"rack-{SECOND}")).preferred_read_replica == SECOND
        assert result_of(fetch_at(broker, 4, f"rack-{THIRD}")).preferred_read_replica == -1, "it ends at 3"
        follow(broker, SECOND, 4, log_start_offset=2)
        assert result_of(fetch_at(broker, 1, f"rack-{SECOND}")).preferred_read_replica == -1, "it begins at 2"
        await fence(broker, SECOND)
        assert result_of(fetch_at(broker, 3, f"rack-{SECOND}")).preferred_read_replica == -1
        broker.abort()

    simulate(scenario())


def test_among_two_in_the_rack_the_one_with_more_records_is_chosen() -> None:
    async def scenario() -> None:
        broker = await start(rack="west")
        broker.node.config = broker.node.config.with_changes({"replica.selector.class": RACK_AWARE_SELECTOR})
        append(shared(broker), 3)
        follow(broker, SECOND, 2)
        follow(broker, THIRD, 3)
        assert result_of(fetch_at(broker, 1, "west")).preferred_read_replica == THIRD
        follow(broker, SECOND, 3)
        assert result_of(fetch_at(broker, 1, "west")).preferred_read_replica == SECOND, "the smaller id of equals"
        broker.abort()

    simulate(scenario())


def test_a_follower_serves_consumers_up_to_its_own_high_watermark() -> None:
    async def scenario() -> None:
        broker = await start_leader()
        append(shared(broker), 2)
        await move_leader(broker, SECOND)
        partition = shared(broker)
        assert not partition.is_leader and partition.high_watermark.value == 3 and partition.log.end_offset == 5
        result = result_of(fetch_at(broker, 0, epoch=1))
        assert result.error_code == 0 and result.records is not None and result.high_watermark == 3
        assert result_of(fetch_at(broker, 3, epoch=1)).records is None
        assert result_of(fetch_at(broker, 6, epoch=1)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert result_of(fetch_at(broker, 0, epoch=0)).error_code == ErrorCode.FENCED_LEADER_EPOCH
        assert result_of(fetch_at(broker, 0, epoch=2)).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
        waiting = asyncio.ensure_future(fetch_at(broker, 3, epoch=1, wait_ms=60_000))
        await asyncio.sleep(1)
        partition.high_watermark.advance(5)
        assert result_of(await waiting).records is not None
        broker.abort()

    simulate(scenario())


@pytest.mark.parametrize("version", [10, 17])
def test_a_client_that_cannot_be_sent_to_a_follower_cannot_read_from_one(version: int) -> None:
    async def scenario() -> None:
        broker = await start(leader=SECOND)
        options: dict[str, Any] = {}
        if version < 13:
            options["topics"] = [FetchTopic("shared", bytes(16), [FetchPartition(0, max_bytes=1000)])]
        result = result_of(fetch_at(broker, 0, version=version, **options))
        assert result.error_code == (ErrorCode.NOT_LEADER_OR_FOLLOWER if version < 11 else 0)
        broker.abort()

    simulate(scenario())


@pytest.mark.parametrize(
    ("epoch", "error"),
    [
        (-1, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (0, ErrorCode.FENCED_LEADER_EPOCH),
        (1, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (2, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_a_follower_checks_the_epoch_before_it_refuses_a_client(epoch: int, error: ErrorCode) -> None:
    # Version 10 has epochs and cannot be sent to a follower.
    async def scenario() -> None:
        broker = await start()
        await move_leader(broker, SECOND)
        topic = FetchTopic("shared", bytes(16), [FetchPartition(0, epoch, max_bytes=1000)])
        assert result_of(fetch_at(broker, 0, version=10, topics=[topic])).error_code == error
        broker.abort()

    simulate(scenario())


def test_a_replica_without_a_leader_is_not_read() -> None:
    async def scenario() -> None:
        broker = await start(leader=SECOND)
        partition = shared(broker)
        state = partition.state
        assert state is not None
        partition.become(type(state)(state.replicas, (), -1, state.leader_epoch + 1))
        assert result_of(fetch_at(broker, 0)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        broker.abort()

    simulate(scenario())


def test_a_change_of_leader_ends_the_wait_at_a_follower() -> None:
    async def scenario() -> None:
        broker = await start(leader=SECOND)
        waiting = asyncio.ensure_future(fetch_at(broker, 0, epoch=0, wait_ms=60_000))
        await asyncio.sleep(1)
        await move_leader(broker, THIRD)
        result = result_of(await waiting)
        assert result.error_code == ErrorCode.FENCED_LEADER_EPOCH
        assert result.current_leader is not None and tuple(result.current_leader) == (THIRD, 1)
        broker.abort()

    simulate(scenario())
