"""Which leader wrote which part of the log: the start offset of each leader epoch.

The file `leader-epoch-checkpoint` is text, as Kafka's: a line with the version 0, a line with the number of entries,
then `epoch start-offset` per line. It is replaced as a whole.

A new epoch is written down with the next flush and not at once: until then its records are above the recovery point,
and recovery reads their epochs from the batches themselves. So no append ever waits for a disk because of an epoch.
"""

from bisect import bisect_left, bisect_right

from ottla.storage.files import Disk

UNDEFINED = -1


class LeaderEpochs:
    __slots__ = ("_disk", "_epochs", "_loaded", "_starts", "is_dirty", "latest", "path")

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self.path = path
        self._epochs: list[int] = []
        self._starts: list[int] = []
        self._loaded: list[tuple[int, int]] = []
        self.latest = UNDEFINED
        """The last epoch; an attribute because every append compares it."""
        self.is_dirty = False

    @classmethod
    def load(cls, disk: Disk, path: str) -> "LeaderEpochs":
        """FileNotFoundError if there is no file, ValueError if its content is not valid."""
        epochs = cls(disk, path)
        version, count, *entries = disk.read(path).decode("ascii").splitlines()
        if int(version) != 0 or int(count) != len(entries):
            raise ValueError(f"{path}: version {version}, {len(entries)} of {count} entries")
        for entry in entries:
            epoch, start = map(int, entry.split(" "))
            if epoch < 0 or start < 0 or (epochs._epochs and (epoch <= epochs.latest or start < epochs._starts[-1])):
                raise ValueError(f"{path}: epoch {epoch} at {start} after epoch {epochs.latest}")
            epochs._put(epoch, start)
        epochs._loaded = epochs.entries
        epochs.is_dirty = False
        return epochs

    @property
    def entries(self) -> list[tuple[int, int]]:
        """Each epoch with its start offset, ascending."""
        return list(zip(self._epochs, self._starts, strict=True))

    @property
    def latest_start(self) -> int:
        """Start offset of the latest epoch. There must be one."""
        return self._starts[-1]

    def is_as_loaded(self, end_offset: int) -> bool:
        """Whether the file needs no change. Epochs without records need not be in it.

        A broker that is restarted leads every partition in a new epoch, and most partitions get no record in it.
        """
        return not self.is_dirty or _keep_before(self.entries, end_offset) == _keep_before(self._loaded, end_offset)

    def assign(self, epoch: int, start_offset: int) -> None:
        """Take note that `epoch` begins at `start_offset`, the end of the log. An epoch keeps its first start."""
        if epoch < 0 or start_offset < 0:
            raise ValueError(f"epoch {epoch} at offset {start_offset}")
        if epoch == self.latest and start_offset >= self._starts[-1]:
            return
        # Epochs that begin at the end of the log have no records. A leader notes its epoch before it has one, and may
        # then copy records of an earlier epoch from the next leader: that epoch goes on where it had ended.
        self._cut(bisect_left(self._starts, start_offset))
        if epoch != self.latest:
            self._cut(bisect_left(self._epochs, epoch))
            self._put(epoch, start_offset)

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """The largest epoch that is not above this one, and its end offset; (-1, -1) if this log does not know.

        This answers OffsetForLeaderEpoch (KIP-101, KIP-279): a replica or consumer finds out where its log and the
        leader's diverge.
        """
        if epoch < 0 or not self._epochs or epoch > self.latest:
            return UNDEFINED, UNDEFINED
        if epoch == self.latest:
            return epoch, log_end_offset
        above = bisect_right(self._epochs, epoch)
        # Below the first known epoch the records are gone, so the follower goes on from what is left.
        return (self._epochs[above - 1] if above else epoch), self._starts[above]

    def epoch_at(self, offset: int) -> int:
        """The epoch that the record at `offset` was, or would be, written in."""
        entry = bisect_right(self._starts, offset) - 1
        return self._epochs[entry] if entry >= 0 else UNDEFINED

    def truncate_from_end(self, end_offset: int) -> None:
        """Forget epochs that start at or after the new end of the log."""
        self._cut(bisect_left(self._starts, end_offset))

    def truncate_from_start(self, start_offset: int) -> None:
        """Forget epochs that ended before the new start of the log; the one it falls into now starts there."""
        entry = bisect_right(self._starts, start_offset) - 1
        if entry > 0 or (entry == 0 and self._starts[0] < start_offset):
            del self._epochs[:entry], self._starts[:entry]
            self._starts[0] = start_offset
            self.is_dirty = True

    def clear(self) -> None:
        self._cut(0)

    def encode(self) -> bytes:
        lines = [f"0\n{len(self._epochs)}\n", *(f"{epoch} {start}\n" for epoch, start in self.entries)]
        return "".join(lines).encode("ascii")

    def take_unsaved(self) -> bytes | None:
        """The content of the file if it has to be written, which is up to the caller from here on; otherwise None."""
        if not self.is_dirty:
            return None
        self.is_dirty = False
        return self.encode()

    def save(self) -> None:
        if self.is_dirty:
            self._disk.replace(self.path, self.encode())
            self.is_dirty = False

    def _put(self, epoch: int, start_offset: int) -> None:
        self._epochs.append(epoch)
        self._starts.append(start_offset)
        self.latest = epoch
        self.is_dirty = True

    def _cut(self, keep: int) -> None:
        if keep < len(self._epochs):
            del self._epochs[keep:], self._starts[keep:]
            self.latest = self._epochs[-1] if self._epochs else UNDEFINED
            self.is_dirty = True


def _keep_before(entries: list[tuple[int, int]], end_offset: int) -> list[tuple[int, int]]:
    return [entry for entry in entries if entry[1] < end_offset]
