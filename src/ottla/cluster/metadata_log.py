"""The interface of a metadata log: a sequence of entries, appended by compare-and-set on the version of the newest."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ottla.cluster.changes import Change
from ottla.cluster.image import Image


class Conflict(Exception):
    """Another entry was appended first. Read up to the head and decide again; never append the same entry again."""


@dataclass(frozen=True, slots=True)
class Entry:
    """Changes that are applied together. `id` is random: by it a writer finds out whether its append succeeded.

    A `snapshot` replaces every entry up to its version, and is replayed from the empty image.
    """

    version: int
    id: bytes
    changes: tuple[Change, ...]
    snapshot: bool = False


class MetadataLog(Protocol):
    async def append(self, expected_version: int, entry_id: bytes, changes: Sequence[Change]) -> int:
        """Append an entry after `expected_version`, durably. Returns its version. Conflict if that is not the head."""

    async def read(self, after: int) -> Sequence[Entry]:
        """Every entry after version `after` up to the present head, in order. The first may be a snapshot."""

    async def wait_for_growth(self, beyond: int) -> None:
        """Returns when there is an entry after version `beyond`."""

    def wants_snapshot(self) -> bool:
        """Whether enough was appended since the last snapshot to make a new one worthwhile."""

    async def save_snapshot(self, image: Image) -> None:
        """Save a snapshot of the image, then remove the entries that two snapshots cover."""
