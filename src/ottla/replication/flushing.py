"""The flushes of one partition. One is in flight at a time, and all records that are appended meanwhile share the next:
group commit. A truncation, and whatever else writes the same files, takes turns with them.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from ottla.config.topic import LONG_MAX
from ottla.errors import ErrorCode, KafkaError
from ottla.storage.disk_errors import describe_error, is_failure
from ottla.storage.log import Flush, Log
from ottla.system.threads import Offload

if TYPE_CHECKING:
    from ottla.replication.partition import Partition

logger = logging.getLogger(__name__)

RETRY_S = 1.0
"""Seconds until a flush is tried again after the disk was full."""


class Flushing:
    __slots__ = (
        "_after",
        "_holders",
        "_in_flight",
        "_offload",
        "_partition",
        "_retry",
        "_unflushed_since",
        "threads",
        "wanted",
    )

    def __init__(self, partition: "Partition", offload: Offload) -> None:
        self._partition = partition
        self._offload = offload
        self._in_flight: Flush | None = None
        self.wanted = 0
        """The offset before which all records are to be durable, as it was last requested."""
        self.threads: frozenset[asyncio.Future[Any]] = frozenset()
        """Work in threads that opens files of this log by their paths: flushes, truncations and others."""
        self._retry: asyncio.TimerHandle | None = None
        self._after: list[Callable[[], None]] = []
        self._holders = 0
        self._unflushed_since: float | None = None

    def request(self) -> None:
        """Make durable what is in the log now. `Partition.durable` says when it is."""
        self.wanted = self._partition.log.end_offset
        self.start()

    def start(self) -> None:
        """Begin a flush that nobody waits for, unless one is in flight."""
        if self._holders or self._in_flight is not None:
            return
        log = self._partition.log
        try:
            flush = self._in_flight = log.start_flush()
        except OSError as error:
            self._handle_error(error)
            return
        if flush is not None:
            self.track(self._offload(flush.run)).add_done_callback(partial(self._handle_flush, log))

    def track(self, thread: "asyncio.Future[Any]") -> "asyncio.Future[Any]":
        """Count this among `threads` until it is done."""
        self.threads |= {thread}
        thread.add_done_callback(self._forget)
        return thread

    def _forget(self, thread: "asyncio.Future[Any]") -> None:
        self.threads -= {thread}

    def hold(self, action: Callable[[], None]) -> None:
        """Start no flush until everyone who called this has called `resume`.

        `action` is called when no flush is in flight, which may be now. It may write the same files as a flush.
        """
        self._holders += 1
        if self._in_flight is None:
            action()
        else:
            self._after.append(action)

    @property
    def is_held(self) -> bool:
        return self._holders > 0

    def resume(self) -> None:
        self._holders -= 1
        if self._holders:
            return
        partition = self._partition
        end_offset = partition.log.end_offset
        self.wanted = end_offset if partition.config.flush_messages == 1 else min(self.wanted, end_offset)
        if partition.log.recovery_point < self.wanted and not partition.log.has_failed:
            self.start()

    def apply_flush_ms(self, now: float) -> None:
        """Called once a second: `_unflushed_since` is when a call first found unflushed records."""
        log, flush_ms = self._partition.log, self._partition.config.flush_ms
        if flush_ms == LONG_MAX or log.recovery_point >= log.end_offset:
            self._unflushed_since = None
        elif self._unflushed_since is None:
            self._unflushed_since = now
        if self._unflushed_since is not None and (now - self._unflushed_since) * 1000 >= flush_ms:
            self._unflushed_since = None
            self.request()

    @property
    def is_put_off(self) -> bool:
        """Whether a flush is tried again soon, because the disk was full."""
        return self._retry is not None

    def _handle_flush(self, log: Log, future: asyncio.Future[Any]) -> None:
        self._finish(log, future)
        actions, self._after = self._after, []
        for action in actions:
            action()

    def _finish(self, log: Log, future: asyncio.Future[Any]) -> None:
        partition = self._partition
        flush, self._in_flight = self._in_flight, None
        error = None if future.cancelled() else future.exception()
        if future.cancelled() or flush is None or partition.state is None:
            return  # the replica was retired meanwhile
        if log is not partition.log:  # it was moved to another data directory meanwhile
            self.request()
            return
        if error is not None:
            self._handle_error(error)
            return
        log.finish_flush(flush)
        partition.note_flushed()
        if log.recovery_point < self.wanted:
            self.start()

    def _handle_error(self, error: BaseException) -> None:
        if isinstance(error, OSError) and not is_failure(error):
            self._put_off(error)
        else:
            self._partition.fail(f"flush failed: {error}")

    def _put_off(self, error: OSError) -> None:
        """No room for the leader epochs, or no descriptor: waiting producers get an error, the flush is tried again."""
        partition, reason = self._partition, describe_error(error)
        logger.warning("%s cannot be flushed, the next attempt is in %.0f s: %s", partition, RETRY_S, reason)
        partition.log.note_unsaved()
        partition.note_refusal(error)
        partition.fail_waiters(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, reason))
        if self._retry is None:
            self._retry = asyncio.get_running_loop().call_later(RETRY_S, self._try_again)

    def _try_again(self) -> None:
        self._retry = None
        if self._partition.state is not None and not self._partition.log.has_failed:
            self.start()
