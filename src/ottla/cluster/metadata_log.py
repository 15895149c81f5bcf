"""The interface of a metadata log: a sequence of entries, appended by compare-and-set on the version of the newest."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from ottla.cluster.changes import Change
from ottla.cluster.image import EMPTY, Image


class Conflict(Exception):
    """Another entry was appended first. Read up to the head and decide again; never append the same entry again."""


class LogUnavailable(Exception):
    """The log cannot be reached at present. Nothing was appended; the same call may succeed later."""


class LogDisconnected(LogUnavailable):
    """There is no connection to the log. It is made again without the caller's help."""


class NotAMember(LogUnavailable):
    """The log takes entries only from brokers that are alive in the cluster, and this one has to register again."""


class NotController(Exception):
    """The entry was decided by the controller, and this broker is no longer the controller. Nothing was appended."""


class LogBehind(Exception):
    """The log ends before entries that this broker has applied: it was lost, or restored from an old copy."""


def check_not_behind(store_name: str, store_version: int, applied_version: int) -> None:
    """LogBehind if the log in the store ends before a version that this broker has applied."""
    if store_version < applied_version:
        raise LogBehind(
            f"the metadata in {store_name} ends at version {store_version}, but this broker has applied version "
            f"{applied_version}: zookeeper.connect names another server or path than before, or what was there is lost "
            f"or was restored from an old copy (ottla cluster restore)"
        )


@dataclass(frozen=True, slots=True)
class Entry:
    """Changes that are applied together. `id` is random: by it a writer finds out whether its append succeeded.

    A `snapshot` replaces every entry up to its version, and is replayed from the empty image.
    """

    version: int
    id: bytes
    changes: tuple[Change, ...]
    snapshot: bool = False


def replay_entries(entries: Iterable[Entry]) -> Image:
    """The image after all entries of a log, or after those from a snapshot on. ReplayError if they do not fit."""
    image = EMPTY
    for entry in entries:
        image = (EMPTY if entry.snapshot else image).replay(entry.version, entry.changes)
    return image


class MetadataLog(Protocol):
    @property
    def is_shared(self) -> bool:
        """Whether others than this broker append to the log."""

    @property
    def obstacle(self) -> str:
        """Why the log cannot be reached now, as far as this broker knows; empty if it can."""

    async def append(
        self, expected_version: int, entry_id: bytes, changes: Sequence[Change], *, as_controller: bool = False
    ) -> int:
        """Append an entry after `expected_version`, durably. Returns its version. Conflict if that is not the head.

        `as_controller`: the entry counts only if this broker is still the controller. Also raises LogUnavailable,
        NotAMember and NotController.
        """

    async def read(self, after: int, *, newest: bool = True) -> Sequence[Entry]:
        """Every entry after version `after` up to the present head, in order. The first may be a snapshot.

        `newest`: include everything that was appended anywhere before this call. Otherwise the answer may be a little
        old, and is faster. Raises LogUnavailable and LogBehind.
        """

    async def wait_for_growth(self, beyond: int) -> None:
        """Returns when there is an entry after version `beyond`."""

    def wants_snapshot(self) -> bool:
        """Whether enough was appended since the last snapshot to make a new one worthwhile."""

    async def save_snapshot(self, image: Image) -> None:
        """Save a snapshot of the image, then remove the entries that two snapshots cover."""
