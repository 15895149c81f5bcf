"""The wall clock of a broker is set while it runs: nothing is wiped, nobody is forgotten, age is still told."""

import asyncio
from random import Random

import pytest

from ottla.broker.broker import Broker
from ottla.config import BrokerConfig
from ottla.records.batch import check, encode
from tests.unit.handlers.one_broker import listen, offload
from tests.unit.replication.three_directories import TOPIC, create
from tests.unit.storage.logs import NOW, new_disk

HOUR_MS = 3_600_000
TEN_YEARS_MS = 10 * 365 * 24 * HOUR_MS


class WrongClock:
    def __init__(self) -> None:
        self.now = NOW

    def now_ms(self) -> int:
        return self.now


@pytest.mark.parametrize("jump_ms", [TEN_YEARS_MS, -HOUR_MS], ids=["ten years forward", "an hour back"])
def test_a_clock_that_jumps_wipes_nothing(jump_ms: int) -> None:
    # Records of a second ago, of a topic that keeps an hour, and the producer that wrote them; before the jump, after
    # it, and when somebody has put the clock right.
    async def run() -> None:
        clock = WrongClock()
        broker = Broker(
            BrokerConfig.of({}), "/data", disk=new_disk(), clock=clock, random=Random(1), offload=offload, listen=listen
        )
        await broker.start()
        await create(broker, TOPIC, 1, retention_ms=str(HOUR_MS))
        upkeep = broker.node.replication.upkeep
        partition = broker.node.replicas.get(TOPIC, 0)
        batch = bytearray(encode([(None, b"value", (), NOW - 1000)], producer_id=7, producer_epoch=0, base_sequence=0))
        partition.append(memoryview(batch), check(batch), NOW, 1)
        for now in (NOW, NOW + jump_ms, NOW + jump_ms + 1000, NOW + 2000):
            clock.now = now
            await upkeep.expire_segments()
            await upkeep.expire_producers()
            assert (partition.log.log_start_offset, partition.log.end_offset) == (0, 1)
            assert 7 in partition.log.producers.producers
        broker.abort()

    asyncio.run(run())
