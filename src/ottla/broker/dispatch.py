"""From the bytes of a request to the bytes of its answer: finds the handler, decodes, runs it, encodes, counts.

The `handle` of a handler is a coroutine function, or a plain function if the answer is usually ready at once. A plain
function may return the response, a coroutine (the connection waits for it) or a future (the next request may start
meanwhile; only Produce does that). A response that is the same for many clients may be bytes: the encoded body, which
must not contain an error code.
"""

import logging
from asyncio import Future, get_running_loop, sleep
from bisect import bisect_left
from collections.abc import Callable, Mapping
from functools import partial
from inspect import iscoroutinefunction
from struct import error as struct_error
from types import CoroutineType
from typing import Any

from ottla.broker.call import Answer, Call, Client, CloseConnection, OwnedCoroutine, Result
from ottla.broker.faults import Fault
from ottla.broker.handler_table import Frame, Handler, Refuse, Written
from ottla.broker.node import Node
from ottla.broker.throttling import Throttling
from ottla.errors import ErrorCode, KafkaError
from ottla.observability.logs import fields
from ottla.observability.metrics import BOUNDS_S, RequestMeter
from ottla.system.clock import stopwatch
from ottla.wire import frames, refusals
from ottla.wire.error_codes import Finder, get_finder
from ottla.wire.malformed import Malformed

logger = logging.getLogger(__name__)
request_logger = logging.getLogger("ottla.requests")
"""Logs one line per answered request if this logger itself is set to DEBUG: --log-level debug is not enough."""

API_VERSIONS = 18
SHORTEST_S = BOUNDS_S[0]

Waited = tuple[float, float]
"""Seconds until the handler of a request ran, and seconds in it until it began to wait."""


class Route:
    """One version of an API with everything that its requests need. Built when the first such request arrives."""

    __slots__ = (
        "api_key",
        "buckets",
        "errors",
        "flexible",
        "handle",
        "header",
        "is_coroutine",
        "meter",
        "name",
        "read",
        "refuse",
        "version",
        "write",
    )

    def __init__(self, handler: Handler, version: int, meter: RequestMeter) -> None:
        api = handler.api
        self.name = api.name
        self.api_key = api.key
        self.version = version
        self.flexible = version >= api.flexible_from
        self.handle = handler.handle
        self.is_coroutine = iscoroutinefunction(handler.handle)
        self.meter = meter
        self.buckets = meter.by_version[version]
        self.header = frames.response_header_layout(api, version).pack
        self.read: Callable[[Frame, int], Any]
        self.write: Callable[[Any, bytes], Written]
        self.refuse: Refuse
        self.errors: Finder | None = None
        """Finds the error codes in a response, to count them; None if the handler counts them itself, as Fetch does."""
        if handler.codec is not None:
            read, write, self.refuse = handler.codec
            self.read, self.write = partial(read, version), partial(write, version)
            return
        self.read = frames.request_reader(api, version)
        self.write = frames.response_writer(api, version)
        self.refuse = lambda call, code, message: refusals.refuse(api, version, call.body, code, message)
        self.errors = get_finder(api.response)


class Dispatch:
    """A function from a frame to its answer, or to a coroutine or future of it."""

    def __init__(self, node: Node, handlers: Mapping[int, Handler]) -> None:
        self._node = node
        self._handlers = handlers
        self._routes: dict[int, Route] = {}
        self._throttling = Throttling(node.quotas)
        node.quotas.on_change = self._routes.clear
        self._meters = node.request_meters.by_key

    def __call__(self, client: Client, frame: Frame) -> Result:
        started_s = stopwatch()
        try:
            kind, correlation_id, size = frames.REQUEST_HEAD.unpack_from(frame)
            route = self._routes.get(kind) or self._find_route(kind)
            if route is None:
                return self._answer_unsupported(client, kind, correlation_id)
            client_id, position = frames.read_client_id(frame, size, route.flexible)
            body = route.read(frame, position)
        except (Malformed, struct_error) as error:
            self._node.request_meters.malformed += 1
            raise CloseConnection(f"malformed request: {error}") from None
        call = Call(route.api_key, route.version, correlation_id, client_id, body, client, started_s)
        if self._node.faults is not None and (fault := self._node.faults.take(route.name)) is not None:
            return self._misbehave(route, call, fault)
        return self._run(route, call)

    def _find_route(self, kind: int) -> Route | None:
        key, version = kind >> 16, kind & 0xFFFF
        handler = self._handlers.get(key)
        if handler is None or version not in handler.versions:
            return None
        meter = self._meters.get(key)
        if meter is None:
            meter = self._meters[key] = RequestMeter(handler.api.name, handler.versions[-1])
        route = self._routes[kind] = Route(handler, version, meter)
        route.handle = self._throttling.wrap(handler)
        route.read = self._throttling.wrap_reader(handler, route.read)
        return route

    def _run(self, route: Route, call: Call[Any]) -> Result:
        try:
            response = route.handle(self._node, call)
        except Exception as error:
            response = self._make_refusal(route, call, error)
        if response.__class__ is CoroutineType:
            return self._await_response(route, call, OwnedCoroutine(response), stopwatch() - call.started_s)
        if isinstance(response, Future):
            return self._encode_later(route, call, response, (0.0, stopwatch() - call.started_s))
        return self._encode(route, call, response)

    async def _await_response(
        self, route: Route, call: Call[Any], response: OwnedCoroutine, handled_s: float
    ) -> Answer | Future[Answer]:
        waited = (stopwatch() - call.started_s, 0.0) if route.is_coroutine else (0.0, handled_s)
        route.meter.waits.waiting += 1
        try:
            result = await response.coroutine
        except Exception as error:
            result = self._make_refusal(route, call, error)
        finally:
            route.meter.waits.waiting -= 1
        if isinstance(result, Future):
            return self._encode_later(route, call, result, waited)
        return self._encode(route, call, result, waited)

    def _encode_later(self, route: Route, call: Call[Any], response: Future[Any], waited: Waited) -> Future[Answer]:
        answer: Future[Answer] = get_running_loop().create_future()
        route.meter.waits.waiting += 1

        def done(response: Future[Any]) -> None:
            route.meter.waits.waiting -= 1
            if answer.cancelled():
                return
            try:
                answer.set_result(self._encode(route, call, response.result(), waited))
            except CloseConnection as error:
                answer.set_exception(error)
            except Exception as error:
                answer.set_result(self._encode(route, call, self._make_refusal(route, call, error), waited))

        response.add_done_callback(done)
        return answer

    def _encode(self, route: Route, call: Call[Any], response: Any, waited: Waited | None = None) -> Answer:
        """Encode the response and count the request. Every answered request passes here once.

        `waited`: of a request that was not answered at once.
        """
        seconds = stopwatch() - call.started_s
        bucket = bisect_left(BOUNDS_S, seconds) if seconds > SHORTEST_S else 0  # most requests are in the first bucket
        route.buckets[bucket] += 1
        route.meter.seconds += seconds
        if waited is not None:
            route.meter.waits.count_wait(seconds, *waited)
        if request_logger.level:
            _log_request(route.name, call, seconds)
        if response is None:
            return None
        header = route.header(call.correlation_id)
        if response.__class__ is bytes:
            return [header + response]
        if route.errors is not None:
            for code in route.errors(response):
                self._node.request_meters.count_error(call.api_key, code)
        written = route.write(response, header)
        return written if isinstance(written, list) else [written]

    def _make_refusal(self, route: Route, call: Call[Any], error: Exception) -> Any:
        if isinstance(error, CloseConnection):
            raise error
        if isinstance(error, KafkaError):
            code, message = error.code, error.message
        else:
            logger.error("%s v%d failed", route.name, call.version, exc_info=error)
            code, message = ErrorCode.UNKNOWN_SERVER_ERROR, ""
        if route.errors is None:
            self._node.request_meters.count_error(call.api_key, code)
        return route.refuse(call, code, message)

    def _answer_unsupported(self, client: Client, kind: int, correlation_id: int) -> Result:
        self._node.request_meters.unsupported += 1
        api_key, version = kind >> 16, kind & 0xFFFF
        if api_key != API_VERSIONS:
            raise CloseConnection(f"API {api_key} version {version} is not supported")
        # A client that is newer than this broker asks for the supported versions. It cannot know yet which version of
        # the answer the broker speaks, so the error is sent in version 0, with the supported range of ApiVersions.
        kind = frames.kind(API_VERSIONS, 0)
        route = self._routes.get(kind) or self._find_route(kind)
        assert route is not None
        call = Call(api_key, 0, correlation_id, None, None, client, stopwatch())
        return self._encode(route, call, route.handle(self._node, call))

    async def _misbehave(self, route: Route, call: Call[Any], fault: Fault) -> Answer:
        """Misbehave as a test demands (`ottla.testing`)."""
        await sleep(fault.delay_s)
        answer: Any = None
        if fault.answer_only or not (fault.drop or fault.error is not None):
            answer = self._run(route, call)
            while isinstance(answer, Future | CoroutineType):
                answer = await answer
        if fault.drop:
            raise CloseConnection("a test asked for it")
        if fault.error is not None:
            return self._encode(route, call, route.refuse(call, fault.error, "a test asked for it"))
        settled: Answer = answer
        return settled


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
