"""Files of dropped segments: renamed to `.deleted` first, so that reads which have begun can finish, unlinked later.

Retention and compaction rename on the log's thread, a truncation on any thread (`DroppedFiles`). `Removal` unlinks.
"""

import contextlib
import itertools
import logging
from collections.abc import Iterator, Sequence

from ottla.storage import names
from ottla.storage.disk_errors import describe_error, is_failure
from ottla.storage.files import Disk, File
from ottla.storage.segment import Segment

logger = logging.getLogger(__name__)

Doomed = tuple[str, File | None]
"""The path of a renamed file, and the file if it was open."""


class Removal:
    """`run` does not touch the log, so it can run in a thread: unlinking large files takes a while."""

    __slots__ = ("_disk", "_doomed")

    def __init__(self, disk: Disk, doomed: Sequence[Doomed]) -> None:
        self._disk = disk
        self._doomed = doomed

    def run(self) -> None:
        """Unlink the files. After an error it can be run again, or the next start deletes the rest."""
        for path, file in self._doomed:
            if file is not None:
                file.close()
            with contextlib.suppress(FileNotFoundError):  # its topic was deleted meanwhile, the directory renamed
                self._disk.unlink(path)


class DroppedFiles:
    """Segments and snapshots that a truncation has taken out of a log in memory. `run` takes them out on disk."""

    __slots__ = ("_directory", "_disk", "_segments", "_snapshots", "doomed", "successor")

    def __init__(self, disk: Disk, directory: str, segments: Sequence[Segment], snapshots: Sequence[int]) -> None:
        self._disk = disk
        self._directory = directory
        self._segments = list(segments)
        self._snapshots = list(snapshots)
        self.doomed: list[Doomed] = []
        """The renamed files, after `run`."""
        self.successor: Segment | None = None
        """The empty segment with which the log goes on. `run` creates its file."""

    def run(self) -> None:
        """Rename the segments, the last one first, so that an interruption leaves no hole, and unlink the snapshots.

        After an OSError it can be run again, and goes on where it stopped.
        """
        while self._segments:
            doom_segment(self._disk, self._segments[-1], self.doomed)
            self._segments.pop()
        while self._snapshots:
            with contextlib.suppress(FileNotFoundError):
                self._disk.unlink(names.path(self._directory, self._snapshots[-1], names.SNAPSHOT))
            self._snapshots.pop()
        if self.successor is not None:
            self._create_successor(self.successor)

    def _create_successor(self, segment: Segment) -> None:
        for suffix in names.SEGMENT_SUFFIXES[1:]:  # of a segment with the same base offset
            if self._disk.exists(segment.path(suffix)):
                self._disk.unlink(segment.path(suffix))
        self._disk.open(segment.path(names.LOG), create=True).close()

    def make_room(self) -> None:
        """Unlink at once what `run` has renamed, because the disk is full. Pinned descriptors stay valid."""
        with patience(self._directory):
            Removal(self._disk, self.doomed).run()
            self.doomed.clear()


def doom_segment(disk: Disk, segment: Segment, doomed: list[Doomed]) -> None:
    """Rename a segment's files, to be deleted later. After an OSError all of them have their names.

    The `.log` file decides. Index files without one do no harm: the next start deletes them.
    """
    doom_file(disk, segment.path(names.LOG), segment.open_file, doomed)
    with patience(segment.directory):
        for suffix in names.SEGMENT_SUFFIXES[1:]:
            doom_file(disk, segment.path(suffix), None, doomed)


def doom_file(disk: Disk, path: str, file: File | None, doomed: list[Doomed]) -> None:
    """Rename one file, if it exists, and add it to `doomed`."""
    target = path + names.DELETED
    for number in itertools.count(1):
        if not disk.exists(target):
            break
        # Compacted again within file.delete.delay.ms: a fetch may still read from the earlier file.
        target = f"{path}.{number}{names.DELETED}"
    try:
        disk.rename(path, target)
    except FileNotFoundError:
        return
    if file is not None:
        file.path = target
    doomed.append((target, file))


@contextlib.contextmanager
def patience(directory: str) -> Iterator[None]:
    """Around what makes room and need not happen now: only a failure of the disk is an error."""
    try:
        yield
    except OSError as error:
        if is_failure(error):
            raise
        logger.warning("%s: files stay that are not needed: %s", directory, describe_error(error))
