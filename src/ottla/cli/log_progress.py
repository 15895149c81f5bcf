"""How far `ottla log verify` is: the size of the segments that it has opened, of all that there are."""

import os
from collections.abc import Iterable

from ottla.cli.progress import ProgressLine, is_watched
from ottla.storage import names
from ottla.storage.files import RealDisk, RealFile


def measure_segments(paths: Iterable[str]) -> int:
    """The bytes of all segments below these directories; 0 if nobody watches."""
    if not is_watched():
        return 0
    return sum(
        os.path.getsize(os.path.join(directory, file))
        for path in paths
        for directory, _, files in os.walk(path)
        for file in files
        if file.endswith(names.LOG)
    )


class WatchedDisk(RealDisk):
    """Shows the progress whenever a segment is opened: each is read once, from its beginning to its end."""

    def __init__(self, progress: ProgressLine) -> None:
        super().__init__()
        self._progress = progress
        self._done = 0

    def open_read(self, path: str) -> RealFile:
        if path.endswith(names.LOG):
            self._progress.show(self._done, f"{self._done / 1e6:,.0f} MB")
            self._done += self.size(path)
        return super().open_read(path)
