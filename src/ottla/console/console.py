"""What every page can use: the cluster's clients, cached facts, the history, and the options of the console."""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ottla.console.caching import Cached
from ottla.console.connections import ClientPool
from ottla.console.facts.decoding import Decoder
from ottla.console.facts.disks import Disks, read_disks
from ottla.console.facts.groups import GroupIndex, read_index
from ottla.console.facts.metadata import Snapshot, read_snapshot
from ottla.console.history import History
from ottla.topic_partition import TopicPartition

METADATA_S = 5.0
GROUPS_S = 5.0
DISKS_S = 15.0
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
        self.metadata: Cached[Snapshot] = Cached(self._read_metadata, monotonic_s, METADATA_S)
        self.groups: Cached[GroupIndex] = Cached(self._read_groups, monotonic_s, GROUPS_S)
        self.disks: Cached[Disks] = Cached(self._read_disks, monotonic_s, DISKS_S)
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
        """Something was changed: read everything anew."""
        self.metadata.forget()
        self.groups.forget()
        self.disks.forget()

    def close(self) -> None:
        self.clients.close()

    def _read_metadata(self) -> Snapshot:
        with self.clients.borrow() as client:
            return read_snapshot(client)

    def _read_groups(self) -> GroupIndex:
        with self.clients.borrow() as client:
            return read_index(client, self.metadata.get())

    def _read_disks(self) -> Disks:
        with self.clients.borrow() as client:
            return read_disks(client, self.metadata.get())
