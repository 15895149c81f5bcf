"""Fences brokers whose processes are gone, instead of waiting until their sessions time out.

A connection to such a broker is reset, and the next one refused. Fencing a broker that lives after all does no harm: it
registers again.
"""

import asyncio
import logging
from functools import partial

from ottla.cluster.metadata import Metadata
from ottla.cluster.metadata_log import LogUnavailable
from ottla.cluster.registration import fence_broker
from ottla.errors import KafkaError

logger = logging.getLogger(__name__)

PAUSE_S = 0.1
"""Brokers whose processes seem to be gone are fenced at most once in this time."""

TIMEOUT_S = 5.0


class Fencing:
    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata
        self._gone: dict[int, int] = {}
        """Brokers whose processes seem to be gone, with the epochs of their registrations."""
        self._noted = asyncio.Event()

    def note_gone(self, broker_id: int, broker_epoch: int) -> None:
        """The process of a broker that registered at this epoch seems to be gone."""
        self._gone[broker_id] = broker_epoch
        self._noted.set()

    async def run(self) -> None:
        """A job that does not end: fence the brokers that are gone."""
        while True:
            await self._noted.wait()
            self._noted.clear()
            gone, self._gone = self._gone, {}
            for broker_id, epoch in sorted(gone.items()):
                broker = self._metadata.image.broker(broker_id)
                if broker is not None and broker.epoch == epoch and not broker.fenced:
                    log = logger.info if broker.shutting_down else logger.warning
                    log("broker %d with epoch %d is gone and gets fenced", broker_id, epoch)
                    await self.fence(broker_id, epoch, TIMEOUT_S)
            await asyncio.sleep(PAUSE_S)

    async def fence(self, broker_id: int, broker_epoch: int, timeout_s: float) -> None:
        """Fence a broker. If that fails, the log says so: its session ends sooner or later."""
        try:
            await self._metadata.change(
                partial(fence_broker, broker_id=broker_id, broker_epoch=broker_epoch), timeout_s
            )
        except (KafkaError, LogUnavailable) as error:
            logger.info("broker %d was not fenced: %s", broker_id, error)
