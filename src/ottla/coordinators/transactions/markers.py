"""Telling partitions how a transaction ended: the transaction coordinator's errand, and its way back.

An errand is over when the marker is in every partition of the transaction, whatever it takes: leaders that move, disks
that fail. It ends early only with the machine that sent it, and then the next one that loads the partition of
`__transaction_state` sends it again; markers bear the coordinator's epoch, so what is late cannot undo what is newer.
A topic that was deleted meanwhile needs no marker.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any, Protocol

from ottla.cluster.image import Image
from ottla.cluster.producer_ids import ProducerIds
from ottla.cluster.topics import CONSUMER_OFFSETS
from ottla.coordinators.machine import Outcome, Turn
from ottla.coordinators.transactions.machine import AbortWithFreshId, TransactionMachine, WriteMarkers
from ottla.coordinators.transactions.transaction import TopicPartition
from ottla.errors import ErrorCode, KafkaError
from ottla.observability.metrics import TransactionMeter
from ottla.replication.replicas import Replicas
from ottla.replication.transactions import TransactionMarker, append_marker
from ottla.system.clock import Clock

logger = logging.getLogger(__name__)

RETRY_DELAY_S = 0.02
RETRY_DELAY_MAX_S = 1.0

AT_ONCE_MAX = 100
"""Partitions that are told within the turn that ended their transaction. When none of them has to wait for its disk the
transaction is complete before its producer hears of the end, and its next one never comes too early."""

Complete = Callable[[TransactionMachine, Turn], Outcome]
Begun = ErrorCode | asyncio.Future[None]
"""A marker that was appended, or was not; or what to wait for until it is replicated."""


class OffsetsCoordinator(Protocol):
    """Whoever keeps committed offsets: a marker changes the log and the offsets in one step."""

    def end_transaction(self, partition: int, marker: TransactionMarker) -> asyncio.Future[None] | None: ...


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

    def perform(
        self, errand: WriteMarkers | AbortWithFreshId, coordinator_epoch: int
    ) -> Complete | Coroutine[Any, Any, Complete | None]:
        """Run an errand of a machine that coordinates in this epoch; what comes back is its next turn."""
        if isinstance(errand, AbortWithFreshId):
            return self._abort_overdue(errand)
        marker = TransactionMarker(*errand.producer, errand.committed, coordinator_epoch, errand.version)
        places = sorted(errand.partitions)
        begun = self._begin(places, marker) if len(places) <= AT_ONCE_MAX else {}
        if any(begun.get(place) is not ErrorCode.NONE for place in places):
            return self._write_and_complete(errand, marker, begun)
        self._meter.markers.took(0.0)
        return partial(complete, errand)

    async def _abort_overdue(self, errand: AbortWithFreshId) -> Complete:
        fresh_id = await self._producer_ids.next()
        return lambda machine, turn: machine.abort_overdue(*errand, turn, fresh_id)

    async def _write_and_complete(
        self, errand: WriteMarkers, marker: TransactionMarker, begun: Mapping[TopicPartition, Begun]
    ) -> Complete | None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        if not await self._write_everywhere(marker, sorted(errand.partitions), begun):
            return None
        self._meter.markers.took(loop.time() - began)
        return partial(complete, errand)

    async def _write_everywhere(
        self, marker: TransactionMarker, places: list[TopicPartition], begun: Mapping[TopicPartition, Begun]
    ) -> bool:
        """Returns when the marker is in all of them. False if a newer coordinator was here: this one has no say."""
        delay_s = RETRY_DELAY_S
        while True:
            begun = begun or self._begin(places, marker)
            codes = await asyncio.gather(*(self._end(place, marker, begun[place]) for place in places))
            if ErrorCode.TRANSACTION_COORDINATOR_FENCED in codes:
                return False
            places = [place for place, code in zip(places, codes, strict=True) if code]
            if not places:
                return True
            self._meter.waiting_markers += len(places)
            try:
                await asyncio.sleep(delay_s)
            finally:
                self._meter.waiting_markers -= len(places)
            begun, delay_s = {}, min(delay_s * 2, RETRY_DELAY_MAX_S)

    def _begin(self, places: list[TopicPartition], marker: TransactionMarker) -> dict[TopicPartition, Begun]:
        """Append the marker to each of them."""
        begun: dict[TopicPartition, Begun] = {}
        for place in places:
            begun[place] = ErrorCode.NONE
            if self._image().partition(*place) is not None:
                try:
                    replicated = self._append(place, marker)
                except KafkaError as error:
                    begun[place] = _settled(place, marker, error)
                    continue
                if replicated is not None:
                    replicated.add_done_callback(_look_at)
                    begun[place] = replicated
        return begun

    async def _end(self, place: TopicPartition, marker: TransactionMarker, begun: Begun) -> ErrorCode:
        if isinstance(begun, ErrorCode):
            return begun
        try:
            await begun
        except KafkaError as error:
            return _settled(place, marker, error)
        return ErrorCode.NONE

    def _append(self, place: TopicPartition, marker: TransactionMarker) -> asyncio.Future[None] | None:
        topic, index = place
        if topic == CONSUMER_OFFSETS:
            return self._groups.end_transaction(index, marker)
        return append_marker(self._replicas.get(topic, index), marker, self._clock.now_ms())

    async def write(self, place: TopicPartition, marker: TransactionMarker) -> None:
        """One partition of this broker. KafkaError as `append_marker`."""
        replicated = self._append(place, marker)
        if replicated is not None:
            await replicated


def complete(errand: WriteMarkers, machine: TransactionMachine, turn: Turn) -> Outcome:
    return machine.complete(errand.transactional_id, errand.producer, turn)


def _look_at(replicated: asyncio.Future[None]) -> None:
    """Its error is no surprise when the coordinator is gone, and with it the one who would have waited."""
    if not replicated.cancelled():
        replicated.exception()


def _settled(place: TopicPartition, marker: TransactionMarker, error: KafkaError) -> ErrorCode:
    """What an error means for the errand: none if the partition needs no marker."""
    topic, index = place
    if error.code is ErrorCode.INVALID_PRODUCER_EPOCH:
        # The partition has seen a newer epoch of this producer: nothing older can be open in it.
        logger.info("%s-%d has no need of a marker: %s", topic, index, error.message)
        return ErrorCode.NONE
    logger.warning("%s-%d takes no marker of producer %d: %s", topic, index, marker.producer_id, error)
    return error.code
