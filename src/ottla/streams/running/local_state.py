"""The state servers of an app in local mode: child processes of the driver, each with a share of the partitions."""

import os
import shutil
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from ottla.streams.planning.plan import StorePlan
from ottla.streams.running.state_servers import WatchedServers
from ottla.streams.state.starting import ServerProcess

PROCESSES_MAX: Final = 4


class LocalStateServers(WatchedServers):
    """A server that has died is started again and told its partitions."""

    def __init__(
        self,
        directory: str,
        settings: Mapping[str, str],
        token: str,
        stores: Mapping[str, StorePlan],
        partition_counts: Mapping[str, int],
    ) -> None:
        super().__init__(token, stores, partition_counts)
        self._directory = directory
        self._settings = settings
        self._partitions = max((partition_counts[each.changelog] for each in stores.values()), default=0)
        count = min(self._partitions, max((os.cpu_count() or 1) // 2, 1), PROCESSES_MAX)
        self._servers: list[ServerProcess | None] = [None] * count

    def addresses(self) -> list[str]:
        return [server.address for server in self._servers if server is not None]

    def _find_home(self, partition: int) -> str | None:
        server = self._servers[partition % len(self._servers)]
        return None if server is None else server.address

    def _start_servers(self) -> None:
        numbers = range(len(self._servers))
        with ThreadPoolExecutor(len(numbers)) as pool:  # a server takes a second to start
            for server in [pool.submit(self._start_server, number) for number in numbers]:
                server.result()

    def _look_after(self) -> None:
        for number, server in enumerate(self._servers):
            if server is None or not server.is_running:
                self._servers[number] = None
                if server is not None:
                    server.stop()
                self._start_server(number)
                self._moved.update(range(number, self._partitions, len(self._servers)))

    def _stop_servers(self) -> None:
        for server in self._servers:
            if server is not None:
                server.stop()

    def _start_server(self, number: int) -> None:
        directory = os.path.join(self._directory, f"server-{number}")
        os.makedirs(directory, exist_ok=True)
        for entry in os.scandir(directory):
            if entry.is_dir() and entry.name not in self._stores:  # of a store that the app has no more
                shutil.rmtree(entry.path, ignore_errors=True)
        with open(os.path.join(directory, "server.log"), "ab") as log:
            self._servers[number] = ServerProcess(directory, self._settings, self._token, stderr=log.fileno())
