"""One module per API, named like its folder in Kafka's schema: VERSIONS and handle(node, call).

This package derives the dispatch table, and with it what ApiVersions answers, from those modules: they cannot disagree.
`handle` is a coroutine function, or a plain one where the answer is usually ready at once. A plain one may return a
coroutine (the connection waits for it) or a future (the next request may start meanwhile; only Produce does that).
A module with a codec of its own (records without copies) names it in `CODEC`.
"""

import asyncio
import logging
import pkgutil
from bisect import bisect_left
from collections.abc import Callable, Coroutine, Iterable, Mapping
from importlib import import_module
from typing import Any, NamedTuple

from ottla.call import Answer, Call, Client, CloseConnection, Result
from ottla.clock import stopwatch
from ottla.errors import ErrorCode, KafkaError
from ottla.faults import Fault
from ottla.logs import fields
from ottla.metrics import BOUNDS_S, RequestMeter
from ottla.node import Node
from ottla.wire import frames, refusals
from ottla.wire.error_codes import error_codes
from ottla.wire.malformed import Malformed

logger = logging.getLogger(__name__)
request_logger = logging.getLogger("ottla.requests")
"""Every answered request, one line each, if this logger itself is set to DEBUG: --log-level debug is not enough."""

API_VERSIONS = 18
SHORTEST_S = BOUNDS_S[0]

Read = Callable[[int, memoryview, int], Any]
Write = Callable[[int, Any, bytes], Answer]
Refuse = Callable[[Call[Any], ErrorCode, str], Any]
Errors = Callable[[Any], Iterable[int]] | None
Codec = tuple[Read, Write, Refuse]


class Handler(NamedTuple):
    api: frames.Api
    versions: range
    handle: Callable[[Node, Call[Any]], Any]
    read: Read
    write: Write
    refuse: Refuse
    errors: Errors
    """Every error code that a response tells; None where the handler counts them: it answers too often for a search."""


def _generic_codec(api: frames.Api) -> Codec:
    def read(version: int, frame: memoryview, position: int) -> Any:
        return frames.decode_request(api, version, frame, position)

    def write(version: int, response: Any, header: bytes) -> Answer:
        return [frames.encode_response(api, version, response, header)]

    def refuse(call: Call[Any], code: ErrorCode, message: str) -> Any:
        return refusals.refuse(api, call.version, call.body, code, message)

    return read, write, refuse


def load() -> Mapping[int, Handler]:
    """Every handler by API key."""
    handlers = {}
    for module_info in pkgutil.iter_modules(__path__):
        module = import_module(f"{__name__}.{module_info.name}")
        api = frames.api_named(module_info.name)
        own_codec: Codec | None = getattr(module, "CODEC", None)
        read, write, refuse = own_codec or _generic_codec(api)
        errors = None if own_codec else error_codes
        handlers[api.key] = Handler(api, module.VERSIONS, module.handle, read, write, refuse, errors)
    return dict(sorted(handlers.items()))


class Dispatch:
    """Bytes of a request in, an answer (or the promise of one) out."""

    def __init__(self, node: Node, handlers: Mapping[int, Handler]) -> None:
        self._node = node
        self._handlers = handlers
        self._meters = node.request_meters.by_key
        for key, handler in handlers.items():
            self._meters[key] = RequestMeter(handler.api.name, handler.versions[-1])

    def __call__(self, client: Client, frame: memoryview) -> Result:
        started_s = stopwatch()
        try:
            api_key, version = frames.api_key_and_version(frame)
            handler = self._handlers.get(api_key)
            if handler is None or version not in handler.versions:
                return self._unsupported(client, frame, api_key, version)
            header = frames.read_request_header(frame, handler.api)
            body = handler.read(version, frame, header.end)
        except Malformed as error:
            self._node.request_meters.malformed += 1
            raise CloseConnection(f"malformed request: {error}") from None
        call = Call(api_key, version, header.correlation_id, header.client_id, body, client, started_s)
        if self._node.faults is not None and (fault := self._node.faults.take(handler.api.name)) is not None:
            return self._faulty(handler, call, fault)
        return self._run(handler, call)

    def _run(self, handler: Handler, call: Call[Any]) -> Result:
        try:
            response = handler.handle(self._node, call)
        except Exception as error:
            response = self._refusal(handler, call, error)
        if isinstance(response, asyncio.Future):
            return self._later(handler, call, response)
        if asyncio.iscoroutine(response):
            return self._wait(handler, call, response)
        return self._encode(handler, call, response)

    async def _wait(self, handler: Handler, call: Call[Any], response: Coroutine[Any, Any, Any]) -> Answer:
        try:
            result = await response
        except Exception as error:
            result = self._refusal(handler, call, error)
        return self._encode(handler, call, result)

    def _later(self, handler: Handler, call: Call[Any], response: asyncio.Future[Any]) -> asyncio.Future[Answer]:
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

        def done(response: asyncio.Future[Any]) -> None:
            if answer.cancelled():
                return
            try:
                answer.set_result(self._encode(handler, call, response.result()))
            except CloseConnection as error:
                answer.set_exception(error)
            except Exception as error:
                answer.set_result(self._encode(handler, call, self._refusal(handler, call, error)))

        response.add_done_callback(done)
        return answer

    def _encode(self, handler: Handler, call: Call[Any], response: Any) -> Answer:
        """The answer in bytes, counted: every request that has one passes here once."""
        seconds = stopwatch() - call.started_s
        meter = self._meters[call.api_key]
        bucket = bisect_left(BOUNDS_S, seconds) if seconds > SHORTEST_S else 0  # most requests need no search
        meter.by_version[call.version][bucket] += 1
        meter.seconds += seconds
        if request_logger.level:
            _log_request(meter.request, call, seconds)
        if response is None:
            return None
        if handler.errors is not None:
            for code in handler.errors(response):
                self._node.request_meters.told(call.api_key, code)
        header = frames.response_header(handler.api, call.version, call.correlation_id)
        return handler.write(call.version, response, header)

    def _refusal(self, handler: Handler, call: Call[Any], error: Exception) -> Any:
        if isinstance(error, CloseConnection):
            raise error
        if isinstance(error, KafkaError):
            code, message = error.code, error.message
        else:
            logger.error("%s v%d failed", handler.api.name, call.version, exc_info=error)
            code, message = ErrorCode.UNKNOWN_SERVER_ERROR, ""
        if handler.errors is None:
            self._node.request_meters.told(call.api_key, code)
        return handler.refuse(call, code, message)

    def _unsupported(self, client: Client, frame: memoryview, api_key: int, version: int) -> Result:
        self._node.request_meters.unsupported += 1
        if api_key != API_VERSIONS:
            raise CloseConnection(f"API {api_key} version {version} is not supported")
        # A client newer than us asks for our versions: it cannot know yet which form of the answer we speak, so
        # the error goes out in version 0, with our own range of ApiVersions inside for it to try again.
        handler = self._handlers[API_VERSIONS]
        correlation_id = frames.correlation_id(frame)
        call = Call(api_key, 0, correlation_id, None, None, client, stopwatch())
        return self._encode(handler, call, handler.handle(self._node, call))

    async def _faulty(self, handler: Handler, call: Call[Any], fault: Fault) -> Answer:
        """A test asked for this API to misbehave (ottla.testing)."""
        await asyncio.sleep(fault.delay_s)
        answer: Answer = None
        if fault.answer_only or not (fault.drop or fault.error is not None):
            result = self._run(handler, call)
            answer = await result if isinstance(result, asyncio.Future) or asyncio.iscoroutine(result) else result
        if fault.drop:
            raise CloseConnection("a test asked for it")
        if fault.error is not None:
            return self._encode(handler, call, handler.refuse(call, fault.error, "a test asked for it"))
        return answer


def _log_request(request: str, call: Call[Any], seconds: float) -> None:
    request_logger.debug(
        "%s v%d",
        request,
        call.version,
        extra=fields(
            client=call.client_id,
            address=f"{call.client.address}:{call.client.port}",
            correlation=call.correlation_id,
            ms=round(seconds * 1000, 3),
        ),
    )
