"""What all connections of a server share: limits, counters, the receive buffer.

Two amounts of memory are limited.

`queued` is the memory of frames that are arriving or being answered. Above its limit no connection in the middle of a
frame is read further. A connection between two frames is still read, so that small requests are answered whatever the
large ones do; a large request stops there after its first bytes. Frames that have begun must be able to finish, or the
server would stand still: while no request is being answered, the connection whose frame began first (`favoured`) is
read on, for as long as bytes arrive. So the limit can be exceeded by one frame, and by the first bytes of one frame for
each connection.

`unsent_memory` is the memory of answers that clients have not read yet. Above its limit a connection that has unsent
answers handles no further frame.
"""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from ottla.server.admission import Admission
from ottla.wire.receiving import AREA_BYTES, CROWDED_AREA_BYTES, BufferPool

WARNING_INTERVAL_S = 1.0
SWEEP_INTERVAL_S_MAX = 10.0
STALL_S = 2.0  # a frame of which nothing arrives for so long is given up, if others wait for its memory

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """Limits of a server, named as in Kafka where Kafka has them."""

    socket_listen_backlog_size: int = 1024
    socket_receive_buffer_bytes: int = -1  # -1: the system's choice
    socket_send_buffer_bytes: int = -1
    socket_request_max_bytes: int = 104_857_600
    queued_max_request_bytes: int = 50_331_648  # of all connections together; -1: no limit
    max_connections: int = 2_147_483_647
    max_connections_per_ip: int = 2_147_483_647
    max_connections_per_ip_overrides: Mapping[str, int] = field(default_factory=dict)
    max_connection_creation_rate: int = 2_147_483_647  # per second; further connections wait
    descriptors_for_connections: int = 2_147_483_647  # open files that the process may have, less those it needs itself
    connections_max_idle_ms: int = 600_000  # without a byte in or out and without a request in progress; -1: no limit
    frame_timeout_ms: int = 120_000  # for one frame to arrive; -1: no limit
    frame_bytes_per_second_min: int = 16_384  # a frame that arrives at this rate may take longer than frame_timeout_ms
    in_flight_requests_max: int = 100  # of one connection
    unsent_bytes_max: int = 4_194_304  # a connection with more unsent output handles no further frame
    unsent_memory_bytes_max: int = 50_331_648  # of all connections together, without slices of files
    frames_per_turn_max: int = 64  # frames of one connection before other connections get their turn
    linger_ms: int = 500  # for a client to read the last answers before its connection is closed


class Flow(Protocol):
    """A connection as the shared limits see it."""

    address: str

    def frame_began_at(self) -> float | None:
        """The loop time when the frame that is arriving began; None if no frame is."""

    def frame_filled(self) -> int:
        """Bytes of that frame that have arrived."""

    def abort(self) -> None:
        """Close at once."""

    def reconsider_reading(self) -> None:
        """Start or stop reading: the answer of `Traffic.may_read` may have changed."""

    def send(self) -> None:
        """Send what is ready."""

    def sweep(self, now: float) -> None:
        """Close the connection if a time limit is over."""


class Traffic:
    def __init__(self, settings: ServerSettings) -> None:
        self.settings = settings
        self.loop = asyncio.get_running_loop()
        self._whole_area = memoryview(bytearray(AREA_BYTES))
        self.area = self._whole_area  # all connections receive into it; only its start is used above the limit
        self.pool = BufferPool()
        self.admission = Admission()
        self.flows: dict[Flow, None] = {}
        self.tasks: dict[asyncio.Future[Any], None] = {}
        self.requests = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.accepted = 0
        self.refused = 0
        self.unsent_memory = 0
        self.emptied: asyncio.Future[None] | None = None  # done when the last connection is closed
        self._arriving = 0
        self._answering = 0
        self._crowded = False
        self._favoured: Flow | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._turn_time = self.loop.time
        self._sent_at = float("-inf")
        self._sender: Flow | None = None
        self._senders: dict[Flow, None] = {}
        self._warned_at = float("-inf")
        self._suppressed = 0

    # Connections

    def admit(self, flow: Flow, *, is_counted: bool = False) -> float | None:
        """Admit a connection. Returns the seconds until it may send requests; None if it is refused.

        `is_counted`: it came before its TLS handshake, and its arrival was counted then.
        """
        now = self.loop.time()
        refusal = self.admission.find_refusal(flow.address, len(self.flows), now, self.settings)
        if refusal is None and not is_counted:
            refusal = self.admission.count_arrival(flow.address)
        if refusal is not None:
            self.refused += 1
            self.warn(f"refused a connection from {flow.address}: {refusal}")
            return None
        self.flows[flow] = None
        self.accepted += 1
        if self._timer is None:
            self._schedule_sweep()
        return self.admission.enter(flow.address, now, self.settings)

    def release(self, flow: Flow) -> None:
        if flow not in self.flows:
            return
        del self.flows[flow]
        self.admission.leave(flow.address)
        if self._favoured is flow:
            self._favoured = None
            self._reconsider()
        if not self.flows:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            if self.emptied is not None and not self.emptied.done():
                self.emptied.set_result(None)

    def _schedule_sweep(self) -> None:
        limits = [self.settings.connections_max_idle_ms, self.settings.frame_timeout_ms]
        shortest = min((limit for limit in limits if limit >= 0), default=-1)
        if shortest >= 0:
            interval = min(max(shortest / 4000, 0.01), SWEEP_INTERVAL_S_MAX)
            self._timer = self.loop.call_later(interval, self._sweep)

    def _sweep(self) -> None:
        now = self.loop.time()
        for flow in list(self.flows):
            flow.sweep(now)
        if self.flows:
            self._schedule_sweep()

    # Turns to send

    def send(self, flow: Flow) -> None:
        """Let `flow` send now, or at the end of this iteration of the loop if another connection has sent in it.

        Each answer wakes a client, which then competes for the processor. With 64 connections a broker that sends one
        by one handles 13 to 14 thousand requests a second instead of 15 to 20 thousand. Two sends with the same loop
        time count as the same turn: uvloop's clock counts milliseconds, and most turns are shorter.
        """
        now = self._turn_time()
        if now == self._sent_at and flow is not self._sender:
            if not self._senders:
                self.loop.call_soon(self._send)
            self._senders[flow] = None
        else:
            self._sent_at, self._sender = now, flow
            flow.send()

    def _send(self) -> None:
        senders, self._senders = self._senders, {}
        for flow in senders:
            flow.send()

    # Memory of frames

    @property
    def queued(self) -> int:
        return self._arriving + self._answering

    def arriving(self, change: int) -> None:
        self._arriving += change
        self._reconsider()

    def answering(self, change: int) -> None:
        self._answering += change
        self._reconsider()

    def may_read(self, flow: Flow) -> bool:
        return not self._crowded or flow is self._favoured or flow.frame_began_at() is None

    def _reconsider(self) -> None:
        """Pause or resume all connections when the limit is crossed. Above it, let one frame finish."""
        limit = self.settings.queued_max_request_bytes
        if limit < 0:
            return
        if not self._crowded and self.queued > limit:
            self._crowded = True
            self.area = self._whole_area[:CROWDED_AREA_BYTES]
            for flow in list(self.flows):
                flow.reconsider_reading()
        elif self._crowded and self.queued <= limit * 3 // 4:
            self._crowded = False
            self._favoured = None
            self.area = self._whole_area
            for flow in list(self.flows):
                flow.reconsider_reading()
        if (
            self._crowded
            and not self._answering
            and (self._favoured is None or self._favoured.frame_began_at() is None)
        ):
            waiting = [(began, flow) for flow in self.flows if (began := flow.frame_began_at()) is not None]
            self._favoured = min(waiting, key=lambda pair: pair[0])[1] if waiting else None
            if self._favoured is not None:
                self._favoured.reconsider_reading()
                self._watch_favoured(self._favoured)

    def _watch_favoured(self, flow: Flow) -> None:
        self.loop.call_later(STALL_S, self._close_if_stalled, flow, flow.frame_filled())

    def _close_if_stalled(self, flow: Flow, filled: int) -> None:
        """Close the favoured connection if nothing of its frame arrives while others wait for memory."""
        if not self._crowded or flow is not self._favoured or flow.frame_began_at() is None:
            return
        others_wait = any(other is not flow and other.frame_began_at() is not None for other in self.flows)
        if others_wait and flow.frame_filled() == filled:
            self.warn(f"closed the connection of {flow.address}: its request stalled while others wait for memory")
            flow.abort()
        else:
            self._watch_favoured(flow)

    # Warnings

    def warn(self, message: str) -> None:
        """Log a warning that any client can cause: one per second at most, the others are counted."""
        now = self.loop.time()
        if now - self._warned_at < WARNING_INTERVAL_S:
            self._suppressed += 1
            return
        suffix = f" (and {self._suppressed} more such warnings)" if self._suppressed else ""
        log.warning("%s%s", message, suffix)
        self._warned_at = now
        self._suppressed = 0
