"""Copies a log into another directory while it is appended to.

A copy has whole batches, so it begins where the batch does that the log start is within. `create_copy`, `begin_copy_at`
and `append_pieces` may run in a thread. Which pieces of the log are copied next is decided between the appends to it.
"""

from ottla.errors import KafkaError
from ottla.storage import names
from ottla.storage.disk_errors import describe_error, is_failure
from ottla.storage.files import Disk, FileSlice
from ottla.storage.index import IndexCache
from ottla.storage.log import Log
from ottla.storage.log_read import LogRead
from ottla.storage.opening import create_log
from ottla.storage.truncation import finish_truncation, start_anew


class UnreadableLog(Exception):
    """The log cannot be read, which is no fault of the directory that gets the copy.

    `is_shortage`: it may be readable later, for instance when there are descriptors again.
    """

    def __init__(self, message: str, is_shortage: bool) -> None:
        super().__init__(message)
        self.is_shortage = is_shortage


def create_copy(disk: Disk, path: str, log: Log, start_offset: int, now_ms: int) -> Log:
    """Create an empty copy that begins at `start_offset`, with the mark of one that is not complete."""
    # A cache of its own: the copy is written by threads.
    copy = create_log(disk, path, log.topic_id, log.settings, now_ms, cache=IndexCache())
    disk.open(f"{path}/{names.MOVING}", create=True).close()
    disk.fsync_directory(path)
    disk.fsync_directory(path.rpartition("/")[0])
    if start_offset:
        begin_copy_at(copy, start_offset, now_ms)
    return copy


def begin_copy_at(copy: Log, offset: int, now_ms: int) -> None:
    """Remove all records of the copy, and begin at `offset`."""
    truncation = start_anew(copy, offset, now_ms)
    truncation.run()
    finish_truncation(copy, truncation)


def find_begin(log: Log) -> int:
    """Where a copy has to begin: at the log start, or where the batch begins that the log start is within."""
    start = log.log_start_offset
    found = _read(log, start, 0)
    return start if found is None else min(start, found.base_offset)


def find_pieces(log: Log, copied_to: int, max_bytes: int) -> list[FileSlice]:
    """Up to `max_bytes` of records that a copy needs which ends at `copied_to`."""
    pieces: list[FileSlice] = []
    size, offset = 0, max(copied_to, log.log_start_offset)
    while offset < log.end_offset and size < max_bytes:
        found = _read(log, offset, max_bytes - size)
        if found is None:
            break
        pieces.append(found.slice)
        size += found.slice.length
        offset = found.next_offset
    return pieces


def append_pieces(copy: Log, pieces: list[FileSlice], now_ms: int) -> None:
    """Append records of the log to the copy. UnreadableLog if they cannot be read; other errors are the copy's."""
    for piece in pieces:
        try:
            records = piece.read()
        except OSError as error:
            raise UnreadableLog(describe_error(error), not is_failure(error)) from None
        copy.append_as_follower(records, now_ms)


def copy_state(copy: Log, log: Log) -> None:
    """Copy what the directory of a log holds besides records: its leader epochs, and where its tombstones are gone."""
    copy.epochs.clear()
    for epoch, start in log.epochs.entries:
        copy.epochs.assign(epoch, start)
    copy.removed_deletes.take_over(log.removed_deletes.before)


def _read(log: Log, offset: int, max_bytes: int) -> LogRead | None:
    """What the log has from `offset` on. UnreadableLog if it is damaged there, or its disk fails."""
    try:
        return log.read(offset, max_bytes, up_to=log.end_offset, at_least_one=True)
    except KafkaError as error:
        cause = error.__cause__
        raise UnreadableLog(str(error), isinstance(cause, OSError) and not is_failure(cause)) from None
