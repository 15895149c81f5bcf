"""What all connections of a server share: the limits, the counters, the receive buffers.

Two sums are limited. Frames that are arriving or being answered hold memory (`queued`): above the limit no frame that
is on its way is read further. A connection between two frames is read on, so that small requests are answered whatever
the large ones do; a large one stops there after its first bytes. Frames that have begun to arrive must be able to
finish, though, or nobody would ever move again: while no request is in progress, the connection whose frame began first
is read on, for as long as it brings something. So the sum exceeds the limit by one frame, and by the first bytes of one
for each connection. Answers that clients do not read hold memory too (`unsent`): above that limit a connection that has
unsent answers handles no further frame.
"""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from ottla.server.admission import Admission
from ottla.server.receiving import AREA_BYTES, CROWDED_AREA_BYTES, BufferPool

COMPLAINT_INTERVAL_S = 1.0
SWEEP_INTERVAL_S_MAX = 10.0
PATIENCE_S = 2.0  # for a frame that brings nothing while others wait for its memory

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """Limits, by Kafka's name where it has one. -1 switches off those that may be."""

    socket_request_max_bytes: int = 104_857_600
    queued_max_request_bytes: int = 50_331_648  # of all connections; may be -1
    max_connections: int = 2_147_483_647
    max_connections_per_ip: int = 2_147_483_647
    max_connections_per_ip_overrides: Mapping[str, int] = field(default_factory=dict)
    max_connection_creation_rate: int = 2_147_483_647  # per second; those beyond it wait
    descriptors_for_connections: int = 2_147_483_647  # what the process may have open, less what it needs itself
    connections_max_idle_ms: int = 600_000  # no byte either way and no answer being computed; may be -1
    frame_timeout_ms: int = 120_000  # for a frame to arrive; may be -1
    frame_bytes_per_second_min: int = 16_384  # a frame that keeps this pace may take longer than that
    in_flight_requests_max: int = 100  # answers that one connection may wait for
    unsent_bytes_max: int = 4_194_304  # output above which a connection handles no further frame
    unsent_memory_bytes_max: int = 50_331_648  # of all connections, not counting what lies in files
    frames_per_turn_max: int = 64  # handled on one connection before the others have their turn
    linger_ms: int = 500  # for a client to take the last answers before its connection is closed


class Flow(Protocol):
    """What the shared limits need to know of a connection."""

    address: str

    def frame_began_at(self) -> float | None:
        """When the frame that is arriving began; None if there is none."""

    def frame_filled(self) -> int:
        """How much of that frame is there."""

    def abort(self) -> None:
        """Close at once."""

    def reconsider_reading(self) -> None:
        """Whether reading is allowed has changed."""

    def send(self) -> None:
        """The turn to send that it was promised."""

    def sweep(self, now: float) -> None:
        """Close if nothing has happened for too long."""


class Traffic:
    def __init__(self, settings: ServerSettings) -> None:
        self.settings = settings
        self.loop = asyncio.get_running_loop()
        self._whole_area = memoryview(bytearray(AREA_BYTES))
        self.area = self._whole_area  # what connections receive into: less of it while there is too much already
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
        self.emptied: asyncio.Future[None] | None = None  # done when the last connection has left
        self._arriving = 0
        self._answering = 0
        self._crowded = False
        self._favoured: Flow | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._sent_at = float("-inf")
        self._sender: Flow | None = None
        self._senders: dict[Flow, None] = {}
        self._complained_at = float("-inf")
        self._unsaid = 0

    # Connections

    def admit(self, flow: Flow) -> float | None:
        """Count a connection in, unless there are too many already; how many seconds it has to wait for its turn."""
        now = self.loop.time()
        refusal = self.admission.refusal(flow.address, len(self.flows), now, self.settings)
        if refusal is not None:
            self.refused += 1
            self.complain(f"refused a connection of {flow.address}: {refusal}")
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
        """Have `flow` send: now, if it is alone in this turn of the loop. If others send in it, too, then at its end.

        Each answer wakes a client, and a broker that its clients preempt after every answer handles fewer requests: 13
        to 14 thousand a second instead of 15 to 20, with 64 connections. The loop's time stands still during a turn (of
        uvloop), so it tells turns apart.
        """
        now = self.loop.time()
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
        """Pause or resume everybody when the limit is crossed; while it is exceeded, see that one frame can finish."""
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
                self._keep_an_eye_on(self._favoured)

    def _keep_an_eye_on(self, flow: Flow) -> None:
        self.loop.call_later(PATIENCE_S, self._lose_patience, flow, flow.frame_filled())

    def _lose_patience(self, flow: Flow, filled: int) -> None:
        """A client that stopped in the middle of its frame must not hold up all the others."""
        if not self._crowded or flow is not self._favoured or flow.frame_began_at() is None:
            return
        others_wait = any(other is not flow and other.frame_began_at() is not None for other in self.flows)
        if others_wait and flow.frame_filled() == filled:
            self.complain(f"closed the connection of {flow.address}: its request stopped, and others wait for memory")
            flow.abort()
        else:
            self._keep_an_eye_on(flow)

    # Complaints

    def complain(self, message: str) -> None:
        """A warning that a stranger can cause: one a second at most, the others are counted."""
        now = self.loop.time()
        if now - self._complained_at < COMPLAINT_INTERVAL_S:
            self._unsaid += 1
            return
        suffix = f" (and {self._unsaid} more warnings of this kind)" if self._unsaid else ""
        log.warning("%s%s", message, suffix)
        self._complained_at = now
        self._unsaid = 0
