"""Produce with acks=all to a partition with three replicas: what it waits for, and how the wait may end."""

import asyncio
import time
from dataclasses import replace

from ottla.cluster.changes import ConfigResource, SetConfig
from ottla.errors import ErrorCode
from ottla.handlers import produce
from ottla.wire.produce import ProduceResponse
from tests.simulation.loop import simulate
from tests.unit.handlers.test_new_leader import produce_to
from tests.unit.handlers.three_brokers import OTHERS, TOPIC, ask, change, fence, follow, shared, start


async def answer_of(waiting: object) -> int:
    assert isinstance(waiting, asyncio.Future)
    response = await waiting
    assert isinstance(response, ProduceResponse)
    return response.topics[0].partitions[0].error_code


def test_acks_all_waits_for_every_member_of_the_isr() -> None:
    async def scenario() -> None:
        broker = await start()
        waiting = produce.handle(broker.node, ask(0, 10, produce_to(10, acks=-1)))
        follow(broker, OTHERS[0], 1)
        assert isinstance(waiting, asyncio.Future) and not waiting.done()
        follow(broker, OTHERS[1], 1)
        assert await answer_of(waiting) == 0
        assert isinstance(produce.handle(broker.node, ask(0, 10, produce_to(10, acks=1))), ProduceResponse)
        broker.abort()

    simulate(scenario())


def test_a_follower_that_does_not_come_ends_in_a_time_out() -> None:
    async def scenario() -> None:
        broker = await start()
        loop = asyncio.get_running_loop()
        began = loop.time()
        waiting = produce.handle(broker.node, ask(0, 10, produce_to(10, acks=-1, timeout_ms=3000)))
        assert await answer_of(waiting) == ErrorCode.REQUEST_TIMED_OUT and 3 <= loop.time() - began < 4
        broker.abort()

    simulate(scenario())


def test_a_member_that_leaves_the_isr_is_waited_for_no_more() -> None:
    async def scenario() -> None:
        broker = await start()
        waiting = produce.handle(broker.node, ask(0, 10, produce_to(10, acks=-1)))
        follow(broker, OTHERS[0], 1)
        await fence(broker, OTHERS[1])
        assert await answer_of(waiting) == 0
        broker.abort()

    simulate(scenario())


def test_too_small_an_isr_refuses_before_the_append_and_tells_those_who_wait() -> None:
    async def scenario() -> None:
        broker = await start()
        await change(broker, SetConfig(ConfigResource.TOPIC, TOPIC, "min.insync.replicas", "3"))
        waiting = produce.handle(broker.node, ask(0, 10, produce_to(10, acks=-1)))
        for other in OTHERS[:1]:
            follow(broker, other, 1)
        await fence(broker, OTHERS[1])
        assert await answer_of(waiting) == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        refused = produce.handle(broker.node, ask(0, 10, produce_to(10, acks=-1)))
        assert isinstance(refused, ProduceResponse)
        assert refused.topics[0].partitions[0].error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        partition = broker.node.replicas.get(TOPIC, 0)
        assert (partition.log.end_offset, partition.high_watermark.value) == (1, 0)
        broker.abort()

    simulate(scenario())


def test_a_lost_leadership_is_no_acknowledgement_if_the_time_out_ends_in_the_same_turn() -> None:
    # A process that was paused finds both at once: the wait has failed, and nobody has taken note of it yet.
    async def scenario() -> None:
        broker = await start()
        partition, loop = shared(broker), asyncio.get_running_loop()
        assert partition.state is not None
        resigned = replace(partition.state, leader=-1)
        loop.call_later(0.001, partition.become, resigned)
        waiting = produce.handle(broker.node, ask(0, 10, produce_to(10, acks=-1, timeout_ms=2)))
        time.sleep(0.01)  # both timers are due when the event loop goes on
        assert await answer_of(waiting) == ErrorCode.NOT_LEADER_OR_FOLLOWER
        broker.abort()

    asyncio.run(scenario())
