"""The metadata log, as the rest of the broker sees it: entries in one order, appended by compare-and-set."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ottla.cluster.changes import Change
from ottla.cluster.image import Image


class Conflict(Exception):
    """Somebody else's entry took the place. Read up to the head and decide again; never send the same once more."""


@dataclass(frozen=True, slots=True)
class Entry:
    """Changes that count together. `id` is random: after an unknown outcome the writer finds its own entry by it.

    A `snapshot` stands for every entry up to its version, and replays from nothing.
    """

    version: int
    id: bytes
    changes: tuple[Change, ...]
    snapshot: bool = False


class MetadataLog(Protocol):
    async def append(self, expected_version: int, entry_id: bytes, changes: Sequence[Change]) -> int:
        """Durable as the entry after `expected_version`, whose version it returns; Conflict if that is not the head."""

    async def read(self, after: int) -> Sequence[Entry]:
        """Every entry after version `after` up to the head of this moment, in order; the first may be a snapshot."""

    async def grown(self, beyond: int) -> None:
        """Returns when there is an entry after version `beyond`."""

    def wants_snapshot(self) -> bool:
        """Whether enough has been appended since the last snapshot to replace it by a new one."""

    async def save_snapshot(self, image: Image) -> None:
        """Keep a snapshot of the image, then forget entries that two snapshots cover."""
