"""One end of a simulated connection: the transport that a protocol gets instead of a socket."""

import asyncio
from collections import deque
from collections.abc import Callable
from contextvars import Context
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from tests.simulation.network import SimulatedNetwork

ProtocolType = TypeVar("ProtocolType", bound=asyncio.BaseProtocol)

HIGH_WATER = 65_536
NETWORK = Context()
"""What the network does belongs to no process, and goes on while processes are paused."""


class Signal(Enum):
    END = "end of stream"
    RESET = "reset"


class SimulatedTransport(asyncio.Transport):
    peer: "SimulatedTransport"

    def __init__(self, network: "SimulatedNetwork", address: tuple[str, int], peer_address: tuple[str, int]) -> None:
        super().__init__({"sockname": address, "peername": peer_address})
        self.address = address
        self._network = network
        self._loop = asyncio.get_running_loop()
        self._protocol: asyncio.BaseProtocol | None = None
        self._context = NETWORK
        self._unsent = bytearray()
        self._flying: deque[bytes | Signal] = deque()  # on the way to the peer, in order
        self._flying_bytes = 0
        self._last_arrival = 0.0
        self._inbox = bytearray()  # arrived, not yet read by the protocol
        self._end_arrived = False
        self._delivering = False
        self._reading = True
        self._writing_paused = False
        self._high, self._low = HIGH_WATER, HIGH_WATER // 4
        self._end_wanted = False
        self._end_sent = False
        self._closing = False
        self._gone = False
        self._silent = False  # this end does not even send a reset

    def attach(self, factory: Callable[[], ProtocolType], context: Context) -> ProtocolType:
        """Make and connect the protocol: the connection is established. `context` is that of the program here."""
        self._context = context
        protocol = context.copy().run(factory)
        self._protocol = protocol
        context.copy().run(protocol.connection_made, self)
        self._deliver_soon()
        return protocol

    # The protocol's side

    def get_protocol(self) -> asyncio.BaseProtocol:
        assert self._protocol is not None
        return self._protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def is_closing(self) -> bool:
        return self._closing

    def is_reading(self) -> bool:
        return self._reading and not self._closing

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True
        self._deliver_soon()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = HIGH_WATER if high is None else high
        self._low = self._high // 4 if low is None else low

    def get_write_buffer_size(self) -> int:
        return len(self._unsent)

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def can_write_eof(self) -> bool:
        return True

    def write(self, data: "bytes | bytearray | memoryview[Any]") -> None:
        if self._end_wanted:
            raise RuntimeError("write after write_eof")
        if self._closing or not data:
            return
        self._unsent += data
        self._send()
        if len(self._unsent) > self._high and not self._writing_paused:
            self._writing_paused = True
            self.get_protocol().pause_writing()

    def write_eof(self) -> None:
        self._end_wanted = True
        self._send()

    def close(self) -> None:
        """Send what is unsent, then end the connection. Bytes that nobody has read make it a reset, as in a kernel."""
        if self._closing:
            return
        self._closing = True
        if self._inbox:
            self._unsent.clear()
            self._reset_peer()
            self._leave(None)
        else:
            self._end_wanted = True
            self._send()

    def abort(self) -> None:
        if not self._gone:
            self._closing = True
            self._unsent.clear()
            self._reset_peer()
            self._leave(None)

    # The network's side

    def vanish(self, *, silent: bool) -> None:
        """Take this end away: its program is dead and gets no more callbacks."""
        self._closing = self._gone = True
        self._silent = silent
        self._unsent.clear()
        self._network.forget(self)
        self._reset_peer()

    def travel(self) -> None:
        """Schedule the arrival of the oldest item in flight that has none, not before the items ahead of it."""
        self._last_arrival = max(self._last_arrival, self._loop.time() + self._network.latency())
        self._loop.call_at(self._last_arrival, self._arrive, context=NETWORK)

    def _send(self) -> None:
        """Send as many bytes as the peer's window has room for."""
        window = self._network.conditions.window_bytes
        while self._unsent and (room := window - self._flying_bytes - len(self.peer._inbox)) > 0:
            size = self._network.piece(min(room, len(self._unsent)))
            self._fly(bytes(self._unsent[:size]))
            del self._unsent[:size]
        if self._end_wanted and not self._unsent and not self._gone:
            if not self._end_sent:
                self._end_sent = True
                self._fly(Signal.END)
            if self._closing:
                self._leave(None)
        if self._writing_paused and len(self._unsent) <= self._low and not self._gone:
            self._writing_paused = False
            self.get_protocol().resume_writing()

    def _reset_peer(self) -> None:
        if not self._silent:
            self._fly(Signal.RESET)

    def _fly(self, item: bytes | Signal) -> None:
        self._flying.append(item)
        if isinstance(item, bytes):
            self._flying_bytes += len(item)
        self.travel()

    def _arrive(self) -> None:
        """Deliver the oldest item in flight to the peer, unless the network is partitioned."""
        if self._network.is_cut(self.address[0], self.peer.address[0]):
            self._network.hold_back(self)
            return
        item = self._flying.popleft()
        if isinstance(item, bytes):
            self._flying_bytes -= len(item)
            if self.peer._gone or self.peer._closing:
                self.peer._reset_peer()
                return
            self.peer._inbox += item
        elif item is Signal.END:
            self.peer._end_arrived = True
        else:
            self.peer._leave(ConnectionResetError("reset by the peer"))
            return
        self.peer._deliver_soon()

    def _deliver_soon(self) -> None:
        if not self._delivering:
            self._delivering = True
            self._loop.call_soon(self._deliver, context=self._context)

    def _deliver(self) -> None:
        """Pass some of the bytes that arrived to the protocol."""
        self._delivering = False
        protocol = self._protocol
        if protocol is None or not self._reading or self._closing:
            return
        if self._inbox:
            size = self._network.piece(len(self._inbox))
            if isinstance(protocol, asyncio.BufferedProtocol):
                buffer = memoryview(protocol.get_buffer(-1))
                size = min(size, len(buffer))
                buffer[:size] = self._inbox[:size]
                del self._inbox[:size]
                protocol.buffer_updated(size)
            elif isinstance(protocol, asyncio.Protocol):
                data = bytes(self._inbox[:size])
                del self._inbox[:size]
                protocol.data_received(data)
            self._loop.call_soon(self.peer._window_opened, context=self.peer._context)
        elif self._end_arrived:
            self._end_arrived = False
            assert isinstance(protocol, asyncio.Protocol | asyncio.BufferedProtocol)
            if not protocol.eof_received():
                self.close()
        if self._inbox or self._end_arrived:
            self._deliver_soon()

    def _window_opened(self) -> None:
        if not self._gone:
            self._send()

    def _leave(self, error: Exception | None) -> None:
        """End this side of the connection, and tell its protocol once."""
        if self._gone:
            return
        self._closing = self._gone = True
        self._network.forget(self)
        if self._protocol is not None:
            self._loop.call_soon(self._protocol.connection_lost, error, context=self._context)
