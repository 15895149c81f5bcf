"""Directories of deleted partitions: renamed `-delete` first, so that the name is free, and removed after a delay."""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from itertools import islice

from ottla.config import BrokerConfig
from ottla.replication.directory_failures import DirectoryFailures
from ottla.replication.partition import Partition
from ottla.replication.removals import Removals
from ottla.storage.directories import DELETE, DataDirectory
from ottla.storage.disk_errors import describe_error
from ottla.storage.files import Disk
from ottla.storage.leftovers import remove_tree

logger = logging.getLogger(__name__)

RENAMED_AT_ONCE = 100
"""Directories that are renamed in one iteration of the loop: a topic may have thousands of partitions."""


class DeletedPartitions:
    def __init__(
        self,
        disk: Disk,
        removals: Removals,
        failures: DirectoryFailures,
        unique: Callable[[], str],
        settings: Callable[[], BrokerConfig],
    ) -> None:
        self._disk = disk
        self._removals = removals
        self._failures = failures
        self._unique = unique
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[str, tuple[Partition, DataDirectory]] = {}
        """Directories that still have the name of a live partition."""

    def add(self, partition: Partition, directory: DataDirectory) -> None:
        self._waiting[partition.log.directory] = partition, directory

    def rename_some(self) -> None:
        """Rename directories, a few in each iteration of the loop. If the process dies, the next start goes on."""
        for path in list(islice(self._waiting, RENAMED_AT_ONCE)):
            self._rename(path)
        if self._waiting:
            self._loop.call_soon(self.rename_some)

    def rename_all(self) -> None:
        for path in list(self._waiting):
            self._rename(path)

    def free(self, path: str) -> None:
        """A new partition needs the path: rename the deleted one that still has it, if there is one."""
        if path in self._waiting:
            self._rename(path)

    def remove(self, path: str) -> None:
        """Remove a directory that has the mark of deletion already, after file.delete.delay.ms."""
        self._removals.add(self._settings().log_segment_delete_delay_ms, partial(remove_tree, self._disk, path))

    def _rename(self, path: str) -> None:
        partition, directory = self._waiting.pop(path)
        target = directory.marked_path(partition.topic, partition.index, self._unique(), DELETE)
        try:
            self._disk.rename(path, target)
        except OSError as error:
            logger.error("%s cannot be renamed: %s", path, describe_error(error))
            self._failures.report(directory, describe_error(error))
        else:
            self.remove(target)
