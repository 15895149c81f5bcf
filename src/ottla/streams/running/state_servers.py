"""The state servers of an app in local mode: child processes of the driver, each with a share of the partitions.

A server that has died is started again and told its partitions; what it lost it reads from the changelogs. After every
batch the servers are told how far the changelogs are committed, in a thread of their own: a batch never waits for it.
"""

import logging
import os
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Protocol

from ottla.streams.errors import StreamsError
from ottla.streams.planning.plan import StorePlan
from ottla.streams.state.client import StateClient, StateUnavailable
from ottla.streams.state.starting import ServerProcess

PROCESSES_MAX: Final = 4
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


class LocalStateServers:
    def __init__(
        self,
        directory: str,
        settings: Mapping[str, str],
        token: str,
        stores: Mapping[str, StorePlan],
        partition_counts: Mapping[str, int],
    ) -> None:
        self._directory = directory
        self._settings = settings
        self._token = token
        self._stores = stores
        self._counts = partition_counts
        largest = max((partition_counts[each.changelog] for each in stores.values()), default=0)
        self._lock = threading.Lock()
        self._assigned: dict[tuple[str, int], int] = {}
        """Up to which offset each assigned table is known to be committed, by store and partition."""
        self._news: set[tuple[str, int]] = set()
        """Tables whose server has not been told the newest offset."""
        self._unassigned: set[int] = set()
        """Servers that were started again and have not been told their tables."""
        self._wake = threading.Event()
        self._stopping = False
        count = min(largest, max((os.cpu_count() or 1) // 2, 1), PROCESSES_MAX)
        self._servers: list[ServerProcess | None] = [None] * count
        self._thread = threading.Thread(target=self._run, name="state-servers", daemon=True)

    def start(self) -> None:
        numbers = range(len(self._servers))
        with ThreadPoolExecutor(len(numbers)) as pool:  # a server takes a second to start
            for server in [pool.submit(self._launch_first, number) for number in numbers]:
                server.result()
        self._thread.start()

    def _launch_first(self, number: int) -> None:
        self._servers[number] = self._launch(number)

    def stop(self) -> None:
        """End all servers. They write their tables to files first."""
        self._stopping = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()
        for server in self._servers:
            if server is not None:
                server.stop()

    def locate(self, store: str, partition: int) -> str:
        server = self._servers[partition % len(self._servers)]
        if server is None:
            raise StateUnavailable(f"the state server of partition {partition} is being started again")
        return server.address

    def assign(self, store: str, partitions: Mapping[int, int]) -> None:
        with self._lock:
            for partition, upto in partitions.items():
                self._assigned[store, partition] = upto
        for number in range(len(self._servers)):
            own = {each: upto for each, upto in partitions.items() if each % len(self._servers) == number}
            if own:
                self._tell_assignment(number, store, own)

    def advance(self, store: str, partition: int, upto: int) -> None:
        with self._lock:
            if self._assigned.get((store, partition)) != upto:
                self._assigned[store, partition] = upto
                self._news.add((store, partition))
        self._wake.set()

    def status(self) -> list[dict[str, Any]]:
        """What the servers say about their tables. A server that does not answer is left out."""
        found: list[dict[str, Any]] = []
        for server in self._servers:
            if server is not None:
                try:
                    with StateClient(server.address, self._token, wait_s=1.0) as client:
                        found += client.status()
                except StreamsError:
                    continue
        return found

    def addresses(self) -> list[str]:
        return [server.address for server in self._servers if server is not None]

    def _launch(self, number: int) -> ServerProcess:
        directory = os.path.join(self._directory, f"server-{number}")
        os.makedirs(directory, exist_ok=True)
        with open(os.path.join(directory, "server.log"), "ab") as log:
            return ServerProcess(directory, self._settings, self._token, stderr=log.fileno())

    def _tell_assignment(self, number: int, store: str, partitions: Mapping[int, int]) -> None:
        server = self._servers[number]
        if server is None:
            return  # it is told when it is there again
        plan = self._stores[store]
        with StateClient(server.address, self._token, wait_s=SHORT_WAIT_S) as client:
            client.assign(plan, partitions, self._counts[plan.changelog])

    def _run(self) -> None:
        clients: dict[str, StateClient] = {}
        while not self._stopping:
            self._wake.wait(WATCH_SECONDS)
            self._wake.clear()
            try:
                self._restart_dead()
                self._tell_news(clients)
            except (StreamsError, OSError) as error:
                log.warning("a state server is tried again: %s", error)
        for client in clients.values():
            client.close()

    def _restart_dead(self) -> None:
        for number, server in enumerate(self._servers):
            if server is None or not server.is_running:
                self._servers[number] = None
                if server is not None:
                    server.stop()
                self._servers[number] = self._launch(number)
                self._unassigned.add(number)
        for number in [*self._unassigned]:
            self._assign_again(number)
            self._unassigned.discard(number)

    def _assign_again(self, number: int) -> None:
        """Tell a server that was started again which tables it has, and up to which offsets to restore them."""
        for store in self._stores:
            with self._lock:
                own = {
                    partition: upto
                    for (name, partition), upto in self._assigned.items()
                    if name == store and partition % len(self._servers) == number
                }
            if own:
                self._tell_assignment(number, store, own)

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
