"""The state servers of an app, as its driver sees them: which of them has which partition, and how far that must be.

After every batch the servers are told how far the changelogs are committed, in a thread of their own, which also looks
after the servers: a batch never waits for it. What a server has lost it reads from the changelogs.
"""

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Final, Protocol

from ottla.streams.errors import StreamsError
from ottla.streams.planning.plan import StorePlan
from ottla.streams.state.client import StateClient, StateUnavailable

WATCH_SECONDS: Final = 0.5
SHORT_WAIT_S: Final = 5.0
"""How long the driver waits for an answer; it asks again later."""

log = logging.getLogger(__name__)


class StateServers(Protocol):
    """The servers of an app's state, as the loops of its subtopologies see them."""

    def locate(self, store: str, partition: int) -> str:
        """The address of the server that has this partition of the store."""

    def assign(self, store: str, partitions: Mapping[int, int]) -> None:
        """Have these partitions of a store served, restored up to the offsets of its changelog that are given."""

    def advance(self, store: str, partition: int, upto: int) -> None:
        """The changelog is committed up to this offset, and no batch will ask for an earlier state."""


class WatchedServers(ABC):
    """State servers with their assignments. Where they run, and what becomes of one that dies, subclasses say.

    All stores of a task are on one server: a server has the same partitions of every store.
    """

    def __init__(self, token: str, stores: Mapping[str, StorePlan], partition_counts: Mapping[str, int]) -> None:
        self._token = token
        self._stores = stores
        self._counts = partition_counts
        self._lock = threading.Lock()
        self._assigned: dict[tuple[str, int], int] = {}
        """Up to which offset each assigned table is known to be committed, by store and partition."""
        self._news: set[tuple[str, int]] = set()
        """Tables whose server has not been told the newest offset."""
        self._moved: set[int] = set()
        """Partitions that have a new server, which has not been told of them."""
        self._wake = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="state-servers", daemon=True)

    def start(self) -> None:
        """Start the servers. StreamsError if that is not possible."""
        self._start_servers()
        self._thread.start()

    def stop(self) -> None:
        """End all servers. They write their tables to files first."""
        self._stopping = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()
        self._stop_servers()

    @abstractmethod
    def addresses(self) -> list[str]:
        """Of the servers that run."""

    @abstractmethod
    def _find_home(self, partition: int) -> str | None:
        """The address of the server that has a partition of all stores; None while there is none."""

    @abstractmethod
    def _start_servers(self) -> None: ...

    @abstractmethod
    def _look_after(self) -> None:
        """See whether all servers are there, replace those that are not, and add their partitions to `_moved`. Called
        every WATCH_SECONDS."""

    @abstractmethod
    def _stop_servers(self) -> None: ...

    def locate(self, store: str, partition: int) -> str:
        address = self._find_home(partition)
        if address is None:
            raise StateUnavailable(f"the state server of partition {partition} is being started again")
        return address

    def assign(self, store: str, partitions: Mapping[int, int]) -> None:
        with self._lock:
            for partition, upto in partitions.items():
                self._assigned[store, partition] = upto
        self._tell_assignment(store, partitions)

    def advance(self, store: str, partition: int, upto: int) -> None:
        with self._lock:
            if self._assigned.get((store, partition)) != upto:
                self._assigned[store, partition] = upto
                self._news.add((store, partition))
        self._wake.set()

    def status(self) -> list[dict[str, Any]]:
        """What the servers say about their tables. A server that does not answer is left out."""
        found: list[dict[str, Any]] = []
        for address in self.addresses():
            try:
                with StateClient(address, self._token, wait_s=1.0) as client:
                    found += client.status()
            except StreamsError:
                continue
        return found

    def _assign_moved(self) -> None:
        """Tell new servers which partitions they have, and up to which offsets to restore them."""
        moved = set(self._moved)
        for store in self._stores if moved else ():
            with self._lock:
                assigned = {number: upto for (name, number), upto in self._assigned.items() if name == store}
            self._tell_assignment(store, {number: upto for number, upto in assigned.items() if number in moved})
        self._moved -= moved

    def _tell_assignment(self, store: str, partitions: Mapping[int, int]) -> None:
        """Partitions without a server are left out; their server is told when it is there."""
        plan = self._stores[store]
        shares: dict[str, dict[int, int]] = {}
        for partition, upto in partitions.items():
            address = self._find_home(partition)
            if address is not None:
                shares.setdefault(address, {})[partition] = upto
        for address, share in shares.items():
            with StateClient(address, self._token, wait_s=SHORT_WAIT_S) as client:
                client.assign(plan, share, self._counts[plan.changelog])

    def _run(self) -> None:
        clients: dict[str, StateClient] = {}
        while not self._stopping:
            self._wake.wait(WATCH_SECONDS)
            self._wake.clear()
            try:
                self._look_after()
                self._assign_moved()
                self._tell_news(clients)
            except (StreamsError, OSError) as error:
                log.warning("a state server is tried again: %s", error)
        for client in clients.values():
            client.close()

    def _tell_news(self, clients: dict[str, StateClient]) -> None:
        with self._lock:
            news, self._news = {key: self._assigned[key] for key in self._news}, set()
        while news:
            store, partition = key = next(iter(news))
            try:
                address = self.locate(store, partition)
                client = clients.setdefault(address, StateClient(address, self._token, wait_s=SHORT_WAIT_S))
                client.advance(store, partition, news[key])
            except StreamsError:
                with self._lock:
                    self._news.update(news)
                raise
            del news[key]


class NoState:
    """The state servers of an app without stores."""

    def locate(self, store: str, partition: int) -> str:
        raise StreamsError(f"there is no state server for store {store!r}")

    def assign(self, store: str, partitions: Mapping[int, int]) -> None:
        """Never called with anything."""

    def advance(self, store: str, partition: int, upto: int) -> None:
        """Never called with anything."""
