"""Producer ids, unique in the cluster: a broker reserves a block of them in the metadata and uses it from memory."""

from collections.abc import Callable
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
        self._block = iter(range(0))

    async def next(self) -> int:
        """An unused producer id. COORDINATOR_LOAD_IN_PROGRESS, as in Kafka, if no block can be reserved now: producers
        retry after it."""
        while (producer_id := next(self._block, None)) is None:
            reserve = partial(
                reserve_producer_ids, broker_id=self._broker_id, broker_epoch=self._broker_epoch(), count=BLOCK
            )
            try:
                reserved = await self._metadata.change(reserve, RESERVATION_TIMEOUT_S)
            except KafkaError as error:
                raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"no producer id: {error}") from None
            self._block = iter(reserved)
        return producer_id


def reserve_producer_ids(image: Image, broker_id: int, broker_epoch: int, count: int) -> Decision[range]:
    """Reserve producer ids for a broker. No other producer will ever get them."""
    require_current(image, broker_id, broker_epoch)
    first = image.next_producer_id
    return Decision([ReserveProducerIds(broker_id, broker_epoch, first, count)], range(first, first + count))
