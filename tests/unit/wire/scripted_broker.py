"""The other end of a connection between brokers, on the simulated network: it answers as the test says."""

import asyncio
from collections.abc import Callable
from struct import Struct
from typing import cast

from ottla.wire import frames
from ottla.wire.message import Message
from ottla.wire.messages.api_versions import ApiVersion, ApiVersionsResponse

_SIZE = Struct(">i")

Answer = Callable[["ScriptedBroker", frames.RequestHeader, bytes], None]


def frame(data: bytes | bytearray) -> bytes:
    return _SIZE.pack(len(data)) + data


def encode(header: frames.RequestHeader, response: Message) -> bytes:
    """A whole response as it is sent."""
    api = frames.api(header.api_key)
    start = frames.response_header(api, header.api_version, header.correlation_id)
    return frame(frames.encode_response(api, header.api_version, response, start))


def answer_versions(broker: "ScriptedBroker", header: frames.RequestHeader) -> None:
    keys = [
        ApiVersion(api_key=api.key, min_version=api.versions.start, max_version=api.versions.stop - 1)
        for api in frames.apis()
    ]
    broker.transport.write(encode(header, ApiVersionsResponse(api_keys=keys)))


class ScriptedBroker(asyncio.Protocol):
    """Answers ApiVersions by itself if `greets`, and leaves all other requests to `answer`."""

    def __init__(self, answer: Answer, *, greets: bool = True) -> None:
        self.transport: asyncio.Transport
        self.requests: list[frames.RequestHeader] = []
        self._answer = answer
        self._greets = greets
        self._received = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        while len(self._received) >= _SIZE.size:
            (size,) = _SIZE.unpack_from(self._received)
            if len(self._received) < _SIZE.size + size:
                return
            request = bytes(self._received[_SIZE.size : _SIZE.size + size])
            del self._received[: _SIZE.size + size]
            header = frames.read_request_header(request)
            if self._greets and header.api_key == frames.API_VERSIONS:
                answer_versions(self, header)
            else:
                self.requests.append(header)
                self._answer(self, header, request)
