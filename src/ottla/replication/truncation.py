"""Truncations of followers' logs. What waits for the disk runs in a thread: there may be thousands after a failover.

While a log is being truncated it can be read up to its new end, and nothing can be appended to it. A truncation that
began is finished whatever happens to the leadership of the partition. If the disk is full, that is when there is room;
until then the replica gives way to others, as it does when a write is refused (`full_disks.py`).

A recovery point on disk that is after the new end would be wrong as soon as the log has grown beyond it: after a crash,
unflushed records before it would be taken for flushed, and their leader epochs would not be read from them. So the
recovery points are written before anything is appended, also if a checkpoint is under way that has collected the
recovery point from before the truncation. The same holds for a log start on disk that is after the new one: a crash
would take the records before it for deleted ones. And it holds for the end of what is compacted: compaction would take
the new records before it for compacted ones, and remove tombstones whose values are still there. A high watermark that
is after the new one would make consumers read, after a crash, what is not committed.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from ottla.errors import ErrorCode, KafkaError
from ottla.replication.checkpoints import Checkpoints
from ottla.replication.log_starts import LogStarts
from ottla.replication.partition import Partition
from ottla.storage.disk_errors import describe_error, is_failure
from ottla.storage.truncation import Truncation, finish_truncation, start_anew, start_truncation
from ottla.system.threads import Offload

logger = logging.getLogger(__name__)

FINISH_S = 10.0
"""How long a shutdown waits for truncations."""

RETRY_S = 1.0
"""Seconds until a truncation is tried again after the disk was full."""


class Truncations:
    def __init__(self, offload: Offload, checkpoints: Checkpoints, log_starts: LogStarts) -> None:
        self._offload = offload
        self._checkpoints = checkpoints
        self._log_starts = log_starts
        self._outdated: dict[Partition, Truncation] = {}
        """Truncated logs of which an offset on disk is, or may become, after what they have now."""
        self._writing: asyncio.Task[None] | None = None
        self._running: dict[Partition, asyncio.Future[None]] = {}
        self._is_closed = False
        self.count = 0
        """How many truncations were started."""

    def find(self, partition: Partition) -> asyncio.Future[None] | None:
        """The truncation of this partition that is under way. Its future is done whether it succeeds or fails."""
        return self._running.get(partition)

    def truncate(self, partition: Partition, offset: int) -> None:
        """Remove all records from `offset` on. `find` returns the truncation until it is over.

        OSError if there is no descriptor: nothing has changed then, as in `start_anew`.
        """
        end_offset = partition.log.end_offset
        if self._start(partition, lambda: start_truncation(partition.log, offset)):
            logger.info("%s: truncated from %d to %d, as the leader's log says", partition, end_offset, offset)

    def start_anew(self, partition: Partition, offset: int, now_ms: int) -> None:
        """Remove all records, and begin at `offset`. `find` returns the truncation until it is over.

        OSError if the disk is full: nothing has changed then. It is not tried again here, because this replica may
        have become the leader when there is room.
        """
        log_start_offset, end_offset = partition.log.log_start_offset, partition.log.end_offset
        if not self._start(partition, lambda: start_anew(partition.log, offset, now_ms)):
            return
        if log_start_offset == end_offset:
            logger.info("%s: has no records, and begins at %d, as the leader's log says", partition, offset)
        else:
            logger.warning(
                "%s: starts anew at %d: its records from %d to %d are not connected to those of its leader",
                partition,
                offset,
                log_start_offset,
                end_offset,
            )

    async def finish(self) -> None:
        """Wait until no truncation is under way, but not for ever: the disk may be full.

        A log whose truncation is not finished then is not closed cleanly, so that the next start recovers it.
        """
        deadline = asyncio.get_running_loop().time() + FINISH_S
        while self._running and (left_s := deadline - asyncio.get_running_loop().time()) > 0:
            await asyncio.wait(list(self._running.values()), timeout=left_s)
        for partition in self._running:
            partition.log.fail(f"{partition} is being truncated")
        self.cancel()

    def cancel(self) -> None:
        """End at once, and leave what is under way unfinished."""
        self._is_closed = True
        if self._writing is not None:
            self._writing.cancel()

    def _start(self, partition: Partition, start: Callable[[], Truncation]) -> bool:
        """Returns False if the disk fails, and the log with it. OSError if it is worth another attempt."""
        assert partition not in self._running
        try:
            truncation = start()
        except OSError as error:
            if not is_failure(error):
                raise
            partition.fail(f"cannot be truncated: {describe_error(error)}")
            return False
        self.count += 1
        partition.lower_watermarks(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the log was truncated"))
        self._running[partition] = asyncio.get_running_loop().create_future()
        partition.flushing.hold(lambda: self._run(partition, truncation))
        return True

    def _run(self, partition: Partition, truncation: Truncation) -> None:
        if partition.state is None or partition.log.has_failed:
            self._end(partition)  # its directory was renamed, and a new partition may have its path
        elif threads := partition.flushing.threads:  # compaction is writing one of the same files
            next(iter(threads)).add_done_callback(lambda _: self._run(partition, truncation))
        elif not self._is_closed:
            partition.flushing.track(self._offload(truncation.run)).add_done_callback(
                lambda future: self._handle_result(partition, truncation, future)
            )

    def _handle_result(self, partition: Partition, truncation: Truncation, future: asyncio.Future[Any]) -> None:
        error = None if future.cancelled() else future.exception()
        if partition.state is None or future.cancelled():
            self._end(partition)  # the replica was retired meanwhile
        elif error is None:
            # What was dropped is removed from now on: it may be the very room that the recovery points need.
            partition.log.files.take_back(truncation.dropped)
            self._outdated[partition] = truncation
            self._finish_if_written(partition)
            if self._outdated and self._writing is None:
                self._writing = asyncio.get_running_loop().create_task(self._write())
        elif isinstance(error, OSError) and not is_failure(error):
            logger.warning("%s cannot be truncated, the next attempt is in %.0f s: %s", partition, RETRY_S, error)
            partition.note_refusal(error)
            asyncio.get_running_loop().call_later(RETRY_S, self._run, partition, truncation)
        else:
            partition.fail(f"cannot be truncated: {error}")
            self._end(partition)

    def _finish_if_written(self, partition: Partition) -> None:
        """Finish the truncation, if no offset on disk can be after what it has made of the log."""
        if partition.state is None or not self._checkpoints.are_ahead_of(partition):
            truncation = self._outdated.pop(partition)
            if partition.state is not None:
                finish_truncation(partition.log, truncation)
            self._end(partition)

    async def _write(self) -> None:
        try:
            while self._outdated:
                await self._checkpoints.write_recovery_points()
                await self._checkpoints.write_high_watermarks()
                await self._checkpoints.write_clean_ends()
                await self._log_starts.write_periodically()
                for partition in list(self._outdated):
                    self._finish_if_written(partition)
                if self._outdated:
                    await asyncio.sleep(RETRY_S)
        finally:
            self._writing = None

    def _end(self, partition: Partition) -> None:
        if partition.state is not None:
            partition.flushing.resume()
        running = self._running.pop(partition)
        if not running.done():
            running.set_result(None)
