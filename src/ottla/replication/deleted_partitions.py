"""Directories of deleted partitions: renamed `-delete` first, so that the name is free, and removed after a delay.

Their open files are closed when they are removed, because answers that name records in them may still have to be sent.

A thread may be in the middle of a flush or a truncation, which find files by their paths. A new partition must not have
the path before the thread is done, or its files would be taken for those of the old one. So whoever creates partitions
asks `is_in_use` first.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Any

from ottla.config import BrokerConfig
from ottla.replication.directory_failures import DirectoryFailures
from ottla.replication.discovery import set_aside
from ottla.replication.partition import Partition
from ottla.replication.removals import Removals
from ottla.storage.directories import DELETE, DataDirectory, PartitionDirectory
from ottla.storage.disk_errors import describe_error, is_failure
from ottla.storage.files import Disk, File
from ottla.storage.leftovers import remove_tree

logger = logging.getLogger(__name__)

RENAMED_AT_ONCE = 100
"""Directories that are renamed in one iteration of the loop: a topic may have thousands of partitions."""

RETRY_S = 1.0
"""Seconds until directories are renamed that the disk did not let be renamed."""


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
        self._waiting: dict[str, tuple[Partition, DataDirectory, int]] = {}
        """Directories that still have the name of a live partition, with the delay of their removal in ms."""
        self._put_off: dict[str, tuple[Partition, DataDirectory, int]] = {}
        """Directories that the disk did not let be renamed. They wait apart, so that the others go on."""
        self._open: dict[str, Sequence[File]] = {}
        """Open files of deleted partitions, by the directory they are in."""
        self._in_use: dict[str, set[asyncio.Future[Any]]] = {}
        """By path, the work of threads in a directory that its partition has left, or in the copy of a move."""
        self.on_free: Callable[[], None] | None = None
        """Called whenever one of these paths is free."""
        self._next: asyncio.Handle | None = None
        self._retry: asyncio.Handle | None = None

    def add(self, partition: Partition, directory: DataDirectory) -> None:
        """Take over the partition's log, which is not used any more."""
        self.hold(partition)
        delay_ms = self._settings().log_segment_delete_delay_ms
        path = partition.log.directory
        self._waiting[path] = partition, directory, delay_ms
        if files := partition.log.release():
            self._open[path] = files

    def add_copy(self, partition: Partition, directory: DataDirectory, path: str) -> None:
        """The copy of a partition in another data directory, which nobody reads."""
        self._waiting[path] = partition, directory, 0

    def set_aside(self, partition: Partition, directory: DataDirectory) -> None:
        """Keep the directory as a stray: no entry of the metadata says that the partition was deleted."""
        self.hold(partition)
        path = partition.log.directory
        try:
            held = PartitionDirectory(partition.topic, partition.index, "", path)
            set_aside(self._disk, directory, held, self._unique())
        except OSError as error:
            self._failures.report_error(directory, f"{path} keeps its name", error)

    def hold(self, partition: Partition) -> None:
        """Keep the partition's path until every thread that works for it is done."""
        for thread in partition.flushing.threads:
            self.hold_path(partition.log.directory, thread)

    def hold_path(self, path: str, work: "asyncio.Future[Any]") -> None:
        """Keep a path, so that nothing is created there until this work is done."""
        if not work.done():
            self._in_use.setdefault(path, set()).add(work)
            work.add_done_callback(partial(self._let_go, path))

    def _let_go(self, path: str, work: "asyncio.Future[Any]") -> None:
        self._in_use[path].remove(work)
        if not self._in_use[path]:
            del self._in_use[path]
            if self.on_free is not None:
                self.on_free()

    def is_in_use(self, paths: Iterable[str]) -> bool:
        """Whether one of these paths is kept for a partition that had it before."""
        return bool(self._in_use) and not self._in_use.keys().isdisjoint(paths)

    def rename_some(self) -> None:
        """Rename directories, a few in each iteration of the loop. If the process dies, the next start goes on."""
        if self._next is not None:
            self._next.cancel()
            self._next = None
        last_error: OSError | None = None
        for path in list(islice(self._waiting, RENAMED_AT_ONCE)):
            try:
                self._rename(path, *self._waiting[path])
            except OSError as error:
                last_error = error
                self._put_off[path] = self._waiting[path]
            del self._waiting[path]
        if last_error is not None:
            count = len(self._put_off)
            logger.warning("%d deleted partitions keep their names for now: %s", count, describe_error(last_error))
            if self._retry is None:
                self._retry = self._loop.call_later(RETRY_S, self._try_again)
        if self._waiting:
            self._next = self._loop.call_soon(self.rename_some)

    def _try_again(self) -> None:
        self._retry = None
        self._waiting |= self._put_off
        self._put_off.clear()
        self.rename_some()

    def rename_all(self) -> None:
        """At the end of the broker. What cannot be renamed is when it starts the next time."""
        for handle in (self._next, self._retry):
            if handle is not None:
                handle.cancel()
        for path, deleted in (self._waiting | self._put_off).items():
            with suppress(OSError):
                self._rename(path, *deleted)
        self.close_files()

    def close_files(self) -> None:
        """Close all files at once: the broker ends."""
        while self._open:
            self._close_files_in(next(iter(self._open)))

    def _close_files_in(self, path: str) -> None:
        for file in self._open.pop(path, ()):
            file.close()

    def free(self, path: str) -> None:
        """A new partition needs the path: rename the deleted one that still has it. OSError if that is not possible."""
        for waiting in (self._waiting, self._put_off):
            if path in waiting:
                self._rename(path, *waiting[path])
                del waiting[path]

    def remove(self, path: str) -> None:
        """Remove a directory that has the mark of deletion already, after file.delete.delay.ms."""
        self._remove_after(self._settings().log_segment_delete_delay_ms, path)

    def _remove_after(self, delay_ms: int, path: str) -> None:
        self._removals.add(delay_ms, partial(self._remove, path))

    def _remove(self, path: str) -> None:
        """Runs in a thread."""
        self._close_files_in(path)
        remove_tree(self._disk, path)

    def _rename(self, path: str, partition: Partition, directory: DataDirectory, delay_ms: int) -> None:
        """OSError if it has to be tried again."""
        target = directory.marked_path(partition.topic, partition.index, self._unique(), DELETE)
        try:
            self._disk.rename(path, target)
        except OSError as error:
            if not is_failure(error):
                raise
            self._close_files_in(path)
            self._failures.report_error(directory, f"{path} cannot be renamed", error)
        else:
            if files := self._open.pop(path, ()):
                self._open[target] = files
            for file in files:
                file.path = f"{target}/{file.path.rpartition('/')[2]}"
            self._remove_after(delay_ms, target)
