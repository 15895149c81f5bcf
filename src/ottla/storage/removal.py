"""Files of dropped segments that wait to be unlinked: handed over on the log's thread, unlinked on any thread."""

import contextlib
from collections.abc import Sequence

from ottla.storage.files import Disk, File


class Removal:
    """`run` does not touch the log, so it can run in a thread: unlinking large files takes a while."""

    __slots__ = ("_disk", "_doomed")

    def __init__(self, disk: Disk, doomed: Sequence[tuple[str, File | None]]) -> None:
        self._disk = disk
        self._doomed = doomed

    def run(self) -> None:
        """Unlink the files. After an error it can be run again, or the next start deletes the rest."""
        for path, file in self._doomed:
            if file is not None:
                file.close()
            with contextlib.suppress(FileNotFoundError):  # its topic was deleted meanwhile, the directory renamed
                self._disk.unlink(path)
