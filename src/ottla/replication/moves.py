"""Moves of replicas between the data directories of this broker (AlterReplicaLogDirs, KIP-113).

The log is copied into the other data directory while it is read and written as before. When the copy has caught up, the
partition switches to it within one iteration of the event loop, and the old directory is removed. The copy has the
name of a live partition from the start. Until it is complete, it holds a file because of which the next start of the
broker removes it; after a crash the move has to be requested again.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from ottla.config import BrokerConfig
from ottla.errors import ErrorCode, KafkaError
from ottla.replication.checkpoints import Checkpoints
from ottla.replication.deleted_partitions import DeletedPartitions
from ottla.replication.directory_failures import DirectoryFailures
from ottla.replication.log_starts import LogStarts
from ottla.replication.partition import Partition
from ottla.replication.replicas import Replicas
from ottla.replication.throttles import ReplicationThrottle
from ottla.storage import copying, names
from ottla.storage.copying import UnreadableLog
from ottla.storage.directories import DataDirectory
from ottla.storage.disk_errors import describe_error, is_failure
from ottla.storage.files import Disk
from ottla.storage.log import Log
from ottla.system.clock import Clock
from ottla.system.threads import Offload, wait_out
from ottla.topic_partition import TopicPartition

logger = logging.getLogger(__name__)

STEP_BYTES = 4 * 1024 * 1024
"""Bytes that are copied in one step, in a thread."""
LAST_STEP_BYTES = 128 * 1024
"""Bytes that may be left for the last step, which is done within one iteration of the event loop."""
PREFERRED_MAX = 100_000
"""Replicas that are not here yet whose directory is remembered. The oldest choice is forgotten first."""
PATH_POLL_S = 0.01
"""How often a move looks whether the path of its copy is free."""
SWITCH_RETRY_S = 0.01
"""Seconds until the next attempt to switch: too much was appended meanwhile, or the log is being truncated."""
RETRY_S = 1.0
"""Seconds until a move goes on after the disk was full."""


@dataclass(slots=True)
class Move:
    """A replica on its way to another data directory."""

    partition: Partition
    target: DataDirectory
    copy: Log | None = None
    truncations: int = 0
    """How often the log had been truncated when the copy was begun."""
    task: asyncio.Task[None] | None = None

    @property
    def size(self) -> int:
        return 0 if self.copy is None else self.copy.size

    @property
    def lag(self) -> int:
        """How many offsets the copy is behind the log."""
        end = self.partition.log.end_offset
        return end if self.copy is None else max(end - self.copy.end_offset, 0)


class _Changed(Exception):
    """The log was truncated while it was copied: the copy has records that the log no longer has."""


class Moves:
    def __init__(
        self,
        replicas: Replicas,
        checkpoints: Checkpoints,
        log_starts: LogStarts,
        deleted: DeletedPartitions,
        failures: DirectoryFailures,
        disk: Disk,
        clock: Clock,
        offload: Offload,
        settings: Callable[[], BrokerConfig],
    ) -> None:
        self._replicas = replicas
        self._checkpoints = checkpoints
        self._log_starts = log_starts
        self._deleted = deleted
        self._failures = failures
        self._disk = disk
        self._clock = clock
        self._offload = offload
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._moves: dict[Partition, Move] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        """Tasks of the moves under way, and of ended ones that still write checkpoints or remove a copy."""
        self.throttle = ReplicationThrottle(
            lambda: settings().replica_alter_log_dirs_io_max_bytes_per_second, self._loop.time
        )

    def __iter__(self) -> Iterator[Move]:
        """The moves under way."""
        return iter(self._moves.values())

    def find_directory(self, path: str) -> DataDirectory:
        """The data directory with this path. KafkaError if there is none, it has failed, or gets no new replicas."""
        for directory in self._replicas.directories:
            if directory.path == path:
                if directory.failure is not None:
                    raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{path} has failed: {directory.failure}")
                if self._settings().is_cordoned(path):
                    raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{path} is cordoned")
                return directory
        raise KafkaError(ErrorCode.LOG_DIR_NOT_FOUND, f"{path} is no data directory of this broker")

    def move(self, partition: Partition, target: DataDirectory) -> None:
        """Begin to move a replica. A move of it to another directory that is under way is given up."""
        known = self._moves.get(partition)
        if known is not None:
            if known.target is target:
                return
            self.cancel(partition)
        if self._replicas.home(partition) is target:
            return
        move = self._moves[partition] = Move(partition, target)
        partition.moving_to = target
        logger.info("%s: is moved to %s", partition, target.path)
        move.task = self._loop.create_task(self._carry_out(move), name=f"move of {partition}")
        self._tasks.add(move.task)
        move.task.add_done_callback(self._tasks.discard)

    def prefer(self, partition: TopicPartition, target: DataDirectory) -> None:
        """Create the replica in this directory if it comes to this broker. The choice is lost with a restart."""
        preferred = self._replicas.preferred
        preferred.pop(partition, None)
        preferred[partition] = target
        if len(preferred) > PREFERRED_MAX:
            del preferred[next(iter(preferred))]

    def cancel(self, partition: Partition) -> None:
        """Give up the move of a replica. Its copy is removed, as soon as no thread is at work in it."""
        move = self._moves.get(partition)
        if move is not None:
            self._end(move)
            if move.task is not None:
                move.task.cancel()
                self._deleted.hold_path(move.target.partition_path(partition.topic, partition.index), move.task)

    async def close(self) -> None:
        """Give up all moves, and return when none runs."""
        for partition in list(self._moves):
            self.cancel(partition)
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # One move

    async def _carry_out(self, move: Move) -> None:
        partition = move.partition
        path = move.target.partition_path(partition.topic, partition.index)
        try:
            while not await self._try(move, path):
                await asyncio.sleep(RETRY_S)
        finally:
            self._discard(move, path)
            self._end(move)

    def _end(self, move: Move) -> None:
        """The replica is not moving any more."""
        if self._moves.get(move.partition) is move:
            del self._moves[move.partition]
            move.partition.moving_to = None

    async def _try(self, move: Move, path: str) -> bool:
        """Copy and switch. Returns whether the move is over; otherwise it is tried again."""
        try:
            await self._copy(move, path)
        except _Changed:
            self._discard(move, path)
            return False
        except UnreadableLog as error:
            return self._is_over_without(move, error)
        except (KafkaError, OSError) as error:
            return self._is_over_after(move, error)
        await self._checkpoints.write_recovery_points()
        await self._checkpoints.write_clean_ends()
        await self._log_starts.write_periodically()
        await self._checkpoints.write_high_watermarks()
        return True

    def _is_over_without(self, move: Move, error: UnreadableLog) -> bool:
        """Whether a log that cannot be read ends the move. A shortage does not."""
        if error.is_shortage:
            logger.warning("%s: the move to %s waits: %s", move.partition, move.target.path, error)
        else:
            logger.error("%s: is not moved to %s: %s", move.partition, move.target.path, error)
        return not error.is_shortage

    def _is_over_after(self, move: Move, error: KafkaError | OSError) -> bool:
        """Whether an error of the copy ends the move. A full disk does not."""
        partition, path = move.partition, move.target.path
        cause = error.__cause__ if isinstance(error, KafkaError) else error
        if not isinstance(cause, OSError):
            logger.error("%s: is not moved to %s: %s", partition, path, error)
            return True
        if is_failure(cause):
            self._failures.report(move.target, describe_error(cause))
            return True
        logger.warning("%s: the move to %s waits for room: %s", partition, path, describe_error(cause))
        return False

    async def _copy(self, move: Move, path: str) -> None:
        """Copy the log, and switch to the copy. Returns also if the replica is not served here any more."""
        partition = move.partition
        if move.copy is None:
            await self._create(move, path)
        while (copy := move.copy) is not None and self._is_wanted(move):
            log = partition.log
            if log.truncations != move.truncations or log.end_offset < copy.end_offset:
                raise _Changed
            begin = copying.find_begin(log)
            if copy.end_offset < begin:
                try:
                    await self._step(copying.begin_copy_at, copy, begin, self._clock.now_ms())
                except OSError:
                    self._discard(move, path)  # nothing in it is needed
                    raise
            pieces = copying.find_pieces(log, copy.end_offset, STEP_BYTES)
            if sum(piece.length for piece in pieces) <= LAST_STEP_BYTES:
                await self._step(copy.flush)
                if not _knows_log_start(move):
                    await wait_out(self._loop.create_task(self._log_starts.write_in(move.target)))
                if self._is_wanted(move) and log.truncations == move.truncations and self._switch(move, path):
                    return
                await asyncio.sleep(SWITCH_RETRY_S)
                continue
            try:
                await self._step(copying.append_pieces, copy, pieces, self._clock.now_ms())
            except (KafkaError, UnreadableLog):
                if log.truncations != move.truncations:  # what the thread has read may have been cut off or overwritten
                    raise _Changed from None
                again = copying.find_pieces(log, copy.end_offset, STEP_BYTES)
                if [piece.file for piece in again] == [piece.file for piece in pieces]:
                    raise
                continue  # retention or compaction has removed a segment
            self.throttle.record(sum(piece.length for piece in pieces))
            while (wait_s := self.throttle.wait_s()) > 0:
                await asyncio.sleep(wait_s)

    def _is_wanted(self, move: Move) -> bool:
        return self._moves.get(move.partition) is move and move.target.failure is None

    async def _create(self, move: Move, path: str) -> None:
        """Create an empty copy, which a start after a crash removes. There is none if it is not wanted any more."""
        partition = move.partition
        await self._wait_until_free(move.target, partition.topic_partition, path)
        if not self._is_wanted(move):
            return
        self._deleted.free(path)
        if self._disk.exists(path):
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{path} exists already")
        log = partition.log
        move.truncations = log.truncations
        creating = self._offload(
            copying.create_copy, self._disk, path, log, copying.find_begin(log), self._clock.now_ms()
        )
        try:
            await wait_out(creating)
        finally:
            if creating.done() and not creating.cancelled():
                if creating.exception() is None:
                    move.copy = creating.result()  # also if the move was cancelled: then the copy is removed
                else:
                    self._remove(move, path)

    async def _wait_until_free(self, target: DataDirectory, partition: TopicPartition, path: str) -> None:
        """Returns when an earlier stay of the replica in this directory has left no offsets, and no thread at work."""
        while self._deleted.is_in_use([path]) or target.mentions([partition]):
            if self._deleted.is_in_use([path]) or self._checkpoints.is_writing:
                await asyncio.sleep(PATH_POLL_S)
            else:
                target.forget([partition])

    async def _step(self, function: Callable[..., object], *args: object) -> None:
        """Run a step in a thread."""
        await wait_out(self._offload(function, *args))

    def _discard(self, move: Move, path: str) -> None:
        """Remove the copy, if there is one."""
        copy, move.copy = move.copy, None
        if copy is not None:
            copy.abandon()
            self._remove(move, path)

    def _remove(self, move: Move, path: str) -> None:
        """Remove the copy's directory. No other replica has its path as long as the task runs."""
        if self._disk.exists(path):
            self._deleted.add_copy(move.partition, move.target, path)
            self._deleted.rename_some()

    def _switch(self, move: Move, path: str) -> bool:
        """Copy the rest and switch to the copy, unless more was appended meanwhile than can be copied now."""
        partition, target, copy, log = move.partition, move.target, move.copy, move.partition.log
        home = self._replicas.home(partition)
        assert copy is not None and home is not None
        if copy.end_offset < copying.find_begin(log) or partition.flushing.is_held or not _knows_log_start(move):
            return False
        pieces = copying.find_pieces(log, copy.end_offset, STEP_BYTES)
        if sum(piece.length for piece in pieces) > LAST_STEP_BYTES:
            return False
        copying.append_pieces(copy, pieces, self._clock.now_ms())
        if copy.end_offset != log.end_offset:
            return False
        copying.copy_state(copy, log)
        if partition.config.flush_messages == 1:
            copy.flush()  # acknowledged records were on disk in the old place
        with suppress(FileNotFoundError):  # an attempt has renamed it, and could not undo that
            self._disk.rename(f"{path}/{names.MOVING}", f"{path}/{names.MOVED}")
        try:
            self._disk.fsync_directory(path)
        except OSError:
            self._disk.rename(f"{path}/{names.MOVED}", f"{path}/{names.MOVING}")  # the log goes on in the old place
            raise
        self._deleted.add(partition, home)
        copy.on_disk_failure = partial(self._failures.report, target)
        partition.switch_log(copy)
        partition.flushing.request()  # what was on disk in the old place must be so here before it is removed there
        move.copy = None
        self._replicas.move(partition, target)
        self._deleted.rename_some()
        self._end(move)  # a later request moves the replica from here
        logger.info("%s: was moved from %s to %s", partition, home.path, target.path)
        return True


def _knows_log_start(move: Move) -> bool:
    """Whether a start after a crash would find the log start in the new place. Deleted records must not come back."""
    partition = move.partition
    return move.target.log_starts.get(partition.topic_partition, 0) == partition.log.log_start_offset
