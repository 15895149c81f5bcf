"""Where logs begin: a log start moves, the checkpoint with it reaches the disk, only then do the segments below go.

In that order a crash in between leaves segments that the next start deletes, never a log start below which records are
missing. While a replica moves to another data directory, the checkpoint there has its log start, too.
"""

import asyncio
from contextlib import suppress

from ottla.replication.checkpoints import Checkpoints
from ottla.replication.directory_failures import DirectoryFailures
from ottla.replication.partition import Partition
from ottla.replication.removals import Removals
from ottla.replication.replicas import Replicas
from ottla.storage.directories import DataDirectory, Offsets


class LogStarts:
    def __init__(
        self, replicas: Replicas, checkpoints: Checkpoints, removals: Removals, failures: DirectoryFailures
    ) -> None:
        self._replicas = replicas
        self._checkpoints = checkpoints
        self._removals = removals
        self._failures = failures
        self._writing = asyncio.Lock()

    async def write(self) -> None:
        """Make every log start durable, then drop the segments below it. OSError if a disk refuses the checkpoint."""
        refused: OSError | None = None
        async with self._writing:
            for directory in self._replicas.directories:
                refused = await self._write(directory) or refused
        if refused is not None:
            raise refused

    async def write_in(self, directory: DataDirectory) -> None:
        """Like `write`, for the logs in one data directory."""
        async with self._writing:
            refused = await self._write(directory)
        if refused is not None:
            raise refused

    async def write_periodically(self) -> None:
        """Like `write`, for a job: `Checkpoints` has already logged what a disk refused."""
        with suppress(OSError):
            await self.write()

    async def _write(self, directory: DataDirectory) -> OSError | None:
        """Returns the error if the disk refuses the checkpoint."""
        # As they are now: a partition may have moved here while the checkpoint of another directory was written.
        starts = {partition: partition.log.log_start_offset for partition in self._replicas.list_in(directory)}
        moving = {partition: partition.log.log_start_offset for partition in self._replicas.list_moving_to(directory)}
        offsets: Offsets = {partition.topic_partition: start for partition, start in (moving | starts).items()}
        error = await self._checkpoints.write_log_starts(directory, offsets)
        # A disk without room for the checkpoint gets room from the segments: they are dropped all the same, the oldest
        # first, so that a crash leaves no gap.
        await self._drop_segments(starts, in_order=error is not None)
        return error

    async def _drop_segments(self, starts: dict[Partition, int], *, in_order: bool) -> None:
        for partition, start in starts.items():
            directory = self._replicas.home(partition)
            if directory is None or not partition.log.files.has_any_before(start):
                continue
            try:
                partition.log.drop_segments(start, in_order=in_order)
            except OSError as error:
                self._failures.report_error(directory, f"{partition}: its old segments stay", error)
                continue
            self._removals.take_dropped(partition)
            await asyncio.sleep(0)  # renaming the files of thousands of segments takes a while
