"""Dispatch of requests that are not answered at once."""

import asyncio
import gc
from random import Random

import pytest

from ottla.broker.call import Client
from ottla.broker.dispatch import Dispatch
from ottla.broker.handler_table import HandlerTable
from ottla.wire.frames import encode_request
from ottla.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tests.simulation.disk import SimulatedDisk
from tests.unit.handlers.one_broker import broker_on


def test_a_request_that_is_cancelled_before_it_begins_leaves_nothing_behind() -> None:
    # A stopping server cancels the tasks of its requests. A task that has not begun holds a coroutine that nobody
    # awaits.
    async def scenario() -> None:
        broker = broker_on(SimulatedDisk(Random(1)))
        await broker.start()
        dispatch = Dispatch(broker.node, HandlerTable())
        frame = bytearray(encode_request(InitProducerIdRequest(), 4, 1, None)[4:])
        answer = dispatch(Client(1, "PLAINTEXT", ("", 0), ("", 0)), frame)
        assert asyncio.iscoroutine(answer)
        task = asyncio.create_task(answer)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        await broker.stop(1)

    asyncio.run(scenario())
    gc.collect()


@pytest.mark.parametrize("is_gone", [False, True])
def test_a_request_waits_until_its_future_is_done(is_gone: bool) -> None:
    # Also if the client is gone before.
    async def scenario() -> None:
        broker = broker_on(SimulatedDisk(Random(1)))
        await broker.start()
        response: asyncio.Future[InitProducerIdResponse] = asyncio.get_running_loop().create_future()
        dispatch = Dispatch(broker.node, HandlerTable(lambda handler: handler._replace(handle=lambda *_: response)))
        frame = bytearray(encode_request(InitProducerIdRequest(), 4, 1, None)[4:])
        answer = dispatch(Client(1, "PLAINTEXT", ("", 0), ("", 0)), frame)
        assert isinstance(answer, asyncio.Future)
        (meter,) = broker.node.request_meters.by_key.values()
        assert meter.waits.waiting == 1
        if is_gone:
            answer.cancel()
        response.set_result(InitProducerIdResponse())
        await asyncio.wait([answer])
        await asyncio.sleep(0)
        assert meter.waits.waiting == 0
        await broker.stop(1)

    asyncio.run(scenario())
