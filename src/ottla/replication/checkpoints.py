"""Checkpoints of the data directories: for every log its recovery point, high watermark, log start and clean end.

A checkpoint saves work at the next start or narrows what is served, so a write that fails is logged and tried again at
the next interval. Checkpoints identify a partition by its name. A topic that is created again under the name of a
deleted one must not inherit the old offsets, so whoever creates partitions asks `may_mention` first.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from ottla.replication.directory_failures import DirectoryFailures
from ottla.replication.partition import Partition
from ottla.replication.replicas import Replicas
from ottla.storage.directories import DataDirectory, Offsets
from ottla.storage.disk_errors import describe_error, is_failure
from ottla.system.threads import Offload
from ottla.topic_partition import TopicPartition

logger = logging.getLogger(__name__)


class Checkpoints:
    def __init__(self, replicas: Replicas, failures: DirectoryFailures, offload: Offload) -> None:
        self._replicas = replicas
        self._failures = failures
        self._offload = offload
        self._being_written: list[Offsets] = []
        # One task at a time writes a checkpoint, in the order in which offsets were collected. A move that ends and a
        # periodic job would otherwise replace the same file at once, and what was collected before a truncation could
        # be written after it.
        self._writing_high_watermarks = asyncio.Lock()
        self._writing_recovery_points = asyncio.Lock()
        self._writing_clean_ends = asyncio.Lock()
        self._unsettled_recovery_points: dict[DataDirectory, Offsets] = {}
        """The highest recovery points that a write under way, or one that failed, may leave in the file."""
        self._unsettled_log_starts: dict[DataDirectory, Offsets] = {}
        self._unsettled_clean_ends: dict[DataDirectory, Offsets] = {}
        """The same for log starts, and for the ends of what is compacted."""
        self._unwritten: dict[Callable[[Offsets], None], DataDirectory] = {}
        """Checkpoints whose last write failed, by the function that writes them."""
        self.on_idle: Callable[[], None] | None = None
        """Called whenever the last checkpoint that was being written is on disk, or failed."""

    async def write_high_watermarks(self) -> None:
        async with self._writing_high_watermarks:
            collected = self._collect_offsets(lambda partition: partition.high_watermark.value)
            with self._hold(collected.values()):
                for directory, offsets in collected.items():
                    await self._write(directory, directory.write_high_watermarks, offsets)

    async def write_recovery_points(self) -> None:
        async with self._writing_recovery_points:
            collected = self._collect_offsets(lambda partition: partition.log.recovery_point)
            for directory, offsets in collected.items():
                _note_unsettled(self._unsettled_recovery_points, directory, offsets)
            with self._hold(collected.values()):
                for directory, offsets in collected.items():
                    if await self._write(directory, directory.write_recovery_points, offsets) is None:
                        del self._unsettled_recovery_points[directory]

    async def write_clean_ends(self) -> None:
        async with self._writing_clean_ends:
            collected = self._collect_offsets(lambda partition: partition.log.first_dirty_offset)
            for directory, offsets in collected.items():
                _note_unsettled(self._unsettled_clean_ends, directory, offsets)
            with self._hold(collected.values()):
                for directory, offsets in collected.items():
                    compacted = {partition: offset for partition, offset in offsets.items() if offset}
                    if await self._write(directory, directory.write_clean_ends, compacted) is None:
                        del self._unsettled_clean_ends[directory]

    async def write_log_starts(self, directory: DataDirectory, offsets: Offsets) -> OSError | None:
        """Write the log starts of one directory. `LogStarts` has the order in which that may happen."""
        _note_unsettled(self._unsettled_log_starts, directory, offsets)
        with self._hold([offsets]):
            error = await self._write(directory, directory.write_log_starts, offsets)
        if error is None:
            del self._unsettled_log_starts[directory]
        return error

    def recovery_point_on_disk(self, partition: Partition) -> int:
        """The recovery point that a start after a crash would find; -1 if the partition is no longer here."""
        directory = self._replicas.home(partition)
        return -1 if directory is None else directory.recovery_points.get(partition.topic_partition, 0)

    def highest_recovery_point(self, partition: Partition) -> int:
        """The highest recovery point that a start after a crash might find, now or after the write under way.

        -1 if the partition is no longer here.
        """
        return self._find_highest(
            partition, lambda directory: directory.recovery_points, self._unsettled_recovery_points
        )

    def highest_log_start(self, partition: Partition) -> int:
        """The same for the log start."""
        return self._find_highest(partition, lambda directory: directory.log_starts, self._unsettled_log_starts)

    def highest_clean_end(self, partition: Partition) -> int:
        """The same for the end of what is compacted."""
        return self._find_highest(partition, lambda directory: directory.clean_ends, self._unsettled_clean_ends)

    def _find_highest(
        self,
        partition: Partition,
        on_disk: Callable[[DataDirectory], Offsets],
        unsettled: Mapping[DataDirectory, Offsets],
    ) -> int:
        directory, name = self._replicas.home(partition), partition.topic_partition
        if directory is None:
            return -1
        return max(on_disk(directory).get(name, 0), unsettled.get(directory, {}).get(name, 0))

    @property
    def is_writing(self) -> bool:
        return bool(self._being_written)

    def may_mention(self, partitions: Sequence[TopicPartition]) -> bool:
        """Whether checkpoints are being written, and they or earlier ones may hold offsets of these partitions."""
        if not self._being_written:
            return False
        return any(partition in offsets for partition in partitions for offsets in self._being_written) or any(
            directory.mentions(partitions) for directory in self._replicas.directories_in_service()
        )

    def forget(self, partitions: Sequence[TopicPartition]) -> None:
        """Remove these partitions from the checkpoints of every directory. OSError if a disk refuses."""
        for directory in self._replicas.directories_in_service():
            directory.forget(partitions)

    def has_unwritten(self, directory: DataDirectory) -> bool:
        """Whether the last write of one of the directory's checkpoints failed."""
        return directory in self._unwritten.values()

    def _collect_offsets(self, of: Callable[[Partition], int]) -> dict[DataDirectory, Offsets]:
        return {
            directory: {partition.topic_partition: of(partition) for partition in partitions}
            for directory, partitions in self._replicas.group_by_directory().items()
            if directory.failure is None
        }

    @contextmanager
    def _hold(self, collected: Iterable[Offsets]) -> Iterator[None]:
        """While these offsets are being written. Those of one directory may wait for those of another."""
        held = list(collected)
        self._being_written += held
        try:
            yield
        finally:
            for offsets in held:
                self._being_written.remove(offsets)
            if not self._being_written and self.on_idle is not None:
                self.on_idle()

    async def _write(
        self, directory: DataDirectory, write: Callable[[Offsets], None], offsets: Offsets
    ) -> OSError | None:
        """Write one checkpoint in a thread. Returns the error if the disk refused it.

        An error that shows that the disk fails takes the directory offline.
        """
        if directory.failure is not None:
            return None
        try:
            await self._offload(write, offsets)
        except OSError as error:
            logger.warning("%s: a checkpoint is not written: %s", directory.path, describe_error(error))
            if is_failure(error):
                self._failures.fail(directory, describe_error(error))
            self._unwritten[write] = directory
            return error
        self._unwritten.pop(write, None)
        return None


def _note_unsettled(unsettled: dict[DataDirectory, Offsets], directory: DataDirectory, offsets: Offsets) -> None:
    """Take note that these offsets are going to be written. Until that succeeds, earlier ones may be in the file."""
    earlier = unsettled.get(directory)
    if earlier:
        offsets = {**earlier, **{name: max(offset, earlier.get(name, 0)) for name, offset in offsets.items()}}
    unsettled[directory] = offsets
