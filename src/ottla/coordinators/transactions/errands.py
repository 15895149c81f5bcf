"""The errands of the transaction coordinator: writing markers into the partitions of an ended transaction, and getting
a producer id for a transaction that is to be aborted.

Markers are written until every partition of the transaction has its own, whatever it takes: leaders that move, disks
that fail. The errand ends early only with the machine that asked for it, and then the next machine that loads the
partition of `__transaction_state` asks for it again. Markers carry the coordinator's epoch, so a late one cannot undo
what a newer coordinator did. A topic that was deleted meanwhile needs no marker.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any

from ottla.cluster.image import Image
from ottla.cluster.producer_ids import ProducerIds
from ottla.coordinators.machine import Outcome, Turn
from ottla.coordinators.transactions.machine import AbortWithFreshId, TransactionMachine, WriteMarkers
from ottla.coordinators.transactions.peers import MarkerPeers
from ottla.errors import ErrorCode, KafkaError
from ottla.observability.metrics import TransactionMeter
from ottla.replication.transactions import TransactionMarker
from ottla.topic_partition import TopicPartition

logger = logging.getLogger(__name__)

RETRY_DELAY_S = 0.02
RETRY_DELAY_MAX_S = 1.0

AT_ONCE_MAX = 100
"""A transaction with at most so many partitions gets its markers within the turn that ends it. If none of them has to
wait for a disk, the transaction is complete before its producer gets the answer to EndTxn, so the next transaction
never comes too early (CONCURRENT_TRANSACTIONS)."""

NextTurn = Callable[[TransactionMachine, Turn], Outcome]

MarkerProgress = ErrorCode | asyncio.Future[None]
"""How far a marker has come: written (NONE), to be written again after an error, or done when the future is."""


class CoordinatorFenced(Exception):
    """A newer coordinator has written markers of the same producer: this one must not say how its transaction ended."""


class TransactionErrands:
    def __init__(
        self,
        peers: MarkerPeers,
        producer_ids: ProducerIds,
        image: Callable[[], Image],
        meter: TransactionMeter,
    ) -> None:
        self._peers = peers
        self._producer_ids = producer_ids
        self._image = image
        self._meter = meter

    def perform(
        self, errand: WriteMarkers | AbortWithFreshId, coordinator_epoch: int
    ) -> NextTurn | Coroutine[Any, Any, NextTurn | None]:
        """Run an errand of a machine that coordinates in this epoch.

        Returns the follow-up turn if the errand finished at once, otherwise a coroutine that returns it. None: there
        is no follow-up, because a newer coordinator has taken over.
        """
        if isinstance(errand, AbortWithFreshId):
            return self._get_producer_id(errand)
        marker = TransactionMarker(*errand.producer, errand.committed, coordinator_epoch, errand.version)
        partitions = sorted(errand.partitions)
        if len(partitions) > AT_ONCE_MAX:
            return self._write_and_complete(errand, marker, {})
        written = self._write(marker, partitions)
        if any(progress is not ErrorCode.NONE for progress in written.values()):
            return self._write_and_complete(errand, marker, written)
        self._meter.markers.count_duration(0.0)
        return partial(complete, errand)

    async def _get_producer_id(self, errand: AbortWithFreshId) -> NextTurn:
        fresh_id = await self._producer_ids.next()
        return lambda machine, turn: machine.abort_overdue(*errand, turn, fresh_id)

    async def _write_and_complete(
        self, errand: WriteMarkers, marker: TransactionMarker, written: Mapping[TopicPartition, MarkerProgress]
    ) -> NextTurn | None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            await self._write_everywhere(marker, written or self._write(marker, sorted(errand.partitions)))
        except CoordinatorFenced:
            return None
        self._meter.markers.count_duration(loop.time() - began)
        return partial(complete, errand)

    async def _write_everywhere(
        self, marker: TransactionMarker, written: Mapping[TopicPartition, MarkerProgress]
    ) -> None:
        """Return when the marker is in all partitions. CoordinatorFenced if a newer coordinator has written to one."""
        fenced = False
        try:
            async with asyncio.TaskGroup() as group:
                for partition, progress in written.items():
                    if progress is not ErrorCode.NONE:
                        group.create_task(self._write_until_done(marker, partition, progress))
        except* CoordinatorFenced:
            fenced = True
        if fenced:
            raise CoordinatorFenced

    async def _write_until_done(
        self, marker: TransactionMarker, partition: TopicPartition, progress: MarkerProgress
    ) -> None:
        """Retry until one partition has its marker. Partitions do not wait for each other: a leader that hangs must not
        hold up the consumers of the others. CoordinatorFenced if a newer coordinator has written to the partition."""
        delay_s = RETRY_DELAY_S
        while (code := await _finish(partition, marker, progress)) is not ErrorCode.NONE:
            if code is ErrorCode.TRANSACTION_COORDINATOR_FENCED:
                raise CoordinatorFenced
            self._meter.waiting_markers += 1
            try:
                await asyncio.sleep(delay_s)
            finally:
                self._meter.waiting_markers -= 1
            progress, delay_s = self._write(marker, [partition])[partition], min(delay_s * 2, RETRY_DELAY_MAX_S)

    def _write(
        self, marker: TransactionMarker, partitions: list[TopicPartition]
    ) -> dict[TopicPartition, MarkerProgress]:
        """Have the leader of each partition write the marker. A partition that is gone needs none."""
        written: dict[TopicPartition, MarkerProgress] = {}
        by_leader: dict[int, list[TopicPartition]] = {}
        image = self._image()
        for partition in partitions:
            state = image.partition(*partition)
            if state is None:
                written[partition] = ErrorCode.NONE
            else:
                by_leader.setdefault(state.leader, []).append(partition)
        for leader, led in by_leader.items():
            for partition, result in self._peers.write_markers(leader, marker, led).items():
                if result is None:
                    written[partition] = ErrorCode.NONE
                elif isinstance(result, KafkaError):
                    written[partition] = _judge(partition, marker, result)
                else:
                    written[partition] = result
        return written


def complete(errand: WriteMarkers, machine: TransactionMachine, turn: Turn) -> Outcome:
    return machine.complete(errand.transactional_id, errand.producer, turn)


async def _finish(partition: TopicPartition, marker: TransactionMarker, progress: MarkerProgress) -> ErrorCode:
    if isinstance(progress, ErrorCode):
        return progress
    try:
        await progress
    except KafkaError as error:
        return _judge(partition, marker, error)
    return ErrorCode.NONE


def _judge(partition: TopicPartition, marker: TransactionMarker, error: KafkaError) -> ErrorCode:
    """What an error means for the errand: NONE if the partition needs no marker."""
    if error.code is ErrorCode.INVALID_PRODUCER_EPOCH:
        # The partition has seen a newer epoch of this producer: nothing older can be open in it.
        logger.info("%s needs no marker of producer %d: %s", partition, marker.producer_id, error.message)
        return ErrorCode.NONE
    logger.warning("the marker of producer %d cannot be written to %s: %s", marker.producer_id, partition, error)
    return error.code
