"""Data directories whose disk fails: their partitions go offline until a restart, all others go on."""

import asyncio
import logging
from collections.abc import Callable

from ottla.errors import ErrorCode, KafkaError
from ottla.replication.partition import Partition
from ottla.replication.replicas import Replicas
from ottla.storage.directories import DataDirectory
from ottla.storage.disk_errors import describe_error, is_failure
from ottla.system.threads import Offload

logger = logging.getLogger(__name__)


class DirectoryFailures:
    def __init__(self, replicas: Replicas, offload: Offload) -> None:
        self._replicas = replicas
        self._offload = offload
        self._loop = asyncio.get_running_loop()
        self._marks: list[asyncio.Future[None]] = []
        self._closing = False
        self.on_failure: Callable[[DataDirectory], None] | None = None
        self.retire: Callable[[Partition, KafkaError], None] = Partition.retire
        """Takes a partition of a failed directory out of service. The broker also ends its move and its copying."""

    def report(self, directory: DataDirectory, reason: str) -> None:
        """A log had an error which shows that its disk fails.

        The log may be in the middle of an operation, so the next iteration of the loop takes the directory offline.
        """
        if not self._closing:
            self._loop.call_soon(self.fail, directory, reason)

    def report_error(self, directory: DataDirectory, what: str, error: OSError) -> None:
        """An operation failed that is tried again later, unless the error shows that the disk fails."""
        logger.log(logging.ERROR if is_failure(error) else logging.WARNING, "%s: %s", what, describe_error(error))
        if is_failure(error):
            self.report(directory, describe_error(error))

    def fail(self, directory: DataDirectory, reason: str) -> None:
        """Take the directory offline now. Nobody knows what is on its disk: only a restart puts it into service again.

        A mark in the directory makes the next start distrust what is in it.
        """
        if directory.failure is not None or self._closing:
            return
        directory.failure = reason
        partitions = self._replicas.take_offline(directory)
        logger.error(
            "%s failed, its %d partitions are offline until a restart: %s", directory.path, len(partitions), reason
        )
        for partition in partitions:
            self.retire(partition, KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, reason))
        self._marks.append(self._offload(directory.distrust))
        if self.on_failure is not None:
            self.on_failure(directory)

    async def close(self) -> None:
        """Ignore failures from now on, and wait until the marks of those that happened are written."""
        self._closing = True
        await asyncio.gather(*self._marks)
