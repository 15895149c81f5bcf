"""Producer ids, unique in the cluster: a broker reserves blocks of them in the metadata and uses them from memory.

A broker of a cluster keeps a block in reserve, so that producers can begin while the store is away.
"""

from collections.abc import Callable
from contextlib import suppress
from functools import partial

from ottla.cluster.changes import ReserveProducerIds
from ottla.cluster.decision import Decision
from ottla.cluster.image import Image
from ottla.cluster.metadata import Metadata
from ottla.cluster.registration import require_current
from ottla.errors import ErrorCode, KafkaError

BLOCK = 1000
"""Producer ids that a broker reserves at once."""

RESERVATION_TIMEOUT_S = 30.0


class ProducerIds:
    def __init__(self, metadata: Metadata, broker_id: int, broker_epoch: Callable[[], int]) -> None:
        self._metadata = metadata
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._block = range(0)
        self._spare = range(0)
        """The block that comes after the one in use."""

    async def next(self) -> int:
        """An unused producer id. COORDINATOR_LOAD_IN_PROGRESS, as in Kafka, if no block can be reserved now: producers
        retry after it."""
        while not self._block:
            if self._spare:
                self._block, self._spare = self._spare, range(0)
                break
            try:
                self._spare = await self._reserve_block()
            except KafkaError as error:
                raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"no producer id: {error}") from None
        producer_id, self._block = self._block[0], self._block[1:]
        return producer_id

    async def refill(self) -> None:
        """Reserve a spare block, if there is none. Nothing happens if that is impossible now."""
        if not self._spare:
            with suppress(KafkaError):
                self._spare = await self._reserve_block()

    async def _reserve_block(self) -> range:
        decide = partial(
            reserve_producer_ids, broker_id=self._broker_id, broker_epoch=self._broker_epoch(), count=BLOCK
        )
        return await self._metadata.change(decide, RESERVATION_TIMEOUT_S)


def reserve_producer_ids(image: Image, broker_id: int, broker_epoch: int, count: int) -> Decision[range]:
    """Reserve producer ids for a broker. No other producer will ever get them."""
    require_current(image, broker_id, broker_epoch)
    first = image.next_producer_id
    return Decision([ReserveProducerIds(broker_id, broker_epoch, first, count)], range(first, first + count))
