"""Leader epochs of a partition's batches, against each other and against `leader-epoch-checkpoint`.

Neither a batch's epoch nor the file is covered by a checksum. Epochs never decrease from one batch to the next; where
they do, a batch is wrong, and rebuilding the file from the batches would spoil the file. Otherwise, if the file
contradicts several batches, the file is wrong; if it contradicts only the last batch, nothing tells which is wrong.
"""

from bisect import bisect_right

from ottla.records.batch import BatchHeader
from ottla.storage.epochs import UNDEFINED, LeaderEpochs
from ottla.storage.files import Disk


class EpochHistory:
    """Compares epochs batch by batch. `follow` has to be called for every batch in order, then `finish`."""

    def __init__(self, disk: Disk, path: str, *, flushed_to: int, log_start: int) -> None:
        """Below `flushed_to` the epochs must be in the file; above it, recovery would write them there.

        The file need not have epochs before the log's start, even if there are records.
        """
        self._flushed_to = flushed_to
        self._log_start = log_start
        self._file: LeaderEpochs | None = None
        self._starts: list[int] = []
        self.problem = ""
        """What is wrong with the file."""
        self.went_back = ""
        """What is wrong with a batch."""
        self._latest = UNDEFINED
        self._latest_offset = -1
        self._difference = ""
        self._differing: list[int] = []
        """The base offsets of batches whose epoch is not the file's."""
        try:
            self._file = LeaderEpochs.load(disk, path)
        except FileNotFoundError:
            return
        except ValueError as error:
            self.problem = str(error).removeprefix(f"{path}: ")
            return
        self._starts = [start for _, start in self._file.entries]
        if self._file.encode() != disk.read(path):
            self.problem = "no broker writes it like this"

    @property
    def first_start(self) -> int | None:
        """Where the first epoch begins: at the log's start, once the file was written after that moved."""
        return self._starts[0] if self._starts else None

    def follow(self, header: BatchHeader) -> None:
        epoch, offset = header.leader_epoch, header.base_offset
        if epoch < max(self._latest, UNDEFINED):
            self.went_back = self.went_back or (
                f"offset {offset} is of leader epoch {epoch}, offset {self._latest_offset} before it of {self._latest}"
            )
        self._latest, self._latest_offset = epoch, offset
        self._compare(header)

    def _compare(self, header: BatchHeader) -> None:
        known_from = max(header.base_offset, self._log_start)
        if known_from > header.last_offset or header.base_offset >= self._flushed_to or self.problem:
            return
        known = self._file.epoch_at(known_from) if self._file is not None else UNDEFINED
        if known != header.leader_epoch:
            difference = f"offset {known_from} is of epoch {header.leader_epoch}, the file says {known}"
            self._difference = self._difference or difference
            self._differing.append(header.base_offset)
        entry = bisect_right(self._starts, known_from)
        if entry < len(self._starts) and self._starts[entry] <= header.last_offset:
            self.problem = f"it has an epoch that begins at {self._starts[entry]}, in the middle of a batch"

    def finish(self, end_offset: int) -> None:
        """Decide after the last batch whether the file or a batch is wrong."""
        if self.problem or self.went_back:
            return
        if self._file is not None and self._differing == [self._latest_offset]:
            self.went_back = f"{self._difference}, and it is unknown which of both is wrong"
        elif self._differing:
            self.problem = self._difference
        elif self._starts and self._starts[-1] > end_offset:
            self.problem = f"its last epoch begins at {self._starts[-1]}, the log ends at {end_offset}"
