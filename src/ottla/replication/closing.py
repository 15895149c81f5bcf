"""Flushing and closing all logs at shutdown.

The fsyncs run beside each other, a few logs at a time: a file system syncs many files for little more than one.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence

from ottla.replication.partition import Partition
from ottla.replication.replicas import Replicas
from ottla.storage.directories import DataDirectory
from ottla.storage.disk_errors import FailedSync, describe_error
from ottla.storage.log import Flush
from ottla.system.threads import Offload

logger = logging.getLogger(__name__)

CLOSED_AT_ONCE = 64
FLUSHING_THREADS = 4


async def close_logs(replicas: Replicas, offload: Offload) -> list[DataDirectory]:
    """Flush and close every log. Returns the data directories in which all of them closed without an error.

    A failed fsync leaves its mark in the directory, as it does while the broker serves clients.
    """
    clean = dict.fromkeys(replicas.directories_in_service())
    unsynced: dict[DataDirectory, None] = {}
    partitions = list(replicas)
    for begin in range(0, len(partitions), CLOSED_AT_ONCE):
        closing = partitions[begin : begin + CLOSED_AT_ONCE]
        flushes = await offload(_start_closing, closing)
        shares = [list(flushes.items())[worker::FLUSHING_THREADS] for worker in range(FLUSHING_THREADS)]
        failed_syncs = await asyncio.gather(*(offload(_run_flushes, share) for share in shares if share))
        await offload(_finish_closing, closing, flushes)
        for partition in closing:
            directory = replicas.home(partition)
            if partition.log.has_failed and directory is not None:
                clean.pop(directory, None)
                if any(partition in failed for failed in failed_syncs):
                    unsynced[directory] = None
    for directory in unsynced:
        await offload(directory.distrust)
    return list(clean)


def _start_closing(partitions: Sequence[Partition]) -> dict[Partition, Flush | None]:
    flushes = {}
    for partition in partitions:
        try:
            flushes[partition] = partition.log.start_close()
        except OSError as error:
            _fail(partition, error)
    return flushes


def _run_flushes(flushes: Sequence[tuple[Partition, Flush | None]]) -> list[Partition]:
    """Returns the partitions that had an fsync fail."""
    failed_syncs = []
    for partition, flush in flushes:
        if flush is not None:
            try:
                flush.run()
            except OSError as error:
                _fail(partition, error)
                if isinstance(error, FailedSync):
                    failed_syncs.append(partition)
    return failed_syncs


def _finish_closing(partitions: Sequence[Partition], flushes: Mapping[Partition, Flush | None]) -> None:
    for partition in partitions:
        flush = None if partition.log.has_failed else flushes.get(partition)
        try:
            partition.log.finish_close(flush)
        except OSError as error:
            _fail(partition, error)


def _fail(partition: Partition, error: OSError) -> None:
    partition.log.fail(str(error))
    logger.error("%s could not be closed: %s", partition, describe_error(error))
