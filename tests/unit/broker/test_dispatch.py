"""Dispatch of a request when the server stops before the answer."""

import asyncio
import gc
from random import Random

from ottla.broker.call import Client
from ottla.broker.dispatch import Dispatch
from ottla.broker.handler_table import HandlerTable
from ottla.wire.frames import encode_request
from ottla.wire.messages.init_producer_id import InitProducerIdRequest
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
