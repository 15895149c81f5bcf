"""Compaction in the background: one log at a time, the dirtiest first, until no log is dirty enough.

`ottla.storage.cleaner` does the work, step by step. This module chooses the log, limits the speed and puts compacted
segments into the log. The result is thrown away if the log was truncated or deleted meanwhile, or if it is copied by a
replica that lacks a tombstone which the result lacks. A log that cannot be compacted is reported in the log and in the
metrics, and left alone until its settings change or the broker restarts. A full disk, or a system without room for
another process, is waited for.
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
from ottla.storage.cleaner.choice import CompactionRules, Dirt, collect_last_batches, measure_dirt
from ottla.storage.cleaner.order import (
    BytesProcessed,
    Cleaned,
    CompactionOrder,
    Compactor,
    NoProcess,
    Summary,
    Uncleanable,
)
from ottla.storage.cleaner.swap import Phase, Swap
from ottla.storage.directories import DataDirectory
from ottla.storage.disk_errors import describe_error, is_failure
from ottla.storage.files import Disk
from ottla.storage.segment import Segment
from ottla.system.clock import Clock
from ottla.system.threads import Offload, retrieve_exception, wait_out

logger = logging.getLogger(__name__)

REPORT_BYTES_MIN, REPORT_BYTES_MAX = 64 * 1024, 32 * 1024 * 1024
IDLE_S = 30.0
"""Seconds without work after which the compacting process ends. It takes a second to start."""

PAUSE_EVERY = 200
"""Logs that are examined before other work of the event loop gets its turn."""


class LogChanged(Exception):
    """The compacted segment cannot be used: the log has changed, is gone, or a replica copies it that lacks a tombstone
    which the segment lacks too."""


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
        """Logs that could not be compacted, with the settings at that time."""
        self._worked_at = 0.0
        self._ready_at = 0.0
        """The loop time at which the bytes that were read and written so far are within the allowed rate."""
        self.meter = CompactionMeter(clock.now_ms())
        for directory, partitions in replicas.group_by_directory().items():
            for partition in partitions:
                partition.log.first_dirty_offset = directory.clean_ends.get(partition.topic_partition, 0)

    @property
    def backoff_s(self) -> float:
        return max(self._settings().log_cleaner_backoff_ms / 1000, 0.01)

    def list_uncleanable(self) -> dict[DataDirectory, list[Partition]]:
        """The logs that cannot be compacted, by data directory."""
        return {
            directory: [partition for partition in partitions if partition in self._uncleanable]
            for directory, partitions in self._replicas.group_by_directory().items()
        }

    def measure_dirty_bytes(self, partition: Partition) -> int:
        """Size of the sealed segments that are not compacted."""
        log = partition.log
        return sum(segment.size for segment in log.segments[:-1] if segment.base_offset >= log.first_dirty_offset)

    async def run(self) -> None:
        """Compact until no log is dirty enough. The compacting process ends when it had no work for a while."""
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
        self._retry_uncleanable()
        for number, partition in enumerate(list(self._replicas)):
            if number % PAUSE_EVERY == PAUSE_EVERY - 1:
                await asyncio.sleep(0)
            dirt = self._measure_dirt(partition, now_ms)
            if dirt is None:
                continue
            dirtiest, longest_overdue = max(dirtiest, dirt.ratio), max(longest_overdue, dirt.overdue_ms)
            if dirt.is_worth_it(rules_of(partition.config)) and (best is None or dirt.ratio > best[1].ratio):
                best = partition, dirt
        self.meter.count_look(now_ms, dirtiest, longest_overdue)
        return best

    def _retry_uncleanable(self) -> None:
        """Forget a failure if the settings changed, because compaction may work now, or if the partition is gone."""
        for partition, config in list(self._uncleanable.items()):
            if partition.config is not config or partition.state is None:
                del self._uncleanable[partition]

    def _measure_dirt(self, partition: Partition, now_ms: int) -> Dirt | None:
        log = partition.log
        if "compact" not in partition.config.cleanup_policy or partition in self._uncleanable:
            return None
        if log.has_failed or partition.moving_to is not None or partition.state is None or len(log.segments) < 2:
            return None
        if partition.flushing.is_held:
            return None  # the log is being truncated, and its producers are known again afterwards
        if log.has_unflushed_sealed_segment:
            partition.flushing.request()  # segments that are not flushed wait for the next round
        try:
            return measure_dirt(log, partition.last_stable_offset, rules_of(partition.config), now_ms)
        except (OSError, KafkaError) as error:
            self._handle_failure(partition, error)
            return None

    # Compacting

    async def _compact(self, partition: Partition, dirt: Dirt) -> bool:
        """Compact one log. Returns False if no other log should be tried now."""
        if partition.state is None:
            return True  # it was removed while the others were looked at
        began = asyncio.get_running_loop().time()
        if not await self._flush(partition):
            return partition.state is None
        if self._checkpoints.recovery_point_on_disk(partition) < dirt.up_to:
            # Otherwise recovery could not tell records that compaction removed from those that a power cut took.
            await self._checkpoints.write_recovery_points()
            if self._checkpoints.recovery_point_on_disk(partition) < dirt.up_to:
                return partition.state is None
        left = list(dirt.segments)
        try:
            partition.log.end_swap()
            summary = await self._carry_out(partition, self._order(partition, dirt), left, dirt.truncations)
        except (LogChanged, OSError, KafkaError, NoProcess, Uncleanable) as error:
            self._compactor.end()
            await self._discard(partition)
            if isinstance(error, LogChanged) or not _is_intact(partition, left, dirt.truncations):
                logger.info("%s changed while it was compacted: the result is thrown away", partition)
                return True
            return self._handle_failure(partition, error)
        seconds = asyncio.get_running_loop().time() - began
        partition.log.first_dirty_offset = min(summary.end_offset, partition.log.end_offset)
        self.meter.count_compaction(summary, seconds)
        logger.info(
            "%s: compacted up to offset %d in %.1f s: %.1f MB and %d records became %.1f MB and %d records",
            partition,
            summary.end_offset,
            seconds,
            summary.bytes_read / 1e6,
            summary.records_read,
            summary.bytes_written / 1e6,
            summary.records_written,
        )
        if summary.keyless:
            logger.warning("%s: %d records without a key were dropped by compaction", partition, summary.keyless)
        await self._checkpoints.write_clean_ends()
        return True

    async def _flush(self, partition: Partition) -> bool:
        """Flush the log up to its end. Returns False if that failed, or if the partition is gone.

        Markers after the dirty part decide which of its records count. A power cut must not take a marker when records
        of its transaction were compacted already.
        """
        end_offset = partition.log.end_offset
        if partition.log.recovery_point < end_offset:
            partition.flushing.request()
            try:
                await partition.durable.reach(end_offset)
            except KafkaError:
                return False
        return True

    async def _discard(self, partition: Partition) -> None:
        """Remove compacted segments that are not used."""
        try:
            partition.log.end_swap()
        except OSError as error:
            # Without its .cleaned files the next start would take the .swap files for complete.
            logger.warning("%s: a swap is ended later: %s", partition, describe_error(error))
            return
        await self._offload(_discard, self._disk, partition.log.directory)

    def _handle_failure(self, partition: Partition, error: Exception) -> bool:
        """Returns False if the disk is full, or there is no process: then no other log should be tried now."""
        if isinstance(error, NoProcess):
            logger.warning("compaction of %s waits: %s", partition, error)
            return False
        cause = error.__cause__ if isinstance(error, KafkaError) else error
        if isinstance(cause, OSError) and not is_failure(cause):
            logger.warning("compaction of %s waits for the disk: %s", partition, describe_error(cause))
            return False
        self._give_up(partition, describe_error(error) if isinstance(error, OSError) else str(error))
        return True

    def _give_up(self, partition: Partition, reason: str) -> None:
        logger.error("%s cannot be compacted until its settings change or the broker restarts: %s", partition, reason)
        self._uncleanable[partition] = partition.config

    def _order(self, partition: Partition, dirt: Dirt) -> CompactionOrder:
        log, topic, broker = partition.log, partition.config, self._settings()
        pace = broker.log_cleaner_io_max_bytes_per_second / 10
        return CompactionOrder(
            directory=log.directory,
            sources=dirt.sources(),
            dirty_from=dirt.dirty_from,
            now_ms=self._clock.now_ms(),
            delete_retention_ms=topic.delete_retention_ms,
            keep_deletes_from=partition.copied_by_all,
            segment_bytes=log.settings.segment_bytes,
            segment_index_bytes=log.settings.segment_index_bytes,
            index_interval_bytes=log.settings.index_interval_bytes,
            aborted=tuple(log.aborted_transactions(dirt.segments[0].base_offset, dirt.up_to)),
            producers=collect_last_batches(log.producers),
            map_bytes=broker.log_cleaner_dedupe_buffer_size,
            map_load_factor=broker.log_cleaner_io_buffer_load_factor,
            read_bytes=broker.log_cleaner_io_buffer_size,
            report_bytes=int(min(max(pace, REPORT_BYTES_MIN), REPORT_BYTES_MAX)),
            seed=self._random.randbytes(16),
            compiled=self._compiled,
        )

    async def _carry_out(
        self, partition: Partition, order: CompactionOrder, segments: list[Segment], truncations: int
    ) -> Summary:
        """Run the compaction. Segments are removed from `segments` when a compacted one has replaced them."""
        await self._step(self._compactor.begin, order)
        while True:
            report = await self._step(self._compactor.step)
            if not _is_intact(partition, segments, truncations):
                raise LogChanged
            match report:
                case BytesProcessed(size):
                    await self._keep_pace(size)
                case Cleaned(_, sources, deletes_removed_before):
                    if deletes_removed_before > partition.copied_by_all:
                        raise LogChanged
                    await self._note_removed_deletes(partition, deletes_removed_before)
                    if not _is_intact(partition, segments, truncations):
                        raise LogChanged
                    replaced = segments[: len(sources)]
                    del segments[: len(sources)]
                    await self._swap(partition, replaced, deletes_removed_before)
                case Summary():
                    return report

    async def _note_removed_deletes(self, partition: Partition, before: int) -> None:
        """Write down that tombstones are gone before the segments without them take the place of the others."""
        removed = partition.log.removed_deletes
        if before <= removed.before and not removed.is_dirty:
            return
        removed.note(before)
        is_quiet = asyncio.Event()
        partition.flushing.hold(is_quiet.set)  # a flush that began before would write an older content
        try:
            await is_quiet.wait()
            if partition.state is None:
                raise LogChanged  # its directory was renamed, and a new partition may have its path
            saving = partition.flushing.track(self._offload(removed.save, partition.log.recovery_point))
            saving.add_done_callback(retrieve_exception)
            await asyncio.shield(saving)
        finally:
            partition.flushing.resume()

    async def _step(self, function: Callable[..., Any], *args: Any) -> Any:
        """Run one step in a thread. A cancelled step is ended and awaited, so that it touches nothing afterwards."""
        return await wait_out(self._offload(function, *args), self._compactor.end)

    async def _keep_pace(self, size: int) -> None:
        now = asyncio.get_running_loop().time()
        pace = max(self._settings().log_cleaner_io_max_bytes_per_second, 1.0)
        self._ready_at = max(self._ready_at, now) + size / pace
        if self._ready_at > now:
            await asyncio.sleep(self._ready_at - now)

    async def _swap(self, partition: Partition, replaced: list[Segment], deletes_removed_before: int) -> None:
        log = partition.log
        try:
            await self._swap_in(partition, replaced, deletes_removed_before)
        except OSError as error:
            if partition.state is None or partition.log is not log:
                raise LogChanged from error  # its directory was renamed
            if is_failure(error) and log.on_disk_failure is not None:
                # It is unknown which of the files are renamed. Opening the log again settles it.
                log.on_disk_failure(describe_error(error))
            raise

    async def _swap_in(self, partition: Partition, replaced: list[Segment], deletes_removed_before: int) -> None:
        log = partition.log
        swap = Swap(log.files, replaced)
        await self._offload(swap.sync)
        if partition.state is None or partition.moving_to is not None or swap.phase is not Phase.BEGUN:
            raise LogChanged
        # A replica that has begun to copy the old segments since may have a value whose tombstone would be gone now.
        if deletes_removed_before > partition.copied_by_all:
            raise LogChanged
        swap.switch()
        await self._offload(swap.sync)
        if partition.state is None or partition.log is not log:
            raise LogChanged  # the replica may have moved to another directory meanwhile
        swap.finish()
        await self._offload(swap.sync)
        swap.end()


def rules_of(config: TopicConfig) -> CompactionRules:
    return CompactionRules(config.min_cleanable_dirty_ratio, config.min_compaction_lag_ms, config.max_compaction_lag_ms)


def _is_intact(partition: Partition, segments: Iterable[Segment], truncations: int) -> bool:
    """Whether the log is still served, was not truncated since, and contains all of these segments."""
    if partition.state is None or partition.log.has_failed or partition.moving_to is not None:
        return False
    if partition.log.truncations != truncations:
        return False
    here = {segment.base_offset: segment for segment in partition.log.segments}
    return all(here.get(segment.base_offset) is segment for segment in segments)


def _discard(disk: Disk, directory: str) -> None:
    """Remove compacted segments that are not used. Those that cannot be removed are when the log is opened next."""
    with contextlib.suppress(OSError):
        for name in disk.list(directory):
            if name.endswith(names.CLEANED):
                disk.unlink(f"{directory}/{name}")
