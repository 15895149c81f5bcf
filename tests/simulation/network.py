"""A network in memory, with everything that TCP does to a program: bytes arrive late, split and joined at will; writers
are paused when the other side does not read; connections are reset, closed by halves, or cut off for a while.

Hosts are names. Bytes keep their order within a connection; a partition delays them until it is healed, as
retransmission does. All chance comes from one seeded `Random` in the order of events: same seed, same history.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from contextvars import Context, copy_context
from dataclasses import dataclass
from random import Random
from typing import Any, TypeVar

from ottla.system.network import Connect
from tests.simulation.frame_client import FrameClient
from tests.simulation.transport import SimulatedTransport

ProtocolType = TypeVar("ProtocolType", bound=asyncio.BaseProtocol)
ProtocolFactory = Callable[[], asyncio.BaseProtocol]

CONNECT_TIMEOUT_S = 30.0
FIRST_CLIENT_PORT = 40_000


@dataclass(frozen=True, slots=True)
class Conditions:
    """How the network behaves between any two hosts."""

    latency_s_min: float = 0.0001
    latency_s_max: float = 0.002
    window_bytes: int = 65_536  # in flight or received but unread, for one direction of one connection


class SimulatedNetwork:
    def __init__(self, random: Random, conditions: Conditions | None = None) -> None:
        self.random = random
        self.conditions = conditions or Conditions()
        self._listeners: dict[tuple[str, int], tuple[ProtocolFactory, Context]] = {}
        self._transports: dict[SimulatedTransport, None] = {}
        self._cuts: dict[tuple[str, str], None] = {}  # from whom to whom nothing is let through
        self._held_back: list[SimulatedTransport] = []  # once for each thing that a partition keeps from arriving
        self._healing: deque[asyncio.Future[None]] = deque()
        self._next_port = FIRST_CLIENT_PORT

    # Hosts and connections

    def listen(self, host: str, port: int, protocol_factory: ProtocolFactory) -> None:
        if (host, port) in self._listeners:
            raise OSError(f"{host}:{port} is taken")
        self._listeners[host, port] = protocol_factory, copy_context()

    def stop_listening(self, host: str, port: int) -> None:
        del self._listeners[host, port]

    async def connect(
        self, source: str, host: str, port: int, protocol_factory: Callable[[], ProtocolType]
    ) -> tuple[SimulatedTransport, ProtocolType]:
        """What `loop.create_connection` does, from one host to another."""
        await asyncio.sleep(self.latency())
        await self._reachable(source, host)
        if (host, port) not in self._listeners:
            raise ConnectionRefusedError(f"nobody listens on {host}:{port}")
        client, server = self._pair((source, self._next_port), (host, port))
        self._next_port += 1
        server.attach(*self._listeners[host, port])
        await asyncio.sleep(self.latency())
        if client.is_closing():
            raise ConnectionResetError(f"the connection to {host}:{port} was reset before it was there")
        return client, client.attach(protocol_factory, copy_context())

    def connector(self, source: str) -> Connect:
        """The outgoing connections of the programs on a host."""

        async def connect(
            host: str, port: int, protocol_factory: Callable[[], ProtocolType], tls: Any = None
        ) -> tuple[asyncio.Transport, ProtocolType]:
            return await self.connect(source, host, port, protocol_factory)

        return connect

    async def open_client(self, source: str, host: str, port: int) -> FrameClient:
        """A client for tests that speaks in frames."""
        _, client = await self.connect(source, host, port, FrameClient)
        return client

    def _pair(self, client: tuple[str, int], server: tuple[str, int]) -> tuple[SimulatedTransport, SimulatedTransport]:
        ends = SimulatedTransport(self, client, server), SimulatedTransport(self, server, client)
        ends[0].peer, ends[1].peer = ends[1], ends[0]
        for end in ends:
            self._transports[end] = None
        return ends

    def forget(self, transport: SimulatedTransport) -> None:
        self._transports.pop(transport, None)

    def transports(self, host: str) -> list[SimulatedTransport]:
        """The open ends on a host, oldest first."""
        return [transport for transport in self._transports if transport.address[0] == host]

    # Trouble

    def partition(self, one: str, other: str) -> None:
        """Let nothing through between two hosts until `heal`."""
        self.cut(one, other)
        self.cut(other, one)

    def cut(self, source: str, target: str) -> None:
        """Let nothing through from one host to another until `heal`; the other direction stays open."""
        self._cuts[source, target] = None

    def heal(self, one: str, other: str) -> None:
        self._cuts.pop((one, other), None)
        self._cuts.pop((other, one), None)
        self._after_healing()

    def heal_all(self) -> None:
        self._cuts.clear()
        self._after_healing()

    def is_cut(self, source: str, target: str) -> bool:
        return (source, target) in self._cuts

    def hold_back(self, transport: SimulatedTransport) -> None:
        """Take note that data of this transport was held back. It is sent again after `heal`."""
        self._held_back.append(transport)

    def reset_connections(self, host: str) -> None:
        """Both ends of every connection of a host see it reset."""
        for transport in self.transports(host):
            transport.abort()

    def crash(self, host: str, *, silent: bool = False) -> None:
        """End a host: its programs receive nothing more; the others see a reset, or nothing at all if `silent`."""
        for address in [address for address in self._listeners if address[0] == host]:
            del self._listeners[address]
        for transport in self.transports(host):
            transport.vanish(silent=silent)

    # Time and chance

    def latency(self) -> float:
        return self.random.uniform(self.conditions.latency_s_min, self.conditions.latency_s_max)

    def piece(self, size: int) -> int:
        """How many of `size` bytes travel together: often all of them, sometimes any number."""
        return size if self.random.random() < 0.5 else self.random.randint(1, size)

    async def _reachable(self, source: str, host: str) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + CONNECT_TIMEOUT_S
        while self.is_cut(source, host) or self.is_cut(host, source):
            healed: asyncio.Future[Any] = loop.create_future()
            self._healing.append(healed)
            await asyncio.wait([healed], timeout=deadline - loop.time())
            if not healed.done():
                raise TimeoutError(f"{source} cannot reach {host}")

    def _after_healing(self) -> None:
        while self._healing:
            healed = self._healing.popleft()
            if not healed.done():
                healed.set_result(None)
        held_back, self._held_back = self._held_back, []
        for transport in held_back:
            transport.travel()
