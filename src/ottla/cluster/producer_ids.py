"""Producer ids, unique in the cluster: a broker reserves a block of them in the metadata and uses it from memory."""

from ottla.cluster.metadata import Metadata

BLOCK = 1000


class ProducerIds:
    def __init__(self, metadata: Metadata, broker_id: int) -> None:
        self._metadata = metadata
        self._broker_id = broker_id
        self._block = iter(range(0))

    async def next(self) -> int:
        while (producer_id := next(self._block, None)) is None:
            self._block = iter(await self._metadata.reserve_producer_ids(self._broker_id, BLOCK))
        return producer_id
