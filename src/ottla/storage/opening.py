"""Creating a log, and opening one that is there."""

from ottla.storage.files import Disk
from ottla.storage.index import IndexCache
from ottla.storage.log import Log
from ottla.storage.partition_metadata import read_topic_id, write_topic_id
from ottla.storage.recovery import OFFSET_MAX, ProgressCallback, Recovery
from ottla.storage.settings import LogSettings


def create_log(
    disk: Disk,
    directory: str,
    topic_id: bytes,
    settings: LogSettings,
    now_ms: int,
    *,
    cache: IndexCache | None = None,
) -> Log:
    """Create an empty log. No fsync is needed: a power cut before the first flush loses only an empty log."""
    is_new = disk.make_directory(directory, durable=False)
    write_topic_id(disk, directory, topic_id)
    log = open_log(
        disk,
        directory,
        settings,
        clean=True,
        recovery_point=0,
        log_start_offset=0,
        now_ms=now_ms,
        cache=cache,
        topic_id=topic_id,
        is_new=is_new,
    )
    log.files.is_directory_durable = False
    return log


def open_log(
    disk: Disk,
    directory: str,
    settings: LogSettings,
    *,
    clean: bool,
    recovery_point: int,
    log_start_offset: int,
    now_ms: int,
    compacted_to: int = OFFSET_MAX,
    begun_here: bool = False,
    lost_nothing: bool = False,
    progress: ProgressCallback | None = None,
    cache: IndexCache | None = None,
    topic_id: bytes | None = None,
    is_new: bool = False,
) -> Log:
    """Open the log in `directory`, with recovery unless it was closed (`clean`). The offsets are the checkpoints'.

    `begun_here` if every record in it is known to have been written by this broker, which has never compacted it.
    `lost_nothing` if only a process ended since it was last written to, and the system has kept what it wrote.
    `topic_id` for a caller that has read it already. `is_new`: there is nothing of a log in the directory yet.
    """
    recovery = Recovery(disk, directory, settings, now_ms, cache or IndexCache(), is_new=is_new)
    recovery.run(
        clean=clean,
        recovery_point=recovery_point,
        log_start_offset=log_start_offset,
        progress=progress,
        compacted_to=compacted_to,
        begun_here=begun_here,
        lost_nothing=lost_nothing,
    )
    return Log(disk, directory, topic_id or read_topic_id(disk, directory), recovery)
