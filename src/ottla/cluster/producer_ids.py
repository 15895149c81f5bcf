"""Producer ids, unique in the cluster: a broker reserves a block of them in the metadata and uses it from memory."""

from collections.abc import Callable

from ottla.cluster.metadata import Metadata
from ottla.errors import ErrorCode, KafkaError

BLOCK = 1000


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
            try:
                reserved = await self._metadata.reserve_producer_ids(self._broker_id, self._broker_epoch(), BLOCK)
            except KafkaError as error:
                raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"no producer id: {error}") from None
            self._block = iter(reserved)
        return producer_id
