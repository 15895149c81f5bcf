"""Names of the nodes in the coordination store, and the encoding of their data.

    /ottla/head                    version of the newest entry
    /ottla/log/<n>                 entry n: its random id (16 bytes), then the encoded changes
    /ottla/alive/<id>-<n>          ephemeral: the broker that registered at epoch n lives
    /ottla/controller/<n>          ephemeral: the controller that was elected at epoch n lives
    /ottla/broker-ids              the largest id that was generated, or is reserved after a restore
    /ottla/snapshot                which snapshots there are, and the oldest entry that was kept
    /ottla/snapshot/<n>/<i>        part i of the snapshot of version n

Numbers in names are never used twice, because n is the version of the entry that the node was created with.
"""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass

from ottla.cluster.changes import Change
from ottla.cluster.encoding import MalformedEntry, decode, encode
from ottla.cluster.metadata_log import Entry

ROOT = "/ottla"
HEAD = f"{ROOT}/head"
LOG = f"{ROOT}/log"
ALIVE = f"{ROOT}/alive"
CONTROLLER = f"{ROOT}/controller"
SNAPSHOT = f"{ROOT}/snapshot"
BROKER_IDS = f"{ROOT}/broker-ids"
LAYOUT = (ROOT, LOG, ALIVE, CONTROLLER, SNAPSHOT)
"""Nodes that exist in every cluster, besides the head and the broker ids. Parents come first."""

ENTRY_ID_BYTES = 16
_NUMBER = re.compile("0|[1-9][0-9]{0,18}")
_ALIVE_NAME = re.compile(f"({_NUMBER.pattern})-({_NUMBER.pattern})")


def entry_path(version: int) -> str:
    return f"{LOG}/{version}"


def alive_path(broker_id: int, epoch: int) -> str:
    return f"{ALIVE}/{broker_id}-{epoch}"


def controller_path(epoch: int) -> str:
    return f"{CONTROLLER}/{epoch}"


def snapshot_path(version: int) -> str:
    return f"{SNAPSHOT}/{version}"


def snapshot_part_path(version: int, part: int) -> str:
    return f"{SNAPSHOT}/{version}/{part}"


def list_alive(names: Iterable[str]) -> list[tuple[int, int]]:
    """Broker ids and epochs in the names of alive nodes. Nodes that somebody else has put there do not count."""
    return [(int(found[1]), int(found[2])) for name in names if (found := _ALIVE_NAME.fullmatch(name))]


def list_numbers(names: Iterable[str]) -> list[int]:
    """Nodes whose names are numbers. Nodes that somebody else has put beside them do not count."""
    return [int(name) for name in names if _NUMBER.fullmatch(name)]


def encode_head(version: int) -> bytes:
    return b"%d" % version


def decode_head(data: bytes) -> int:
    if not _NUMBER.fullmatch(data.decode("latin-1")):
        raise MalformedEntry(f"{HEAD} holds {data[:40]!r}, not the version of an entry")
    return int(data)


def encode_entry(entry_id: bytes, changes: tuple[Change, ...]) -> bytes:
    return entry_id + encode(changes)


def decode_entry(version: int, data: bytes) -> Entry:
    return Entry(version, data[:ENTRY_ID_BYTES], decode(data[ENTRY_ID_BYTES:]))


@dataclass(frozen=True, slots=True)
class SnapshotPointer:
    """The snapshots that are complete, as (version, number of parts), oldest first, and the oldest entry kept."""

    snapshots: tuple[tuple[int, int], ...] = ()
    first_entry: int = 1

    @property
    def newest(self) -> int:
        """Version of the newest snapshot; 0 if there is none."""
        return self.snapshots[-1][0] if self.snapshots else 0

    def encode(self) -> bytes:
        return json.dumps(
            {"first_entry": self.first_entry, "snapshots": self.snapshots}, separators=(",", ":")
        ).encode()

    @classmethod
    def decode(cls, data: bytes) -> "SnapshotPointer":
        if not data:
            return cls()
        try:
            members = json.loads(data)
            snapshots = tuple((int(version), int(parts)) for version, parts in members["snapshots"])
            return cls(snapshots, int(members["first_entry"]))
        except (ValueError, KeyError, TypeError) as error:
            raise MalformedEntry(f"{SNAPSHOT} cannot be read: {error}") from None
