"""Replicas whose disk has no room: others lead them, and acknowledgements do not wait for them.

Apache Kafka takes the whole data directory offline until the broker is restarted. Here only replicas give way to which
a write was refused, and only while another in-sync replica can lead: a leader leaves the leadership and the ISR, a
follower the ISR. The replica is still served and copied. When there is room again it catches up, joins the ISR, and may
lead. If nobody else is in sync, it leads on: reads go on, and writes are refused until there is room.
"""

import asyncio
import logging
from collections.abc import Callable

from ottla.cluster.isr_changes import leave_isr
from ottla.cluster.metadata import Metadata
from ottla.errors import KafkaError
from ottla.topic_partition import TopicIdPartition

logger = logging.getLogger(__name__)

AT_ONCE_MAX = 1000
"""Partitions in one entry of the metadata log, which is limited in bytes."""

PAUSE_S = 0.05
"""Pause between two entries, so that partitions share one whose writes are refused one after the other."""

LEADS_ON_S = 30.0
"""How long a leader leads on that has given way before: if the disks of all replicas are full, leadership must not go
round and round."""

TIMEOUT_S = 5.0


class FullDisks:
    def __init__(self, metadata: Metadata, broker_id: int, broker_epoch: Callable[[], int]) -> None:
        self._metadata = metadata
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._refused: dict[TopicIdPartition, None] = {}
        """Partitions to which a write was refused."""
        self._gave_way_at: dict[TopicIdPartition, float] = {}
        """When this broker gave up the leadership of partitions because of a full disk."""
        self._noted = asyncio.Event()
        self._now = asyncio.get_running_loop().time

    def note(self, topic_id: bytes, index: int) -> None:
        """A write to this replica was refused because its disk is full."""
        state = self._metadata.image.partition_by_id(topic_id, index)
        if state is not None and len(state.isr) > 1 and self._broker_id in state.isr:
            self._refused[topic_id, index] = None
            self._noted.set()

    async def run(self) -> None:
        """A job that does not end: let replicas give way whenever a write was refused."""
        while True:
            await self._noted.wait()
            await self._give_way()
            await asyncio.sleep(PAUSE_S)

    async def _give_way(self) -> None:
        now, image = self._now(), self._metadata.image
        self._gave_way_at = {key: at for key, at in self._gave_way_at.items() if now - at < LEADS_ON_S}
        chosen = list(self._refused)[:AT_ONCE_MAX]
        for key in chosen:
            del self._refused[key]
        if not self._refused:
            self._noted.clear()
        states = {key: image.partition_by_id(*key) for key in chosen}
        led = [key for key, state in states.items() if state is not None and state.leader == self._broker_id]
        held = [key for key in led if key in self._gave_way_at]
        giving = [key for key in chosen if key not in held]
        if not giving:
            return
        broker_id, epoch = self._broker_id, self._broker_epoch()
        try:
            count = await self._metadata.change(lambda now: leave_isr(now, broker_id, epoch, giving), TIMEOUT_S)
        except KafkaError as error:  # the next write that is refused leads here again
            logger.info("%d replicas on a full disk did not leave their ISRs: %s", len(giving), error)
            return
        if count:
            logger.warning("the disk is full: %d replicas left their ISRs, and others lead them", count)
            self._gave_way_at |= dict.fromkeys((key for key in led if key not in held), now)
