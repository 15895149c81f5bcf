"""What every page can use: the cluster's clients, cached facts, the history, and the options of the console."""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ottla.console.caching import Cached
from ottla.console.connections import ClientPool
from ottla.console.facts.decoding import Decoder
from ottla.console.facts.disks import Disks, read_disks
from ottla.console.facts.groups import GroupIndex, ListedGroup, list_groups, make_index, read_offsets
from ottla.console.facts.metadata import Snapshot, read_snapshot
from ottla.console.history import History
from ottla.topic_partition import TopicPartition

PARTITIONS_MAX = 2_000
"""A cluster with more partitions is large: it is not sampled whole, and its metadata may be older."""
GROUPS_MAX = 100
"""With more groups, which groups read a topic is known from a read of all groups that is up to INDEX_S old."""
RECENT_S = 5.0
METADATA_S = 20.0
DISKS_S = 90.0
INDEX_S = 90.0
"""How old facts about a large cluster may be. The samples renew them before, so that no page waits for them."""
NOTES_MAX = 100


@dataclass(frozen=True)
class Options:
    """What a user chooses when starting the console."""

    settings: Mapping[str, str]
    """Of clients, by Kafka's names."""
    is_read_only: bool = False
    connect_url: str = ""
    registry: Mapping[str, str] = field(default_factory=dict)
    root_path: str = ""


def is_large(snapshot: Snapshot | None) -> bool:
    return snapshot is not None and snapshot.partition_count > PARTITIONS_MAX


def has_many_groups(groups: Mapping[str, ListedGroup]) -> bool:
    return len(groups) > GROUPS_MAX


class Console:
    def __init__(self, options: Options, now_ms: Callable[[], int], monotonic_s: Callable[[], float]) -> None:
        """Raises ValueError for a setting that is not valid."""
        self.options = options
        self.now_ms = now_ms
        self.clients = ClientPool(options.settings)
        self.decoder = Decoder(options.registry)
        self.history = History()
        self.timestamps: dict[TopicPartition, tuple[int, int]] = {}
        """By partition: an offset and the timestamp of its record, as last asked for a lag in seconds."""
        self.metadata: Cached[Snapshot] = Cached(
            self._read_metadata, monotonic_s, lambda found: METADATA_S if is_large(found) else RECENT_S
        )
        self.groups: Cached[dict[str, ListedGroup]] = Cached(self._list_groups, monotonic_s, lambda found: RECENT_S)
        self.index: Cached[GroupIndex] = Cached(
            self._read_index, monotonic_s, lambda found: INDEX_S if has_many_groups(found.groups) else RECENT_S
        )
        self.disks: Cached[Disks] = Cached(
            self._read_disks, monotonic_s, lambda found: DISKS_S if len(found.copies) > PARTITIONS_MAX else RECENT_S * 3
        )
        self._notes: deque[tuple[str, str]] = deque(maxlen=NOTES_MAX)
        self._note_number = 0

    @property
    def address(self) -> str:
        return self.options.settings["bootstrap.servers"]

    def leave_note(self, text: str) -> str:
        """Keep a message for the next page, which asks for it by the name that is returned."""
        self._note_number += 1
        name = str(self._note_number)
        self._notes.append((name, text))
        return name

    def find_note(self, name: str) -> str:
        return next((text for known, text in self._notes if known == name), "")

    def forget(self) -> None:
        """Something was changed: read everything anew, except what takes long."""
        self.metadata.forget()
        self.groups.forget()
        if not has_many_groups(self.groups.kept or {}):
            self.index.forget()
        if not is_large(self.metadata.kept):
            self.disks.forget()

    def close(self) -> None:
        self.clients.close()

    def _read_metadata(self) -> Snapshot:
        with self.clients.borrow() as client:
            return read_snapshot(client)

    def _list_groups(self) -> dict[str, ListedGroup]:
        with self.clients.borrow() as client:
            return list_groups(client, self.metadata.get())

    def _read_index(self) -> GroupIndex:
        groups = self.groups.get(1)
        with self.clients.borrow() as client:
            return make_index(groups, read_offsets(client, groups.values()))

    def _read_disks(self) -> Disks:
        with self.clients.borrow() as client:
            return read_disks(client, self.metadata.get())
