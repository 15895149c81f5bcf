"""Quotas around handlers: what a request consumed is counted, and a client above its quota is told to wait.

The answer is sent at once with the time in throttle_time_ms, and then the connection is muted for that time: requests
that arrive meanwhile wait. Handlers are wrapped only while quotas of their kind exist (`Dispatch` asks anew when that
changes), so requests cost nothing more without quotas.

    Produce     bytes of the request, counted when it arrives, and processor time unless acks=0
    Fetch       bytes of the records, counted by the handler (`handlers.fetch`), and processor time
    all others  processor time; those that create or delete partitions count these themselves (`handlers.mutations`)

Requests between brokers are exempt. Processor time is what the handler takes on the event loop, in percent of one
second; time in which it waits does not count.
"""

import asyncio
from collections.abc import Callable, Coroutine, Generator
from types import CoroutineType
from typing import Any

from ottla.broker.call import Call, OwnedCoroutine
from ottla.broker.handler_table import Frame, Handler
from ottla.broker.node import Node
from ottla.quotas.client_quota import ClientQuota
from ottla.quotas.quotas import Quotas
from ottla.system.clock import stopwatch
from ottla.wire.schema import decode

Handle = Callable[[Node, Call[Any]], Any]
Read = Callable[[Frame, int], Any]

PRODUCE, FETCH, ADD_PARTITIONS_TO_TXN, WRITE_TXN_MARKERS = 0, 1, 24, 27
BROKERS_ADD_PARTITIONS_FROM = 4
"""From this version on, AddPartitionsToTxn is a request between brokers."""


class Throttling:
    def __init__(self, quotas: Quotas) -> None:
        self._quotas = quotas

    def wrap(self, handler: Handler) -> Handle:
        """The handler's function, with quotas around it if there are any."""
        quotas = self._quotas
        if handler.api.key == PRODUCE and (quotas.produce.is_active or quotas.request.is_active):
            return Limited(handler, quotas.request, quotas.produce)
        if quotas.request.is_active and handler.api.key != WRITE_TXN_MARKERS:
            return Limited(handler, quotas.request)
        return handler.handle

    def wrap_reader(self, handler: Handler, read: Read) -> Read:
        """The reader of requests. That of Produce notes their size, which the quota counts."""
        if handler.api.key != PRODUCE or not self._quotas.produce.is_active:
            return read

        def read_and_measure(frame: Frame, position: int) -> Any:
            body = read(frame, position)
            body.frame_bytes = len(frame)
            return body

        return read_and_measure


class Limited:
    """A handler with quotas around it."""

    def __init__(self, handler: Handler, time: ClientQuota, size: ClientQuota | None = None) -> None:
        self._handler = handler
        self._time = time
        self._size = size

    def __call__(self, node: Node, call: Call[Any]) -> Any:
        throttle_ms = 0
        if self._size is not None and self._size.is_active:
            throttle_ms = self._size.record(call.client.principal.name, call.client_id, call.body.frame_bytes)
            if throttle_ms:
                call.client.mute(throttle_ms)
        try:
            response = self._handler.handle(node, call)
        except Exception:
            self._charge(call, stopwatch() - call.started_s)
            raise
        if response.__class__ is CoroutineType:
            return self._await(call, OwnedCoroutine(response), throttle_ms)
        spent_s = stopwatch() - call.started_s
        if isinstance(response, asyncio.Future):
            return self._settle_later(call, response, throttle_ms, spent_s)
        return self._settle(call, response, throttle_ms, spent_s)

    async def _await(self, call: Call[Any], response: OwnedCoroutine, throttle_ms: int) -> Any:
        timed = TimedCoroutine(response.coroutine)
        timed.spent_s = stopwatch() - call.started_s
        try:
            result = await timed
        except Exception:
            self._charge(call, timed.spent_s)
            raise
        if isinstance(result, asyncio.Future):
            return self._settle_later(call, result, throttle_ms, timed.spent_s)
        return self._settle(call, result, throttle_ms, timed.spent_s)

    def _settle_later(
        self, call: Call[Any], response: "asyncio.Future[Any]", throttle_ms: int, spent_s: float
    ) -> "asyncio.Future[Any]":
        settled: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def done(response: "asyncio.Future[Any]") -> None:
            if settled.cancelled():
                return
            if response.cancelled():
                settled.cancel()
            elif (error := response.exception()) is not None:
                settled.set_exception(error)
            else:
                settled.set_result(self._settle(call, response.result(), throttle_ms, spent_s))

        response.add_done_callback(done)
        return settled

    def _settle(self, call: Call[Any], response: Any, throttle_ms: int, spent_s: float) -> Any:
        """Count the time of a request, and tell its client how long to wait."""
        throttle_ms = max(throttle_ms, self._charge(call, spent_s))
        return self._announce(call, response, throttle_ms) if throttle_ms else response

    def _charge(self, call: Call[Any], seconds: float) -> int:
        if not self._time.is_active or self._is_exempt(call):
            return 0
        throttle_ms = self._time.record(call.client.principal.name, call.client_id, seconds * 100)
        if throttle_ms:
            call.client.mute(throttle_ms)
        return throttle_ms

    @staticmethod
    def _is_exempt(call: Call[Any]) -> bool:
        if call.api_key == FETCH:
            return bool(call.body.replica_id >= 0)
        if call.api_key == PRODUCE:
            return bool(call.body.acks == 0)
        return call.api_key == ADD_PARTITIONS_TO_TXN and call.version >= BROKERS_ADD_PARTITIONS_FROM

    def _announce(self, call: Call[Any], response: Any, throttle_ms: int) -> Any:
        """Put the time into the answer, if it has a place for it in this version."""
        if response.__class__ is bytes:  # the same answer for many clients, encoded once
            response = decode(self._handler.api.response, call.version, response)
        if hasattr(response, "throttle_time_ms"):
            response.throttle_time_ms = max(response.throttle_time_ms, throttle_ms)
        return response


class TimedCoroutine:
    """An awaitable that runs a coroutine and adds up the time in which it does not wait."""

    __slots__ = ("_coroutine", "spent_s")

    def __init__(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        self._coroutine = coroutine
        self.spent_s = 0.0

    def __await__(self) -> Generator[Any, Any, Any]:
        coroutine = self._coroutine
        step: Callable[[], Any] = lambda: coroutine.send(None)  # noqa: E731
        while True:
            started_s = stopwatch()
            try:
                waited_for = step()
            except StopIteration as end:
                return end.value
            finally:
                self.spent_s += stopwatch() - started_s
            try:
                value = yield waited_for
            except GeneratorExit:
                coroutine.close()
                raise
            except BaseException as error:
                step = _throw(coroutine, error)
            else:
                step = _send(coroutine, value)


def _send(coroutine: Coroutine[Any, Any, Any], value: Any) -> Callable[[], Any]:
    return lambda: coroutine.send(value)


def _throw(coroutine: Coroutine[Any, Any, Any], error: BaseException) -> Callable[[], Any]:
    return lambda: coroutine.throw(error)
