"""Checkpoints of the data directories: for every log its recovery point, high watermark, log start and clean end.

A checkpoint saves work at the next start or narrows what is served, so a write that fails is logged and tried again at
the next interval. Checkpoints identify a partition by its name. A topic that is created again under the name of a
deleted one must not inherit the old offsets, so whoever creates partitions asks `may_mention` first.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from ottla.replication.directory_failures import DirectoryFailures
from ottla.replication.partition import Partition
from ottla.replication.replicas import Replicas
from ottla.storage.directories import DataDirectory, Offsets
from ottla.storage.disk_errors import describe_error, is_failure
from ottla.system.threads import Offload
from ottla.topic_partition import TopicPartition

logger = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class _Kind:
    """The checkpoints of one kind of offset: a file in each data directory."""

    of: Callable[[Partition], int]
    """The offset that a partition has now."""
    on_disk: Callable[[DataDirectory], Offsets]
    write: Callable[[DataDirectory], Callable[[Offsets], None]]
    has_zeros: bool = True
    """Whether the file names partitions whose offset is 0."""
    # One task at a time writes a checkpoint, in the order in which offsets were collected. A move that ends and a
    # periodic job would otherwise replace the same file at once, and what was collected before a truncation could
    # be written after it.
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    unsettled: dict[DataDirectory, Offsets] = field(default_factory=dict)
    """The highest offsets that a write under way, or one that failed, may leave in the file."""

    def begin(self, directory: DataDirectory, offsets: Offsets) -> None:
        """These offsets are going to be written. Until that succeeds, earlier ones may be in the file."""
        earlier = self.unsettled.get(directory)
        if earlier:
            offsets = {**earlier, **{name: max(offset, earlier.get(name, 0)) for name, offset in offsets.items()}}
        self.unsettled[directory] = offsets

    def find_highest(self, directory: DataDirectory, name: TopicPartition) -> int:
        """The highest offset that a start after a crash might find, now or after the write under way."""
        return max(self.on_disk(directory).get(name, 0), self.unsettled.get(directory, {}).get(name, 0))


class Checkpoints:
    def __init__(self, replicas: Replicas, failures: DirectoryFailures, offload: Offload) -> None:
        self._replicas = replicas
        self._failures = failures
        self._offload = offload
        self._being_written: list[Offsets] = []
        self._recovery_points = _Kind(
            lambda partition: partition.log.recovery_point,
            lambda directory: directory.recovery_points,
            lambda directory: directory.write_recovery_points,
        )
        self._high_watermarks = _Kind(
            lambda partition: partition.high_watermark.value,
            lambda directory: directory.high_watermarks,
            lambda directory: directory.write_high_watermarks,
        )
        self._clean_ends = _Kind(
            lambda partition: partition.log.first_dirty_offset,
            lambda directory: directory.clean_ends,
            lambda directory: directory.write_clean_ends,
            has_zeros=False,
        )
        self._log_starts = _Kind(
            lambda partition: partition.log.log_start_offset,
            lambda directory: directory.log_starts,
            lambda directory: directory.write_log_starts,
            has_zeros=False,
        )
        self._unwritten: dict[Callable[[Offsets], None], DataDirectory] = {}
        """Checkpoints whose last write failed, by the function that writes them."""
        self.on_idle: Callable[[], None] | None = None
        """Called whenever the last checkpoint that was being written is on disk, or failed."""

    async def write_high_watermarks(self) -> None:
        await self._write_all(self._high_watermarks)

    async def write_recovery_points(self) -> None:
        await self._write_all(self._recovery_points)

    async def write_clean_ends(self) -> None:
        await self._write_all(self._clean_ends)

    async def write_log_starts(self, directory: DataDirectory, offsets: Offsets) -> OSError | None:
        """Write the log starts of one directory. `LogStarts` has the order in which that may happen."""
        self._log_starts.begin(directory, offsets)
        with self._hold([offsets]):
            return await self._write(self._log_starts, directory, offsets)

    def are_ahead_of(self, partition: Partition) -> bool:
        """Whether a start after a crash might find an offset of the partition that is after the one it has now."""
        directory, name = self._replicas.home(partition), partition.topic_partition
        if directory is None:
            return False
        kinds = (self._recovery_points, self._high_watermarks, self._clean_ends, self._log_starts)
        return any(kind.find_highest(directory, name) > kind.of(partition) for kind in kinds)

    def recovery_point_on_disk(self, partition: Partition) -> int:
        """The recovery point that a start after a crash would find; -1 if the partition is no longer here."""
        directory = self._replicas.home(partition)
        return -1 if directory is None else directory.recovery_points.get(partition.topic_partition, 0)

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

    async def _write_all(self, kind: _Kind) -> None:
        """Write the offsets that all partitions have now."""
        async with kind.lock:
            collected = {
                directory: {partition.topic_partition: kind.of(partition) for partition in partitions}
                for directory, partitions in self._replicas.group_by_directory().items()
                if directory.failure is None
            }
            for directory, offsets in collected.items():
                kind.begin(directory, offsets)
            with self._hold(collected.values()):
                for directory, offsets in collected.items():
                    await self._write(kind, directory, offsets)

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

    async def _write(self, kind: _Kind, directory: DataDirectory, offsets: Offsets) -> OSError | None:
        """Write one checkpoint in a thread. Returns the error if the disk refused it.

        An error that shows that the disk fails takes the directory offline.
        """
        write = kind.write(directory)
        if directory.failure is None:
            if not kind.has_zeros:
                offsets = {partition: offset for partition, offset in offsets.items() if offset}
            try:
                await self._offload(write, offsets)
            except OSError as error:
                logger.warning("%s: a checkpoint is not written: %s", directory.path, describe_error(error))
                if is_failure(error):
                    self._failures.fail(directory, describe_error(error))
                self._unwritten[write] = directory
                return error
            self._unwritten.pop(write, None)
        del kind.unsettled[directory]
        return None
