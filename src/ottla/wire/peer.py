"""One connection from this broker to another one, on the inter-broker listener.

Requests are pipelined: any number may be in flight up to a limit, and the other broker answers them in order. They are
sent in the newest version that both brokers know. A connection that breaks, or whose other end sends bytes that are no
answer, fails everything in flight with `PeerUnavailable` and cannot be used again.

Fetch requests are those of the hand-written codec `wire/fetch`, all others those of the generated classes. The records
of a Fetch answer are views into the memory that they were received into.
"""

import asyncio
from collections.abc import Awaitable, Callable
from struct import Struct
from typing import Any, NamedTuple, cast

from ottla.errors import ErrorCode, KafkaError
from ottla.system.network import Connect
from ottla.wire import fetch, frames
from ottla.wire.malformed import Malformed
from ottla.wire.message import Message
from ottla.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.wire.readers import skip_tags
from ottla.wire.receiving import AREA_BYTES, SIZE, BufferPool, UnfinishedFrame

ANSWER_BYTES_MAX = 100 * 1024 * 1024
IN_FLIGHT_MAX = 5000
"""Requests without an answer on one connection. More are refused: the other broker does not keep up."""
UNSENT_BYTES_MAX = 64 * 1024 * 1024
"""Bytes of requests that the other broker has not taken yet. More requests are refused."""

PeerRequest = Message | fetch.FetchRequest

_FETCH = frames.find_api_by_folder("fetch")
_INT32 = Struct(">i")
_CORRELATION_MAX = (1 << 31) - 1


class PeerUnavailable(Exception):
    """Another broker did not answer. Whether it did what the request asked for is unknown, unless `is_refused`."""

    def __init__(self, message: str, *, is_refused: bool = False) -> None:
        super().__init__(message)
        self.is_refused = is_refused
        """Whether the connection was refused: no process listens at the broker's address."""


class InFlight(NamedTuple):
    """A request whose answer has not arrived."""

    api: frames.Api
    version: int
    answer: asyncio.Future[Any]
    arrived_before: int
    """How many bytes had arrived on the connection when the request was sent."""


async def open_peer(
    connect: Connect,
    host: str,
    port: int,
    *,
    client_id: str,
    timeout_s: float,
    answer_bytes_max: int = ANSWER_BYTES_MAX,
    tls: Any = None,
    login: "Callable[[PeerConnection], Awaitable[None]] | None" = None,
) -> "PeerConnection":
    """Connect, learn the other broker's API versions, log in. PeerUnavailable if that fails, or takes too long."""
    name = f"{host}:{port}"
    connection: PeerConnection | None = None
    try:
        async with asyncio.timeout(timeout_s):
            _, connection = await connect(host, port, lambda: PeerConnection(name, client_id, answer_bytes_max), tls)
            await connection.learn_versions()
            if login is not None:
                await login(connection)
            connection.become_ready()
        if not connection.is_ready:  # the other broker closed it right after its last answer
            raise PeerUnavailable(f"{name}: the connection was closed")
    except PeerUnavailable:
        raise
    except ConnectionRefusedError as error:
        raise PeerUnavailable(f"{name}: connection refused", is_refused=True) from error
    except TimeoutError as error:
        raise PeerUnavailable(f"{name}: no answer within {timeout_s:g} s") from error
    except OSError as error:
        raise PeerUnavailable(f"{name}: {error.strerror or error}") from error
    except Exception as error:  # an invalid host name, an unknown API, an error of the login
        raise PeerUnavailable(f"{name}: {type(error).__name__}: {error}") from error
    finally:
        if connection is not None and not connection.is_ready:
            connection.close("the connection was not set up")
    return connection


class PeerConnection(asyncio.BufferedProtocol):
    """Use `open_peer` to make one."""

    def __init__(self, name: str, client_id: str, answer_bytes_max: int) -> None:
        self.name = name
        self.bytes_in = 0
        self.is_ready = False
        """Whether requests can be sent."""
        self.on_lost: Callable[[str], None] | None = None
        """Called once with the reason when the connection is gone; not by `close`."""
        self._client_id = client_id
        self._answer_bytes_max = answer_bytes_max
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._versions: dict[int, range] = {}
        self._correlation = 0
        self._in_flight: dict[int, InFlight] = {}
        self._expired: dict[int, None] = {}
        """Correlation ids of requests that timed out; their answers are dropped."""
        self._is_closed = False
        self._pool = BufferPool()
        self._area = memoryview(bytearray(AREA_BYTES))
        self._header = b""
        """The first bytes of a size that has not arrived completely."""
        self._unfinished: UnfinishedFrame | None = None

    # Requests

    async def learn_versions(self) -> None:
        response: ApiVersionsResponse = await self._send(ApiVersionsRequest(), 0)  # which every broker knows
        if response.error_code:
            raise PeerUnavailable(f"{self.name}: ApiVersions failed with error code {response.error_code}")
        self._versions = {api.api_key: range(api.min_version, api.max_version + 1) for api in response.api_keys}

    def become_ready(self) -> None:
        self.is_ready = not self._is_closed

    def newest_version(self, api: frames.Api) -> int:
        """The newest version that both brokers know. KafkaError UNSUPPORTED_VERSION if there is none."""
        theirs = self._versions.get(api.key, range(0))
        newest = min(api.versions.stop, theirs.stop) - 1
        if newest < max(api.versions.start, theirs.start):
            message = f"{self.name} has no version of {api.name} that this broker can use"
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, message)
        return newest

    async def request(self, request: PeerRequest, *, timeout_s: float) -> Any:
        """Send a request and wait for its answer. Raises what `send` raises, and PeerUnavailable."""
        return await self.send(request, timeout_s)

    def send(self, request: PeerRequest, timeout_s: float) -> asyncio.Future[Any]:
        """Send a request now. Returns the future of its answer: PeerUnavailable if none arrives within the time.

        A connection on which nothing arrived since the request was sent is closed then. Otherwise the other broker is
        only slow, and the late answer is dropped. PeerUnavailable at once if the connection is closed or too much is in
        flight, KafkaError UNSUPPORTED_VERSION if the other broker does not know the API.
        """
        api = _FETCH if isinstance(request, fetch.FetchRequest) else frames.find_api_of(request)
        answer = self._send(request, self.newest_version(api))
        timer = self._loop.call_later(timeout_s, self._expire, self._correlation, timeout_s)
        answer.add_done_callback(lambda _: timer.cancel())
        return answer

    def _send(self, request: PeerRequest, version: int) -> asyncio.Future[Any]:
        transport = self._transport
        if transport is None or self._is_closed:
            raise PeerUnavailable(f"{self.name}: the connection is closed")
        if len(self._in_flight) + len(self._expired) >= IN_FLIGHT_MAX:
            raise PeerUnavailable(f"{self.name}: {IN_FLIGHT_MAX} requests are in flight already")
        if transport.get_write_buffer_size() > UNSENT_BYTES_MAX:
            raise PeerUnavailable(f"{self.name}: {UNSENT_BYTES_MAX} bytes of requests are not sent yet")
        self._correlation = correlation = self._correlation % _CORRELATION_MAX + 1
        encoded: bytes | bytearray
        if isinstance(request, fetch.FetchRequest):
            api = _FETCH
            header = frames.request_header(api, version, correlation, self._client_id)
            encoded = fetch.write_request(version, request, SIZE.pack(0) + header)
            SIZE.pack_into(encoded, 0, len(encoded) - SIZE.size)
        else:
            api = frames.find_api_of(request)
            encoded = frames.encode_request(request, version, correlation, self._client_id)
        answer: asyncio.Future[Any] = self._loop.create_future()
        self._in_flight[correlation] = InFlight(api, version, answer, self.bytes_in)
        transport.write(encoded)
        return answer

    def _expire(self, correlation: int, timeout_s: float) -> None:
        request = self._in_flight.get(correlation)
        if request is None:
            return
        reason = f"no answer to {request.api.name} within {timeout_s:g} s"
        if request.arrived_before == self.bytes_in:
            self._lose(reason)
            return
        self._forget(correlation)
        if not request.answer.done():
            request.answer.set_exception(PeerUnavailable(f"{self.name}: {reason}"))

    def _forget(self, correlation: int) -> None:
        del self._in_flight[correlation]
        self._expired[correlation] = None

    # The end

    def close(self, reason: str = "the connection is closed") -> None:
        """Close at once. Everything in flight fails with PeerUnavailable."""
        self.on_lost = None
        self._lose(reason)

    def _lose(self, reason: str) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self.is_ready = False
        if self._transport is not None:
            self._transport.abort()
        self._unfinished = None
        self._expired.clear()
        in_flight, self._in_flight = self._in_flight, {}
        for request in in_flight.values():
            if not request.answer.done():
                request.answer.set_exception(PeerUnavailable(f"{self.name}: {reason}"))
        if self.on_lost is not None:
            self.on_lost(reason)

    # The transport's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but name

    def connection_lost(self, error: Exception | None) -> None:
        self._lose("the connection was closed" if error is None else f"the connection broke: {error}")

    def eof_received(self) -> None:
        self._lose("the connection was closed")

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._unfinished is not None:
            return self._unfinished.room()
        header = self._header
        if header:
            self._area[: len(header)] = header
            return self._area[len(header) :]
        return self._area

    def buffer_updated(self, count: int) -> None:
        if self._is_closed:
            return
        self.bytes_in += count
        try:
            self._receive(count)
        except Malformed as error:
            self._lose(f"malformed answer: {error}")

    def _receive(self, count: int) -> None:
        unfinished = self._unfinished
        if unfinished is not None:
            unfinished.received(count)
            if unfinished.complete:
                self._unfinished = None
                self._answer(unfinished.take())
            return
        area, end, position = self._area, len(self._header) + count, 0
        self._header = b""
        while end - position >= SIZE.size and not self._is_closed:
            (size,) = SIZE.unpack_from(area, position)
            if not _INT32.size <= size <= self._answer_bytes_max:
                raise Malformed(f"it announces {size} bytes; the limit is {self._answer_bytes_max}")
            position += SIZE.size
            if end - position < size:
                self._unfinished = UnfinishedFrame(self._pool, size, area[position:end], self._loop.time())
                return
            self._answer(bytearray(area[position : position + size]))
            position += size
        if position < end:
            self._header = bytes(area[position:end])

    def _answer(self, frame: bytearray | memoryview) -> None:
        (correlation,) = _INT32.unpack_from(frame)
        request = self._in_flight.pop(correlation, None)
        if request is None:
            if correlation not in self._expired:
                raise Malformed("it answers a request that was not sent")
            del self._expired[correlation]
            return
        try:
            answer = _decode(request, frame)
        except Malformed:
            self._in_flight[correlation] = request  # it fails with all others
            raise
        if not request.answer.done():
            request.answer.set_result(answer)


def _decode(request: InFlight, frame: bytearray | memoryview) -> Any:
    api, version = request.api, request.version
    if api is not _FETCH:
        return frames.decode_response(api.response, version, frame)[1]
    position = _INT32.size
    try:
        if version >= api.tagged_responses_from:
            position = skip_tags(frame, position, len(frame), "response header")
    except IndexError:
        raise Malformed("it ends within its header") from None
    return fetch.read_response(version, frame, position)
