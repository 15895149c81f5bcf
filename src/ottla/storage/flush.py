"""The fsyncs that make a log durable up to an offset.

`Log.start_flush` collects them on the log's thread, `Flush.run` may run on any thread, and `Log.finish_flush` takes
note of the result on the log's thread.
"""

from collections.abc import Mapping, Sequence

from ottla.storage.disk_errors import FailedSync
from ottla.storage.files import File
from ottla.storage.segments import Segments

_CHUNK_BYTES = 1 << 20


class Flush:
    """The fsyncs that make everything before `end_offset` survive a power cut. `run` touches nothing of the log.

    The files stay open until it has run, so it must be run exactly once.
    """

    __slots__ = (
        "_directories",
        "_disk",
        "_files",
        "_paths",
        "_unsaved",
        "created",
        "end_offset",
        "sealed",
        "truncations",
    )

    def __init__(
        self,
        files: Segments,
        unsaved: Mapping[str, bytes],
        *,
        recovery_point: int,
        end_offset: int,
        truncations: int,
        closing: bool,
    ) -> None:
        """`unsaved`: paths and contents of small files that belong to these records.

        `closing`: the index files of the active segment have been written, and are synced as well.
        """
        self._disk = files.disk
        self._files = [segment.file for segment in files.items[files.index_of(recovery_point) :]]
        self._paths = files.list_paths_to_sync(recovery_point, closing)
        self._directories = files.list_directories_to_sync(closing)
        self.end_offset = end_offset
        self.created = files.created
        """How many files the log had created: later ones need another fsync of the directory."""
        self.sealed = tuple(files.sealed)
        """The segments whose index files are on the disk after this flush."""
        self.truncations = truncations
        """How often the log had been truncated. After a later truncation this flush says nothing about the log."""
        _pin(self._files)  # a segment may be dropped, renamed or closed while it is synced
        self._unsaved = unsaved

    def run(self) -> None:
        """OSError if the disk fails or has no room; then nothing counts as durable."""
        try:
            for file in self._files:
                sync(file)
        finally:
            for file in self._files:
                file.unpin()
        for path in self._paths:
            try:
                file = self._disk.open(path)
            except FileNotFoundError:
                continue  # no such index, or retention was faster
            try:
                sync(file)
            finally:
                file.close()
        for directory in self._directories:
            self._disk.fsync_directory(directory)
        for path, content in self._unsaved.items():
            self._disk.replace(path, content)


def sync(file: File) -> None:
    """FailedSync if the system could not write the file: it will not try again, although the bytes can be read."""
    file.pin()  # an error here is none of the fsync: there are no more descriptors
    try:
        file.fsync()
    except OSError as error:
        raise FailedSync(error.errno, error.strerror, file.path) from error
    finally:
        file.unpin()


def _pin(files: Sequence[File]) -> None:
    """Pin all files, or none if there are not enough descriptors."""
    pinned: list[File] = []
    try:
        for file in files:
            file.pin()
            pinned.append(file)
    except OSError:
        for file in pinned:
            file.unpin()
        raise


def write_again(file: File, begin: int) -> None:
    """Write the bytes from `begin` on once more, so that the next fsync writes them to the disk.

    After a failed fsync the system takes the pages for written: they can be read as long as they are in memory, and no
    later fsync tries to write them. An earlier process may have seen such a failure.
    """
    for position in range(begin, file.size, _CHUNK_BYTES):
        file.write_at(position, file.read_at(position, _CHUNK_BYTES))
