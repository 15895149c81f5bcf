"""The connections between the brokers of a cluster under test, which a test can cut in one direction or in both.

Nothing is closed by a cut: what is sent in that direction waits until the cut is healed, as packets do that a network
loses and a sender repeats. A new connection needs both directions.
"""

import asyncio
import threading
from collections.abc import Callable
from itertools import permutations
from typing import Any, TypeVar

from ottla.system.network import connect_to_socket
from ottla.testing.launch import NetworkState

ProtocolType = TypeVar("ProtocolType", bound=asyncio.BaseProtocol)


class HeldTransport:
    """A transport to another broker whose bytes can be held back."""

    def __init__(self, transport: Any, network: "BrokerNetwork", source: int, port: int) -> None:
        self._transport = transport
        self._network = network
        self._source = source
        self._port = port
        self._held: list[Any] = []
        self._loop = asyncio.get_running_loop()
        network.add(self)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    @property
    def _ends(self) -> tuple[int, int]:
        """Source and target. A broker may learn to whom a port belongs after it has connected."""
        return self._source, self._network.find_broker(self._port)

    def write(self, data: Any) -> None:
        if self._held or self._network.is_cut(*self._ends):
            self._held.append(bytes(data))
        else:
            self._transport.write(data)

    def writelines(self, data: Any) -> None:
        self.write(b"".join(data))

    def adapt(self) -> None:
        """Follow a cut or a heal. Called from any thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._adapt)

    def _adapt(self) -> None:
        source, target = self._ends
        if self._transport.is_closing():
            self._network.remove(self)
            return
        if self._network.is_cut(target, source):
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()
        if not self._network.is_cut(source, target):
            held, self._held = self._held, []
            for data in held:
                self._transport.write(data)


class BrokerNetwork:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ports: dict[int, int] = {}
        """Port -> broker id."""
        self._cuts: set[tuple[int, int]] = set()
        self._transports: dict[HeldTransport, None] = {}

    def note_port(self, broker_id: int, port: int) -> None:
        self._ports[port] = broker_id

    def connector(self, broker_id: int) -> "Connector":
        """How one broker opens connections to others."""
        return Connector(self, broker_id)

    def find_broker(self, port: int) -> int:
        return self._ports.get(port, -1)

    def is_cut(self, source: int, target: int) -> bool:
        return (source, target) in self._cuts

    def cut(self, source: int, target: int) -> None:
        self._cuts.add((source, target))
        self._adapt_all()

    def cut_all(self) -> None:
        self._cuts = set(permutations(self._ports.values(), 2))
        self._adapt_all()

    def heal(self) -> None:
        self._cuts.clear()
        self._adapt_all()

    def describe(self) -> NetworkState:
        return NetworkState(sorted(self._ports.items()), sorted(self._cuts))

    def become(self, state: NetworkState) -> None:
        """Follow the network of the test's process, in a child process."""
        self._ports = dict(state.ports)
        self._cuts = {(source, target) for source, target in state.cuts}
        self._adapt_all()

    def add(self, transport: HeldTransport) -> None:
        with self._lock:
            self._transports[transport] = None

    def remove(self, transport: HeldTransport) -> None:
        with self._lock:
            self._transports.pop(transport, None)

    def _adapt_all(self) -> None:
        with self._lock:
            transports = list(self._transports)
        for transport in transports:
            transport.adapt()


class Connector:
    """A `Connect` of one broker."""

    POLL_S = 0.02

    def __init__(self, network: BrokerNetwork, broker_id: int) -> None:
        self._network = network
        self._broker_id = broker_id

    async def __call__(
        self, host: str, port: int, protocol_factory: Callable[[], ProtocolType], tls: Any = None
    ) -> tuple[asyncio.Transport, ProtocolType]:
        source, target = self._broker_id, self._network.find_broker(port)
        while self._network.is_cut(source, target) or self._network.is_cut(target, source):
            await asyncio.sleep(self.POLL_S)

        def create() -> ProtocolType:
            protocol = protocol_factory()
            made = protocol.connection_made

            def connection_made(transport: Any) -> None:
                made(HeldTransport(transport, self._network, source, port))  # type: ignore[arg-type]

            protocol.connection_made = connection_made  # type: ignore[method-assign]
            return protocol

        return await connect_to_socket(host, port, create, tls)
