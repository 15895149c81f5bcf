"""One connection: frames in, answers out, in order.

Nearly every request takes the fast path: one whole frame arrives on a connection that has nothing else to do, and its
small answer leaves at once (`buffer_updated`, `_answer_at_once`, `_put`, `send`: one section of this file).

Everything else goes through `_advance`: it handles the frames that have arrived as far as the limits allow and sends
the answers that are ready. Whatever makes more possible (an answer, room in the socket, bytes) calls it again. Reading
stops only when bytes have arrived that cannot be handled yet, so that a client that goes away during a long request is
noticed.
"""

import asyncio
import logging
import sys
from collections import deque
from collections.abc import Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from ottla.broker.call import Answer, Client, CloseConnection, Dispatch, Frame, Part, Result
from ottla.server.outbox import JOINED_BYTES, Outbox
from ottla.server.sending import CLOSED, COPIED_BYTES, Offload, Sender, SocketSender, TransportSender
from ottla.server.traffic import Traffic
from ottla.wire.receiving import NO_BYTES, SIZE, UnfinishedFrame

if TYPE_CHECKING:
    from ottla.server.entrance import Entrance, Guard, Newcomer

log = logging.getLogger(__name__)


class Connection(asyncio.BufferedProtocol):
    __slots__ = (
        "_active_at",
        "_advancing",
        "_answers",
        "_dispatch",
        "_ended_by_peer",
        "_ending",
        "_entrance",
        "_guard",
        "_header",
        "_input",
        "_linger",
        "_listener",
        "_loop",
        "_muted",
        "_offload",
        "_outbox",
        "_paused",
        "_position",
        "_scheduled",
        "_sender",
        "_small_answer",
        "_task",
        "_traffic",
        "_transport",
        "_unfinished",
        "_unsent_memory",
        "address",
        "client",
    )

    _transport: asyncio.Transport
    _sender: Sender
    client: Client

    def __init__(
        self,
        traffic: Traffic,
        dispatch: Dispatch,
        offload: Offload,
        listener: str,
        entrance: "Entrance | None" = None,
    ) -> None:
        """`entrance`: of a listener with TLS or SASL."""
        self.address = ""
        self._traffic = traffic
        self._loop = traffic.loop
        self._dispatch = dispatch
        self._offload = offload
        self._listener = listener
        self._entrance = entrance
        self._guard: Guard | Newcomer | None = None
        self._header = b""  # the first bytes of a size that has not arrived completely
        self._input = NO_BYTES  # bytes that arrived and have not been handled, from _position on
        self._position = 0
        self._unfinished: UnfinishedFrame | None = None
        self._answers: deque[list[Part] | asyncio.Future[Answer]] = deque()
        """Answers that are not ready, and all answers after them."""
        self._small_answer = b""
        """A small answer, including its size field. It is sent in this iteration of the loop, before everything in the
        outbox."""
        self._task: asyncio.Future[Any] | None = None
        """A request that holds the connection, or a new connection's wait for its turn."""
        self._unsent_memory = 0
        self._active_at = 0.0
        self._advancing = False
        self._scheduled = False
        self._paused = False
        self._ending = False  # handle no further frame; close when all answers are sent
        self._ended_by_peer = False
        self._linger: asyncio.TimerHandle | None = None
        self._muted: asyncio.TimerHandle | None = None
        """While a client is above its quota: the timer that lets it go on."""

    # Opening and closing

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        peer = transport.get_extra_info("peername") or ("", 0)
        local = transport.get_extra_info("sockname") or ("", 0)
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but name
        self._active_at = self._loop.time()
        self.address = str(peer[0])
        self.client = Client(self._traffic.accepted, self._listener, (peer[0], peer[1]), (local[0], local[1]))
        self.client.mute = self.mute
        plain = transport.get_extra_info("socket") is not None and transport.get_extra_info("sslcontext") is None
        kind = SocketSender if plain else TransportSender
        self._outbox = Outbox(COPIED_BYTES if plain else sys.maxsize)
        self._sender = kind(self._outbox, self._transport, self._loop, self._offload, self)
        wait_s = self._traffic.admit(self, is_counted=transport.get_extra_info("sslcontext") is not None)
        if wait_s is None or not self._enter():
            self.abort()
        elif wait_s:
            self._task = self._loop.create_future()
            self._loop.call_later(wait_s, self._end_wait)

    def _enter(self) -> bool:
        """Learn who the client is, or what it has to do first. Returns False if it may not come in."""
        if self._entrance is None:
            return True
        try:
            self._guard = self._entrance.enter(self, self._transport, self._traffic, self._dispatch)
        except CloseConnection as error:
            self._traffic.warn(f"closed the connection of {self.address}: {error}")
            return False
        if self._guard is not None:
            self._dispatch = self._guard
        return True

    def let_in(self, dispatch: Dispatch) -> None:
        """From the next frame on, nothing stands between the client and dispatch."""
        self._guard, self._dispatch = None, dispatch

    def _end_wait(self) -> None:
        """max.connection.creation.rate: this connection has its turn now. Handle what the client sent meanwhile."""
        self._task = None
        if not self._transport.is_closing():
            self._advance()

    def connection_lost(self, error: Exception | None) -> None:
        self._release()
        self._traffic.release(self)
        if self._guard is not None:
            self._guard.leave()
        self._transport = CLOSED  # that of TLS holds this connection, and only the garbage collector would free both

    def mute(self, throttle_ms: int) -> None:
        """Handle no further frame for so long, because the client is above its quota. Answers are still sent."""
        seconds = throttle_ms / 1000
        if self._muted is not None:
            if self._muted.when() >= self._loop.time() + seconds:
                return
            self._muted.cancel()
        if not self._ending:
            self._muted = self._loop.call_later(seconds, self._unmute)

    def _unmute(self) -> None:
        self._muted = None
        if not self._transport.is_closing():
            self._advance()

    def drain(self) -> None:
        """Handle no further frame, and close when the answers to earlier frames are sent."""
        if self._is_quiet():
            self._close()
        else:
            self._end()

    def abort(self) -> None:
        """Close at once."""
        self._release()
        self._transport.abort()

    def _end(self) -> None:
        """Handle no further frame. Bytes that still arrive are read and thrown away: if they stayed unread, the kernel
        would reset the connection and the client might lose the last answers."""
        self._ending = True
        self._input, self._position, self._header = NO_BYTES, 0, b""
        self._drop_unfinished()

    def _finish(self) -> None:
        """All answers are sent: wait a moment for the client to read them and to close, then close."""
        if self._linger is not None or self._transport.is_closing():
            return
        if self._ended_by_peer or not self._transport.can_write_eof():
            self._close()
            return
        try:
            self._transport.write_eof()
        except OSError:  # the client has closed without waiting for them
            self._close()
            return
        self._linger = self._loop.call_later(self._traffic.settings.linger_ms / 1000, self._close)

    def _close(self) -> None:
        self._release()
        if self._paused and not self._transport.is_closing():
            # Under TLS, close() would wait for ever for a client that went away while reading was paused.
            self._paused = False
            self._transport.resume_reading()
        self._transport.close()

    def _release(self) -> None:
        self._end()
        self._answers.clear()
        self._small_answer = b""
        self._sender.close()
        self._count_memory()
        if self._linger is not None:
            self._linger.cancel()
        if self._muted is not None:
            self._muted.cancel()
            self._muted = None
        self.client.forget_connection()

    # The fast path, from bytes to bytes

    def buffer_updated(self, count: int) -> None:
        """`count` bytes have arrived where `get_buffer` said."""
        traffic = self._traffic
        traffic.bytes_in += count
        self._active_at = self._loop.time()
        if (
            not (self._task or self._small_answer or self._answers or self._outbox.parts)  # no answer is on its way
            and not (self._unfinished or self._header or self._input or self._ending or self._muted)  # nothing waits
            and count >= SIZE.size
            and SIZE.unpack_from(area := traffic.area)[0] == count - SIZE.size  # exactly one frame has arrived
        ):
            self._answer_at_once(bytearray(area[SIZE.size : count]))
        else:
            self._receive(count)

    def _answer_at_once(self, frame: Frame) -> None:
        """Handle the only frame of a connection at rest, as `_advance` would: in 2 us instead of 10."""
        answer = self._dispatch_frame(frame)
        if isinstance(answer, list):
            self._put(answer)
        elif answer is not None:
            self._await(answer, len(frame))
        if self._small_answer or self._outbox.parts:
            self._traffic.send(self)  # calls `send`, now or at the end of this iteration of the loop
        if self._ending:
            self._go_on()

    def _dispatch_frame(self, frame: Frame) -> Result:
        self._traffic.requests += 1
        try:
            return self._dispatch(self.client, frame)
        except Exception as error:
            self._report(error)
            self._end()
            return None

    def _put(self, answer: list[Part]) -> None:
        """Queue an answer. If no answer waits before it, a small one is sent without the outbox."""
        if self._small_answer:
            self._outbox.put_back(self._small_answer)
            self._small_answer = b""
        elif (
            len(answer) == 1
            and not self._outbox.parts
            and isinstance(part := answer[0], (bytes, bytearray))
            and len(part) <= JOINED_BYTES
        ):
            self._small_answer = SIZE.pack(len(part)) + part
            return
        try:
            self._outbox.put(answer)
        except Exception as error:  # a file that is gone: half an answer is queued, nothing can follow it
            self._report(error)
            self.abort()
        self._count_memory()

    def send(self) -> None:
        """Send what is ready. `Traffic.send` calls this when it is this connection's turn."""
        answer = self._small_answer
        if not answer:
            self._sender.flush()
            return
        self._small_answer = b""
        sent = self._sender.send_small(answer)
        self._traffic.bytes_out += sent
        if sent < len(answer):
            self._outbox.put_back(memoryview(answer)[sent:])
            self._count_memory()
            self._sender.flush()
        elif self._ending or self._ended_by_peer:
            self._advance()

    # All other bytes in

    def get_buffer(self, sizehint: int) -> memoryview:
        unfinished = self._unfinished
        if unfinished is not None:
            return unfinished.room()
        header = self._header
        if header:
            area = self._traffic.area
            area[: len(header)] = header
            return area[len(header) :]
        return self._traffic.area

    def _receive(self, count: int) -> None:
        """Add the bytes to the frame that is arriving, or cut frames out of them."""
        if self._ending:
            return
        traffic = self._traffic
        if self._unfinished is not None:
            growth = self._unfinished.received(count)
            if growth:
                traffic.arriving(growth)
            elif self._unfinished.complete:
                self._advance()
            return
        arrived = traffic.area[: len(self._header) + count]
        self._header = b""
        if self._input:  # the transport had read more before it paused
            arrived = memoryview(bytes(self._input[self._position :]) + arrived)
        self._input, self._position = arrived, 0
        self._advance()
        if self._input:  # the area is the next connection's: keep a copy
            self._input, self._position = memoryview(bytes(self._input[self._position :])), 0

    def eof_received(self) -> bool:
        self._ended_by_peer = True
        if self._linger is not None:
            self._close()
        else:
            self._advance()
        return self._transport.get_extra_info("sslcontext") is None  # stay open until the answers have left

    # Frames

    def _advance(self) -> None:
        """Handle the frames that have arrived, as far as the limits allow, and send the answers that are ready."""
        if self._advancing:
            return
        self._advancing = True
        try:
            self._handle_frames()
            if self._small_answer or self._outbox.parts:
                self._traffic.send(self)
        finally:
            self._advancing = False
        self._go_on()

    def _advance_later(self) -> None:
        self._scheduled = False
        self._advance()

    def _go_on(self) -> None:
        """Decide what happens next: read on, come back for the frames that are left, or close."""
        if self._transport.is_closing():
            return
        waiting = bool(self._input) or (self._unfinished is not None and self._unfinished.complete)
        if waiting:
            if not self._scheduled and not self._is_blocked():
                self._scheduled = True
                self._loop.call_soon(self._advance_later)
        elif (self._ending or self._ended_by_peer) and self._is_quiet():
            self._finish()
        self._read(not waiting and (self._ending or self._traffic.may_read(self)))

    def _read(self, wanted: bool) -> None:
        if wanted is self._paused and not self._ended_by_peer and not self._transport.is_closing():
            self._paused = not wanted
            if wanted:
                if self._unfinished is not None:
                    self._unfinished.started_at = self._loop.time()  # the server caused the pause, not the client
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    def _is_blocked(self) -> bool:
        """Whether a limit forbids to handle the next frame. Whatever lifts it calls `_advance`."""
        settings, unsent = self._traffic.settings, self._outbox.unsent
        return (
            self._task is not None
            or self._muted is not None
            or self._ending
            or len(self._answers) >= settings.in_flight_requests_max
            or unsent > settings.unsent_bytes_max
            or (unsent > 0 and self._traffic.unsent_memory > settings.unsent_memory_bytes_max)
        )

    def _is_quiet(self) -> bool:
        return not (self._small_answer or self._answers or self._outbox.parts or self._input)

    def _handle_frames(self) -> None:
        unfinished = self._unfinished
        if unfinished is not None and unfinished.complete and not self._is_blocked():
            self._unfinished = None
            self._traffic.arriving(-unfinished.memory)
            self._handle(unfinished.take())
        for _ in range(self._traffic.settings.frames_per_turn_max):
            left = len(self._input) - self._position
            if not left or self._is_blocked():
                return
            if left < SIZE.size:
                self._header = bytes(self._input[self._position :])
                self._input, self._position = NO_BYTES, 0
                return
            self._handle_next(left - SIZE.size)

    def _handle_next(self, available: int) -> None:
        """Handle the next frame of the input; if not all of it has arrived, begin an `UnfinishedFrame`."""
        data = self._input
        (size,) = SIZE.unpack_from(data, self._position)
        start = self._position + SIZE.size
        if 0 <= size <= available:
            end = start + size
            if end == len(data):
                self._input, self._position = NO_BYTES, 0
            else:
                self._position = end
            self._handle(bytearray(data[start:end]))
        elif 0 <= size <= self._find_limit():
            self._unfinished = UnfinishedFrame(self._traffic.pool, size, data[start:], self._loop.time())
            self._input, self._position = NO_BYTES, 0
            self._traffic.arriving(self._unfinished.memory)
        else:
            self._traffic.warn(f"closed the connection of {self.address}: it announced a request of {size} bytes")
            self._end()

    def _find_limit(self) -> int:
        """The largest frame that the client may send."""
        limit = self._traffic.settings.socket_request_max_bytes
        return limit if self._guard is None else self._guard.limit_frame(limit)

    def _drop_unfinished(self) -> None:
        unfinished, self._unfinished = self._unfinished, None
        if unfinished is not None:
            self._traffic.arriving(-unfinished.memory)

    # Answers in order

    def _handle(self, frame: Frame) -> None:
        """Handle a frame; its answer is sent after those to the frames before it."""
        answer = self._dispatch_frame(frame)
        if isinstance(answer, list):
            if self._answers:
                self._answers.append(answer)
            else:
                self._put(answer)
        elif answer is not None:
            self._await(answer, len(frame))

    def _await(
        self, answer: "Coroutine[Any, Any, Answer | asyncio.Future[Answer]] | asyncio.Future[Answer]", size: int
    ) -> None:
        future: asyncio.Future[Any]
        if asyncio.isfuture(answer):
            future = answer
        else:
            future = self._task = self._loop.create_task(answer)
            self._traffic.tasks[future] = None
        self._traffic.answering(size)
        self._answers.append(future)
        future.add_done_callback(partial(self._answered, size))

    def _answered(self, size: int, future: "asyncio.Future[Answer | asyncio.Future[Answer]]") -> None:
        self._traffic.tasks.pop(future, None)
        self._active_at = self._loop.time()
        if future is self._task:
            self._task = None
            if self._replace_task(size, future):
                self._advance()
                return
        self._traffic.answering(-size)
        error = CloseConnection("its request was cancelled") if future.cancelled() else future.exception()
        if error is not None:
            self._report(error)
            self._end()
        self._collect()
        self._advance()

    def _replace_task(self, size: int, task: "asyncio.Future[Answer | asyncio.Future[Answer]]") -> bool:
        """If the task returned a future, put that in its place among the answers. Returns whether it did."""
        if task.cancelled() or task.exception() is not None or not asyncio.isfuture(future := task.result()):
            return False
        self._answers = deque(future if answer is task else answer for answer in self._answers)
        future.add_done_callback(partial(self._answered, size))
        return True

    def _collect(self) -> None:
        """Queue the answers at the front that are ready."""
        answers = self._answers
        while answers:
            first = answers[0]
            if isinstance(first, list):
                answer: Answer = first
            elif not first.done():
                return
            elif first.cancelled() or first.exception() is not None:
                answers.clear()
                self._end()
                return
            else:
                result: Any = first.result()
                if asyncio.isfuture(result):
                    return  # a task that has just ended: `_answered` is about to put this future in its place
                answer = result
            answers.popleft()
            if answer is not None:
                self._put(answer)

    def _report(self, error: BaseException) -> None:
        if isinstance(error, CloseConnection):
            log.debug("closing the connection of %s: %s", self.address, error)
        else:
            log.error("closing the connection of %s: handling its request failed", self.address, exc_info=error)

    # Bytes out

    def sent(self, count: int) -> None:
        self._active_at = self._loop.time()
        self._traffic.bytes_out += count
        self._count_memory()
        if self._input or self._unfinished is not None or self._ending or self._ended_by_peer:
            self._advance()

    def send_failed(self, error: Exception) -> None:
        if not isinstance(error, ConnectionError):
            self._traffic.warn(f"closed the connection of {self.address}: cannot send to it ({error!r})")
        self.abort()

    def pause_writing(self) -> None:
        self._sender.pause()

    def resume_writing(self) -> None:
        self._sender.resume()

    def _count_memory(self) -> None:
        self._traffic.unsent_memory += self._outbox.memory - self._unsent_memory
        self._unsent_memory = self._outbox.memory

    # Limits

    def frame_began_at(self) -> float | None:
        unfinished = self._unfinished
        return None if unfinished is None or unfinished.complete else unfinished.started_at

    def frame_filled(self) -> int:
        return 0 if self._unfinished is None else self._unfinished.filled

    def reconsider_reading(self) -> None:
        if not self._advancing:
            self._go_on()

    def sweep(self, now: float) -> None:
        reason = self._find_timeout(now)
        if reason:
            log.debug("closing the connection of %s: %s", self.address, reason)
            self.abort()

    def _find_timeout(self, now: float) -> str:
        """Which time limit of this connection is over, in words; empty if none is."""
        settings = self._traffic.settings
        idle = settings.connections_max_idle_ms >= 0 and now - self._active_at > settings.connections_max_idle_ms / 1000
        if self._outbox.parts or self._transport.is_closing():
            return "the client reads no answers" if idle else ""
        if self._answers or self._muted or (self._paused and not self._input):  # the client waits for the server
            return ""
        if idle:
            return "it is idle (connections.max.idle.ms)"
        unfinished = self._unfinished
        if unfinished is not None and settings.frame_timeout_ms >= 0:
            allowed = settings.frame_timeout_ms / 1000 + unfinished.filled / settings.frame_bytes_per_second_min
            if now - unfinished.started_at > allowed:
                return "its request does not arrive in time"
        return ""
