"""Changes of the ISR that leaders on this broker want, on their way into the metadata.

All partitions share one append in flight: what they want meanwhile goes out together with the next. A restarted broker
that catches up with thousands of partitions costs a few entries of the metadata log.

A proposal ends when its outcome is known, however long that takes: while the store cannot be reached, an entry may or
may not be in the log. Until then the proposed followers count for the high watermark (see `in_sync`).
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from ottla.cluster.changes import BeginShutdown, Change, FenceBroker, RegisterBroker, UnfenceBroker
from ottla.cluster.image import Image
from ottla.cluster.isr_changes import IsrChange, change_isr
from ottla.cluster.metadata import Metadata
from ottla.config import BrokerConfig
from ottla.errors import ErrorCode, KafkaError
from ottla.replication.full_disks import FullDisks
from ottla.replication.partition import Partition

logger = logging.getLogger(__name__)

PROPOSALS_MAX = 1000
"""Partitions in one entry, so that an entry stays far below its limit in bytes."""

BACKOFF_S = 0.1
BACKOFF_S_MAX = 2.0
"""Shortest and longest pause after refused proposals, before they are made again if they are still wanted."""

OUTCOME_UNKNOWN = (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.BROKER_NOT_AVAILABLE)
"""Errors after which an entry may be in the log nevertheless. The second is that of a broker that stops."""

PARTITIONS_PER_STEP = 500
"""Partitions that the search for lagging followers looks at before the event loop can serve other work."""


MAY_JOIN_CHANGES = (RegisterBroker, FenceBroker, UnfenceBroker, BeginShutdown)
"""Changes after which a broker may join an ISR that could not before, or the other way round."""


class Proposal(NamedTuple):
    partition: Partition
    before: tuple[int, ...]
    change: IsrChange

    @property
    def isr(self) -> list[int]:
        return [broker for broker, _ in self.change.isr]


class IsrProposals:
    def __init__(
        self,
        metadata: Metadata,
        broker_id: int,
        broker_epoch: Callable[[], int],
        settings: Callable[[], BrokerConfig],
    ) -> None:
        """`broker_epoch`: the epoch of this broker's latest registration."""
        self.expansions = 0
        self.shrinks = 0
        """ISR changes in the metadata that added or removed a follower. One change may do both."""
        self.failures = 0
        """Proposals that were refused."""
        self._metadata = metadata
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._settings = settings
        self._wanted: dict[Partition, None] = {}
        self._incomplete: dict[Partition, None] = {}
        """Partitions with a follower outside the ISR."""
        self._task: asyncio.Task[None] | None = None
        self._is_stopped = False
        self.full_disks = FullDisks(metadata, broker_id, broker_epoch)
        self.now = asyncio.get_running_loop().time
        metadata.on_change(self._handle_image_change)

    # What partitions ask

    @property
    def lag_s_max(self) -> float:
        return self._settings().replica_lag_time_max_ms / 1000

    def may_join(self, broker_id: int, broker_epoch: int) -> bool:
        broker = self._metadata.image.broker(broker_id)
        return broker is not None and broker.epoch == broker_epoch and broker.serves

    def add(self, partition: Partition) -> None:
        """The partition wants another ISR. What exactly is decided when it is sent."""
        self._wanted[partition] = None
        if self._task is None and not self._is_stopped:
            self._task = asyncio.get_running_loop().create_task(self._run(), name="ISR proposals")

    def note_incomplete(self, partition: Partition) -> None:
        self._incomplete[partition] = None

    def note_full_disk(self, topic_id: bytes, index: int) -> None:
        self.full_disks.note(topic_id, index)

    def _handle_image_change(self, before: Image, after: Image, changes: Sequence[Change]) -> None:
        """Look again at partitions with a follower outside the ISR, when a broker may join that could not before, or no
        longer may although the high watermark waits for it.

        In a partition without new records nothing else would lead to another look.
        """
        if any(isinstance(change, MAY_JOIN_CHANGES) for change in changes) or after.version != before.version + 1:
            for partition in list(self._incomplete):
                state = partition.state
                if partition.in_sync is None or state is None or len(state.isr) == len(state.replicas):
                    del self._incomplete[partition]
                elif partition.wants_other_isr():
                    self.add(partition)

    async def find_lagging(self, partitions: Iterable[Partition]) -> None:
        """A job: propose to remove followers that have not caught up for replica.lag.time.max.ms.

        It also finds followers that could join, in case that nothing else has led to a proposal.
        """
        for number, partition in enumerate(list(partitions), 1):
            if partition.wants_other_isr():
                self.add(partition)
            if number % PARTITIONS_PER_STEP == 0:
                await asyncio.sleep(0)

    async def stop(self) -> None:
        """Propose nothing more, and wait until nothing is being sent."""
        task = self._task
        self.cancel()
        if task is not None:
            await asyncio.gather(task, return_exceptions=True)

    def cancel(self) -> None:
        """Like `stop`, without waiting."""
        self._is_stopped = True
        if self._task is not None:
            self._task.cancel()

    # Sending

    async def _run(self) -> None:
        pause_s = BACKOFF_S
        try:
            while self._wanted:
                partitions = list(self._wanted)[:PROPOSALS_MAX]
                for partition in partitions:
                    del self._wanted[partition]
                proposals = self._prepare(partitions)
                if not proposals or await self._send(proposals):
                    pause_s = BACKOFF_S
                else:
                    await asyncio.sleep(pause_s)
                    pause_s = min(2 * pause_s, BACKOFF_S_MAX)
        finally:
            self._task = None

    def _prepare(self, partitions: Sequence[Partition]) -> list[Proposal]:
        epochs = {broker.id: broker.epoch for broker in self._metadata.image.all_brokers()}
        epochs[self._broker_id] = self._broker_epoch()
        proposals = []
        for partition in partitions:
            isr, state = partition.propose_isr(epochs), partition.state
            if isr is not None and state is not None:
                change = IsrChange(partition.topic_id, partition.index, state.leader_epoch, state.partition_epoch, isr)
                proposals.append(Proposal(partition, state.isr, change))
        return proposals

    async def _send(self, proposals: Sequence[Proposal]) -> bool:
        """Send the proposals together. Returns whether all of them are in the metadata."""
        broker_id, broker_epoch = self._broker_id, self._broker_epoch()
        changes = [proposal.change for proposal in proposals]
        results: list[KafkaError | None]
        try:
            results = await self._metadata.change(lambda image: change_isr(image, broker_id, broker_epoch, changes))
        except Exception as error:
            if not isinstance(error, KafkaError) or error.code in OUTCOME_UNKNOWN:
                # The proposed followers count on: the entry may be in the log.
                logger.error("outcome of %d ISR changes unknown: %r", len(proposals), error)
                self.failures += len(proposals)
                return False
            results = [error] * len(proposals)  # nothing was appended: this broker was fenced, or registered anew
        for proposal, refusal in zip(proposals, results, strict=True):
            self._finish(proposal, refusal)
        return not any(results)

    def _finish(self, proposal: Proposal, refusal: KafkaError | None) -> None:
        """The outcome is known. After NEW_LEADER_ELECTED the change is in the metadata, and another broker leads."""
        partition = proposal.partition
        if refusal is None or refusal.code == ErrorCode.NEW_LEADER_ELECTED:
            logger.info("%s: the ISR changed from %s to %s", partition, list(proposal.before), proposal.isr)
            self.expansions += not set(proposal.isr) <= set(proposal.before)
            self.shrinks += not set(proposal.before) <= set(proposal.isr)
        else:
            logger.info("%s: the ISR stays %s, not %s: %s", partition, list(proposal.before), proposal.isr, refusal)
            self.failures += 1
        partition.settle_isr()
