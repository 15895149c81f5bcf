"""Upkeep of the logs: retention, flushes by time, expiry of producers, removal of deleted files.

Each method is a job in the broker's table of background work and goes over all partitions.
"""

import asyncio
import logging
from itertools import islice

from ottla.errors import KafkaError
from ottla.replication.directory_failures import DirectoryFailures
from ottla.replication.log_starts import LogStarts
from ottla.replication.removals import Removals
from ottla.replication.replicas import Replicas
from ottla.system.clock import Clock, SteadyClock

logger = logging.getLogger(__name__)

NEW_LOGS_PER_FLUSH = 100
"""New logs that are flushed at a time, so that producers that wait for an fsync do not wait for all of them."""


class Upkeep:
    def __init__(
        self,
        replicas: Replicas,
        log_starts: LogStarts,
        removals: Removals,
        failures: DirectoryFailures,
        clock: Clock,
    ) -> None:
        self._replicas = replicas
        self._log_starts = log_starts
        self._removals = removals
        self._failures = failures
        self._seconds = asyncio.get_running_loop().time
        self._retention_clock = SteadyClock(clock, self._seconds)

    async def expire_segments(self) -> None:
        """Retention: drop segments that are too old, more than retention.bytes, or below their log's start."""
        now_ms = self._retention_clock.now_ms()
        for partition in list(self._replicas):
            directory = self._replicas.home(partition)
            if directory is not None:
                try:
                    partition.expire(now_ms)
                except KafkaError as error:
                    logger.error("%s: its old segments stay: %s", partition, error.message)
                except OSError as error:
                    self._failures.report_error(directory, f"{partition}: its old segments stay", error)
            await asyncio.sleep(0)
        await self._log_starts.write_periodically()

    async def flush_by_time(self) -> None:
        """flush.ms: no record stays unflushed for longer."""
        now = self._seconds()
        for partition in self._replicas:
            partition.flushing.apply_flush_ms(now)

    async def flush_new_logs(self) -> None:
        """Make new logs durable, even empty ones. A broker that comes back without a log counts as one that lost it.

        Only a cluster needs this: another replica may have the records that a lost log had.
        """
        new = (
            partition
            for partition in self._replicas
            if not partition.log.files.is_directory_durable and not partition.flushing.is_put_off
        )
        for partition in list(islice(new, NEW_LOGS_PER_FLUSH)):
            partition.flushing.request()

    async def expire_producers(self) -> None:
        """producer.id.expiration.ms: forget producers that have not written for as long."""
        now_ms = self._retention_clock.now_ms()
        for partition in self._replicas:
            partition.log.expire_producers(now_ms)

    async def remove_deleted(self) -> None:
        """Remove files and directories that were deleted file.delete.delay.ms ago."""
        for partition in self._replicas:
            self._removals.take_dropped(partition)
        await self._removals.run_due()
