"""The state servers of an app on a Spark cluster: processes on the executors' hosts, started there by a Spark job.

A server belongs to no executor. It ends when the driver tells it to, or has been silent for a while. The driver asks
each of them every now and then how it is; the partitions of one that does not answer go to the others, which read them
from the changelogs. If it was only slow, that is no harm: both have the state at exact offsets. When no server is left,
new ones are started, wherever Spark has executors by then.
"""

import re
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from ottla.streams.errors import StreamsError
from ottla.streams.planning.plan import StorePlan
from ottla.streams.running.state_servers import WatchedServers
from ottla.streams.state.client import StateClient
from ottla.streams.state.starting import start_detached

if TYPE_CHECKING:
    from pyspark import SparkContext

SILENCE_S: Final = 20.0
"""A server that has heard nothing for so long ends: its driver is gone."""
ASK_EVERY_S: Final = 2.0
LOST_S: Final = 5.0
"""A server that does not answer for so long is given up."""
EXECUTORS_S: Final = 30.0
"""How long the driver waits for the first executor."""
SETTLED_S: Final = 1.0
"""Executors come one by one. When none has come for so long, the servers are started."""

_PYTHON_ERROR: Final = re.compile(r"^(?:ottla[.\w]*\.)?(\w+(?:Error|Exception): .*)$", re.MULTILINE)


@dataclass(frozen=True)
class ServerOrder:
    """What a server must know. It travels with Spark's job, as the client settings of tasks do."""

    directory: str
    settings: Mapping[str, str]
    token: str


def start_on_this_host(order: ServerOrder, driver: tuple[str, int], _: int) -> str:
    """Runs on an executor: starts a server there and returns its address."""
    host = _find_own_address(*driver)
    return start_detached(order.directory, order.settings, order.token, host=host, silence_s=SILENCE_S)


def _find_own_address(host: str, port: int) -> str:
    """The address of this host in the network that the driver is in. Nothing is sent."""
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.connect(address)
        found: str = probe.getsockname()[0]
        return found


class ClusterStateServers(WatchedServers):
    """As many servers as there were executors at the start, or as there are partitions if these are fewer."""

    def __init__(
        self,
        context: "SparkContext",
        order: ServerOrder,
        stores: Mapping[str, StorePlan],
        partition_counts: Mapping[str, int],
    ) -> None:
        super().__init__(order.token, stores, partition_counts)
        self._context = context
        self._order = order
        self._partitions = max((partition_counts[each.changelog] for each in stores.values()), default=0)
        self._homes: dict[int, str] = {}
        """The address of the server of each partition."""
        self._job_tag = f"ottla-state-servers-{id(self)}"
        self._asked_s = 0.0

    def addresses(self) -> list[str]:
        return sorted(set(self._homes.values()))

    def _find_home(self, partition: int) -> str | None:
        return self._homes.get(partition)

    def _start_servers(self) -> None:
        addresses = self._launch(min(self._await_executors(), self._partitions))
        self._homes = {number: addresses[number % len(addresses)] for number in range(self._partitions)}

    def _look_after(self) -> None:
        if time.monotonic() - self._asked_s < ASK_EVERY_S:
            return
        present = [address for address in self.addresses() if self._answers(address)]
        self._asked_s = time.monotonic()
        moved = {number for number in range(self._partitions) if self._homes.get(number) not in present}
        self._moved |= moved
        if not moved:
            return
        homes = {number: address for number, address in self._homes.items() if number not in moved}
        self._homes = homes  # whoever asks meanwhile is told to wait
        if not present:
            self._start_servers()
        else:
            self._homes = homes | {number: present[at % len(present)] for at, number in enumerate(sorted(moved))}

    def _answers(self, address: str) -> bool:
        try:
            with StateClient(address, self._token, wait_s=LOST_S) as client:
                client.status()
        except StreamsError:
            return False
        return True

    def _stop_servers(self) -> None:
        for address in self.addresses():
            try:
                with StateClient(address, self._token, wait_s=LOST_S) as client:
                    client.stop()
            except StreamsError:
                continue  # it ends by itself, or has ended
        self._homes = {}

    def stop(self) -> None:
        self._stopping = True
        while self._thread.is_alive():  # it may wait for Spark to start servers
            self._context.cancelJobsWithTag(self._job_tag)
            self._wake.set()
            self._thread.join(SETTLED_S)
        super().stop()

    # Spark

    def _await_executors(self) -> int:
        """The number of executors, once it does not grow any more."""
        began_s = changed_s = time.monotonic()
        count = 0
        while not count or time.monotonic() - changed_s < SETTLED_S:
            found = self._count_executors()
            if found != count:
                count, changed_s = found, time.monotonic()
            if self._stopping or (not count and time.monotonic() - began_s > EXECUTORS_S):
                raise StreamsError(
                    f"the Spark cluster has given the app no executor within {EXECUTORS_S:.0f} s: "
                    "are there workers with free cores and memory?"
                )
            self._wake.wait(0.1)
        return count

    def _count_executors(self) -> int:
        """Spark counts the driver too."""
        return int(self._context._jsc.sc().getExecutorMemoryStatus().size()) - 1

    def _launch(self, count: int) -> list[str]:
        """Start servers by a Spark job. Spark gives idle executors one task each before one of them gets two."""
        context = self._context
        configuration = context.getConf()
        driver = configuration.get("spark.driver.host", "127.0.0.1"), int(configuration.get("spark.driver.port", "1"))
        start = partial(start_on_this_host, self._order, driver)
        context.addJobTag(self._job_tag)
        try:
            return context.parallelize(range(count), count).map(start).collect()
        except Exception as error:
            found = _PYTHON_ERROR.findall(str(error))
            reason = found[-1] if found else " ".join(str(error).split())[:300]
            raise StreamsError(
                f"state servers could not be started on the Spark cluster: {reason} "
                "(every host needs the same Python with Ottla, see docs/streams.md)"
            ) from None
        finally:
            context.removeJobTag(self._job_tag)
