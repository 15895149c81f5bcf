"""Telling partitions how a transaction ended: the transaction coordinator's errand, and its way back.

An errand is over when the marker is in every partition of the transaction, whatever it takes: leaders that move, disks
that fail. It ends early only with the machine that sent it, and then the next one that loads the partition of
`__transaction_state` sends it again; markers bear the coordinator's epoch, so what is late cannot undo what is newer.
A topic that was deleted meanwhile needs no marker.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from ottla.clock import Clock
from ottla.cluster.image import Image
from ottla.cluster.producer_ids import ProducerIds
from ottla.cluster.topics import CONSUMER_OFFSETS
from ottla.coordinators.machine import Outcome, Turn
from ottla.coordinators.transaction import TopicPartition
from ottla.coordinators.transactions import AbortWithFreshId, Transactions, WriteMarkers
from ottla.errors import ErrorCode, KafkaError
from ottla.metrics import TransactionMeter
from ottla.replication.replicas import Replicas
from ottla.replication.transactions import TransactionMarker, append_marker

logger = logging.getLogger(__name__)

RETRY_DELAY_S = 0.02
RETRY_DELAY_MAX_S = 1.0


class OffsetsCoordinator(Protocol):
    """Whoever keeps committed offsets: a marker changes the log and the offsets in one step."""

    async def end_transaction(self, partition: int, marker: TransactionMarker) -> None: ...


class Markers:
    def __init__(
        self,
        replicas: Replicas,
        groups: OffsetsCoordinator,
        producer_ids: ProducerIds,
        clock: Clock,
        image: Callable[[], Image],
        meter: TransactionMeter,
    ) -> None:
        self._replicas = replicas
        self._groups = groups
        self._producer_ids = producer_ids
        self._clock = clock
        self._image = image
        self._meter = meter

    async def perform(
        self, errand: WriteMarkers | AbortWithFreshId, coordinator_epoch: int
    ) -> Callable[[Transactions, Turn], Outcome] | None:
        """Run an errand of a machine that coordinates in this epoch; what comes back is its next turn."""
        if isinstance(errand, AbortWithFreshId):
            fresh_id = await self._producer_ids.next()
            return lambda machine, turn: machine.abort_overdue(*errand, turn, fresh_id)
        marker = TransactionMarker(*errand.producer, errand.committed, coordinator_epoch, errand.version)
        loop = asyncio.get_running_loop()
        began = loop.time()
        if not await self.write_everywhere(marker, sorted(errand.partitions)):
            return None
        self._meter.markers.took(loop.time() - began)
        return lambda machine, turn: machine.complete(errand.transactional_id, errand.producer, turn)

    async def write_everywhere(self, marker: TransactionMarker, partitions: list[TopicPartition]) -> bool:
        """Returns when the marker is in all of them. False if a newer coordinator was here: this one has no say."""
        left, delay_s = partitions, RETRY_DELAY_S
        while True:
            outcomes = await asyncio.gather(*(self._write_or_skip(place, marker) for place in left))
            if ErrorCode.TRANSACTION_COORDINATOR_FENCED in outcomes:
                return False
            left = [place for place, code in zip(left, outcomes, strict=True) if code]
            if not left:
                return True
            self._meter.waiting_markers += len(left)
            try:
                await asyncio.sleep(delay_s)
            finally:
                self._meter.waiting_markers -= len(left)
            delay_s = min(delay_s * 2, RETRY_DELAY_MAX_S)

    async def _write_or_skip(self, place: TopicPartition, marker: TransactionMarker) -> ErrorCode:
        topic, index = place
        if self._image().partition(topic, index) is None:
            return ErrorCode.NONE
        try:
            await self.write(place, marker)
        except KafkaError as error:
            if error.code is ErrorCode.INVALID_PRODUCER_EPOCH:
                # The partition has seen a newer epoch of this producer: nothing older can be open in it.
                logger.info("%s-%d has no need of a marker: %s", topic, index, error.message)
                return ErrorCode.NONE
            logger.warning("%s-%d takes no marker of producer %d: %s", topic, index, marker.producer_id, error)
            return error.code
        return ErrorCode.NONE

    async def write(self, place: TopicPartition, marker: TransactionMarker) -> None:
        """One partition of this broker. KafkaError as `append_marker`."""
        topic, index = place
        if topic == CONSUMER_OFFSETS:
            await self._groups.end_transaction(index, marker)
            return
        replicated = append_marker(self._replicas.get(topic, index), marker, self._clock.now_ms())
        if replicated is not None:
            await replicated
