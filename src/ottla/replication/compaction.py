"""Compaction in the background: the dirtiest log first, one at a time, until none is worth it.

The work itself is done elsewhere (`ottla.storage.cleaner`), step by step; here it is decided what is worth it, the pace
is kept, and what comes of it is put into the log. A log that was cut, or is gone, meanwhile is let go of. One that
cannot be compacted is left alone, with a line in the log and a number in the metrics, until its settings change or the
broker is started again.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable
from random import Random
from typing import Any

from ottla.config import BrokerConfig, TopicConfig
from ottla.errors import KafkaError
from ottla.observability.metrics import CompactionMeter
from ottla.replication.checkpoints import Checkpoints
from ottla.replication.partition import Partition
from ottla.replication.replicas import Replicas
from ottla.storage import names
from ottla.storage.cleaner.choice import CompactionRules, Dirt, dirt_of, last_batches
from ottla.storage.cleaner.order import Cleaned, Compactor, Order, Progress, Summary, Uncleanable
from ottla.storage.cleaner.swap import Phase
from ottla.storage.directories import DataDirectory
from ottla.storage.disk_errors import in_words, is_failure
from ottla.storage.files import Disk
from ottla.storage.segment import Segment
from ottla.system.clock import Clock
from ottla.system.threads import Offload

logger = logging.getLogger(__name__)

REPORT_BYTES_MIN, REPORT_BYTES_MAX = 64 * 1024, 32 * 1024 * 1024
IDLE_S = 30.0
"""How long the compacting process stays when there is nothing to do: it takes a second to start."""

PAUSE_EVERY = 200
"""Logs that are looked at in one go."""


class LogChanged(Exception):
    """The segments that are being compacted are no longer in the log, or the log is no longer here."""


class Compaction:
    def __init__(
        self,
        replicas: Replicas,
        checkpoints: Checkpoints,
        compactor: Compactor,
        disk: Disk,
        clock: Clock,
        random: Random,
        offload: Offload,
        settings: Callable[[], BrokerConfig],
        *,
        compiled: bool,
    ) -> None:
        self._replicas = replicas
        self._checkpoints = checkpoints
        self._compactor = compactor
        self._disk = disk
        self._clock = clock
        self._random = random
        self._offload = offload
        self._settings = settings
        self._compiled = compiled
        self._uncleanable: dict[Partition, TopicConfig] = {}
        """With the settings under which it failed."""
        self._worked_at = 0.0
        self._ready_at = 0.0
        """When what was read and written so far may have been, at the pace that is allowed."""
        self.meter = CompactionMeter(clock.now_ms())
        for directory, partitions in replicas.by_directory().items():
            for partition in partitions:
                key = (partition.topic, partition.index)
                partition.log.first_dirty_offset = directory.clean_ends.get(key, 0)

    @property
    def backoff_s(self) -> float:
        return max(self._settings().log_cleaner_backoff_ms / 1000, 0.01)

    def uncleanable(self) -> dict[DataDirectory, list[Partition]]:
        """The logs that cannot be compacted, by directory."""
        return {
            directory: [partition for partition in partitions if partition in self._uncleanable]
            for directory, partitions in self._replicas.by_directory().items()
        }

    def dirty_bytes(self, partition: Partition) -> int:
        """Of its sealed segments, those that are not compacted."""
        log = partition.log
        return sum(segment.size for segment in log.segments[:-1] if segment.base_offset >= log.first_dirty_offset)

    async def run(self) -> None:
        """Compact until nothing is worth it. Whoever does the work is sent home when there was none for a while."""
        if not self._settings().log_cleaner_enable:
            return
        loop = asyncio.get_running_loop()
        try:
            while (chosen := await self._choose()) is not None:
                goes_on = await self._compact(*chosen)
                self._worked_at = loop.time()
                if not goes_on:
                    break
        except BaseException:
            self._compactor.end()
            raise
        if loop.time() - self._worked_at >= IDLE_S:
            self._compactor.end()

    # Choosing

    async def _choose(self) -> tuple[Partition, Dirt] | None:
        now_ms = self._clock.now_ms()
        best: tuple[Partition, Dirt] | None = None
        dirtiest, longest_overdue = 0.0, 0
        self._forgive()
        for number, partition in enumerate(list(self._replicas)):
            if number % PAUSE_EVERY == PAUSE_EVERY - 1:
                await asyncio.sleep(0)
            dirt = self._dirt(partition, now_ms)
            if dirt is None:
                continue
            dirtiest, longest_overdue = max(dirtiest, dirt.ratio), max(longest_overdue, dirt.overdue_ms)
            if dirt.is_worth_it(rules_of(partition.config)) and (best is None or dirt.ratio > best[1].ratio):
                best = partition, dirt
        self.meter.looked(now_ms, dirtiest, longest_overdue)
        return best

    def _forgive(self) -> None:
        """Settings have changed: it may work now. And what is not here any more is nobody's trouble."""
        for partition, config in list(self._uncleanable.items()):
            if partition.config is not config or partition.state is None:
                del self._uncleanable[partition]

    def _dirt(self, partition: Partition, now_ms: int) -> Dirt | None:
        log = partition.log
        if "compact" not in partition.config.cleanup_policy or partition in self._uncleanable:
            return None
        if log.failed or partition.state is None or len(log.segments) < 2:
            return None
        if log.sealed_unflushed:
            partition.request_flush()  # what is not flushed has to wait for the next round
        try:
            return dirt_of(log, partition.last_stable_offset, rules_of(partition.config), now_ms)
        except (OSError, KafkaError) as error:
            self._give_up(partition, str(error))
            return None

    # Compacting

    async def _compact(self, partition: Partition, dirt: Dirt) -> bool:
        """One log. Whether it makes sense to go on with others."""
        began = asyncio.get_running_loop().time()
        if self._checkpoints.recovery_point_on_disk(partition) < dirt.up_to:
            # Or recovery could not tell what compaction took from what a power cut did.
            await self._checkpoints.write_recovery_points()
            if self._checkpoints.recovery_point_on_disk(partition) < dirt.up_to:
                return False
        left = list(dirt.segments)
        try:
            summary = await self._carry_out(partition, self._order(partition, dirt), left)
        except (LogChanged, OSError, KafkaError, Uncleanable) as error:
            self._compactor.end()
            await self._offload(_discard, self._disk, partition.log.directory)
            if isinstance(error, LogChanged) or not _intact(partition, left):
                logger.info("%s has changed while it was compacted", partition)
                return True
            return self._excuse(partition, error)
        seconds = asyncio.get_running_loop().time() - began
        partition.log.first_dirty_offset = min(summary.end_offset, partition.log.end_offset)
        self.meter.compacted(summary, seconds)
        logger.info(
            "%s is compacted up to offset %d: %.1f MB are %.1f MB now, %d records %d, in %.1f s",
            partition,
            summary.end_offset,
            summary.bytes_read / 1e6,
            summary.bytes_written / 1e6,
            summary.records_read,
            summary.records_written,
            seconds,
        )
        if summary.keyless:
            logger.warning("%s: %d records without a key were dropped by compaction", partition, summary.keyless)
        await self._checkpoints.write_clean_ends()
        return True

    def _excuse(self, partition: Partition, error: Exception) -> bool:
        if isinstance(error, OSError) and not is_failure(error):
            logger.warning("compaction of %s waits for the disk: %s", partition, in_words(error))
            return False
        self._give_up(partition, in_words(error) if isinstance(error, OSError) else str(error))
        return True

    def _give_up(self, partition: Partition, reason: str) -> None:
        logger.error("%s cannot be compacted until its settings change or the broker restarts: %s", partition, reason)
        self._uncleanable[partition] = partition.config

    def _order(self, partition: Partition, dirt: Dirt) -> Order:
        log, topic, broker = partition.log, partition.config, self._settings()
        pace = broker.log_cleaner_io_max_bytes_per_second / 10
        return Order(
            directory=log.directory,
            sources=dirt.sources(),
            dirty_from=dirt.dirty_from,
            now_ms=self._clock.now_ms(),
            delete_retention_ms=topic.delete_retention_ms,
            segment_bytes=log.settings.segment_bytes,
            segment_index_bytes=log.settings.segment_index_bytes,
            index_interval_bytes=log.settings.index_interval_bytes,
            aborted=tuple(log.aborted_transactions(dirt.segments[0].base_offset, dirt.up_to)),
            producers=last_batches(log.producers),
            map_bytes=broker.log_cleaner_dedupe_buffer_size,
            map_load_factor=broker.log_cleaner_io_buffer_load_factor,
            read_bytes=broker.log_cleaner_io_buffer_size,
            report_bytes=int(min(max(pace, REPORT_BYTES_MIN), REPORT_BYTES_MAX)),
            seed=self._random.randbytes(16),
            compiled=self._compiled,
        )

    async def _carry_out(self, partition: Partition, order: Order, segments: list[Segment]) -> Summary:
        """Segments that another takes the place of are taken off `segments`."""
        await self._step(self._compactor.begin, order)
        while True:
            report = await self._step(self._compactor.step)
            if not _intact(partition, segments):
                raise LogChanged
            match report:
                case Progress(size):
                    await self._keep_pace(size)
                case Cleaned(_, sources):
                    replaced = segments[: len(sources)]
                    del segments[: len(sources)]
                    await self._swap(partition, replaced)
                case Summary():
                    return report

    async def _step(self, function: Callable[..., Any], *args: Any) -> Any:
        """Do not leave a step behind that would begin something after the end."""
        step = self._offload(function, *args)
        step.add_done_callback(_hear)
        try:
            return await asyncio.shield(step)
        except asyncio.CancelledError:
            self._compactor.end()
            await asyncio.wait([step])
            raise

    async def _keep_pace(self, size: int) -> None:
        now = asyncio.get_running_loop().time()
        pace = max(self._settings().log_cleaner_io_max_bytes_per_second, 1.0)
        self._ready_at = max(self._ready_at, now) + size / pace
        if self._ready_at > now:
            await asyncio.sleep(self._ready_at - now)

    async def _swap(self, partition: Partition, replaced: list[Segment]) -> None:
        try:
            await self._swap_in(partition, replaced)
        except OSError as error:
            if partition.state is None:
                raise LogChanged from error  # its directory was renamed
            if is_failure(error) and partition.log.on_disk_failure is not None:
                # Which names are on the disk now, nobody knows; opening the log again settles it.
                partition.log.on_disk_failure(in_words(error))
            raise

    async def _swap_in(self, partition: Partition, replaced: list[Segment]) -> None:
        swap = partition.log.start_swap(replaced)
        await self._offload(swap.sync)
        if partition.state is None or swap.phase is not Phase.BEGUN:
            raise LogChanged
        swap.switch()
        await self._offload(swap.sync)
        if partition.state is None:
            raise LogChanged
        swap.finish()
        await self._offload(swap.sync)


def rules_of(config: TopicConfig) -> CompactionRules:
    return CompactionRules(config.min_cleanable_dirty_ratio, config.min_compaction_lag_ms, config.max_compaction_lag_ms)


def _hear(step: "asyncio.Future[Any]") -> None:
    """Nobody waits for a step that was given up; that it failed is no news then."""
    if not step.cancelled():
        step.exception()


def _intact(partition: Partition, segments: Iterable[Segment]) -> bool:
    """Whether the log is still here and has all of these."""
    if partition.state is None or partition.log.failed:
        return False
    here = {segment.base_offset: segment for segment in partition.log.segments}
    return all(here.get(segment.base_offset) is segment for segment in segments)


def _discard(disk: Disk, directory: str) -> None:
    """What was written for nothing. If it cannot be removed now it is when the log is opened again."""
    with contextlib.suppress(OSError):
        for name in disk.list(directory):
            if name.endswith(names.CLEANED):
                disk.unlink(f"{directory}/{name}")
