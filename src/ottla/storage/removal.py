"""Files that left their log and wait to be unlinked: taken on the log's thread, unlinked on any."""

import contextlib
from collections.abc import Sequence

from ottla.storage.files import Disk, File


class Removal:
    """`run` touches nothing of the log, so it may take as long as the disk needs for large files."""

    __slots__ = ("_disk", "_doomed")

    def __init__(self, disk: Disk, doomed: Sequence[tuple[str, File | None]]) -> None:
        self._disk = disk
        self._doomed = doomed

    def run(self) -> None:
        """What is left of it after an error goes with the next opening of the log."""
        for path, file in self._doomed:
            if file is not None:
                file.close()
            with contextlib.suppress(FileNotFoundError):  # its topic was deleted meanwhile, the directory renamed
                self._disk.unlink(path)
