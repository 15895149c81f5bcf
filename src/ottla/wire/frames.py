"""Headers of requests and responses, and the list of APIs.

    request header     1: api key int16, version int16, correlation id int32, client id nullable string
                       2: and tagged fields
    response header    0: correlation id int32
                       1: and tagged fields

Flexible versions of an API have the later header of each kind, with two exceptions: the client id is never compact, and
the answer to ApiVersions always has header 0, because a client that asks for versions does not know them yet.
A frame in this module is what follows the four bytes of its size.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from importlib import import_module
from struct import Struct
from struct import error as struct_error
from typing import Any, NamedTuple, TypeVar

from ottla.wire import schema, shapes
from ottla.wire.malformed import Malformed
from ottla.wire.message import Message
from ottla.wire.messages.index import APIS, UNSPOKEN
from ottla.wire.primitives import Bytes
from ottla.wire.readers import skip_tags

API_VERSIONS = 18

AnyMessage = TypeVar("AnyMessage", bound=Message)

REQUEST_BYTES_MAX = 4 * 1024 * 1024
"""Limit of a request without records. One byte on the wire may become a hundred bytes of Python objects, so requests up
to socket.request.max.bytes, as producers may send, would take gigabytes. A commit for 100,000 partitions fits."""

REQUEST_HEAD = Struct(">iih")
"""The start of every request: API key and version as one number, correlation id, size of the client id."""

_FIXED = Struct(">hhih")
_INT32 = Struct(">i")
_TAGGED_HEADER = Struct(">ix")


EXTENDED = frozenset({"write_txn_markers"})
"""APIs whose requests have fields of our own between brokers (`ottla.wire.extended`)."""


class Api:
    """One API. Its message classes are imported when they are first used."""

    def __init__(self, key: int, name: str, folder: str, first: int, last: int, flexible_from: int) -> None:
        self.key = key
        self.name = name
        self.folder = folder
        self.versions = range(first, last + 1)
        self.flexible_from = flexible_from
        self.tagged_responses_from = schema.NEVER if key == API_VERSIONS else flexible_from

    def __repr__(self) -> str:
        return f"Api({self.key}, {self.name}, {self.versions})"

    @cached_property
    def request(self) -> type[Message]:
        return self._message("Request", "extended" if self.folder in EXTENDED else "messages")

    @cached_property
    def response(self) -> type[Message]:
        return self._message("Response", "messages")

    def _message(self, kind: str, package: str) -> type[Message]:
        found: type[Message] = getattr(import_module(f"ottla.wire.{package}.{self.folder}"), self.name + kind)
        return found


_BY_KEY = {row[0]: Api(*row) for row in APIS}
_BY_FOLDER = {each.folder: each for each in _BY_KEY.values()}


def apis() -> tuple[Api, ...]:
    """Every API that the broker or its clients speak, in the order of their keys."""
    return tuple(_BY_KEY.values())


def list_kafka_apis() -> list[Api]:
    """Every API of Kafka, in the order of their keys. Those that are not spoken here have no messages."""
    return sorted((*_BY_KEY.values(), *(Api(*row) for row in UNSPOKEN)), key=lambda each: each.key)


def api(key: int) -> Api:
    """The API of a key. Malformed if there is none."""
    found = _BY_KEY.get(key)
    if found is None:
        raise Malformed(f"no API has key {key}")
    return found


def find_api_by_folder(folder: str) -> Api:
    """The API whose messages are in `ottla.wire.messages.<folder>`."""
    return _BY_FOLDER[folder]


def is_api(folder: str) -> bool:
    return folder in _BY_FOLDER


def find_api_of(message: Message) -> Api:
    return _BY_FOLDER[type(message).__module__.rpartition(".")[2]]


class RequestHeader(NamedTuple):
    """`end` is the position of the first byte after the header."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    end: int


def correlation_id(frame: Bytes) -> int:
    """The correlation id of a request of any API and version: it is at the same position in every header."""
    if len(frame) < 8:
        raise Malformed(f"a request of {len(frame)} bytes")
    found: int = _INT32.unpack_from(frame, 4)[0]
    return found


def kind(key: int, version: int) -> int:
    """Key and version as one number, as REQUEST_HEAD reads them."""
    return key << 16 | version


def read_request_header(frame: Bytes, of: Api | None = None) -> RequestHeader:
    """The header of a request of any version, also of one that is not supported."""
    try:
        key, version, correlation, size = _FIXED.unpack_from(frame)
    except struct_error:
        raise Malformed("a request that ends within its header") from None
    client_id, end = read_client_id(frame, size, version >= (of or api(key)).flexible_from)
    return RequestHeader(key, version, correlation, client_id, end)


def read_client_id(frame: Bytes, size: int, flexible: bool) -> tuple[str | None, int]:
    """The client id of a request, and the position after the header."""
    end = 10
    client_id = None
    try:
        if size >= 0:
            end += size
            if end > len(frame):
                raise Malformed(f"a client id of {size} bytes, {len(frame) - 10} left")
            client_id = str(frame[10:end], "utf-8")
        elif size != -1:
            raise Malformed(f"a client id of {size} bytes")
        if flexible:
            end = end + 1 if frame[end] == 0 else skip_tags(frame, end, len(frame), "request header")
    except IndexError:
        raise Malformed("a request that ends within its header") from None
    except UnicodeDecodeError as error:
        raise Malformed(f"client id: {error}") from None
    return client_id, end


def response_header(of: Api, version: int, correlation: int) -> bytes:
    return response_header_layout(of, version).pack(correlation)


def response_header_layout(of: Api, version: int) -> Struct:
    """The layout of a response header: the correlation id, and in flexible versions no tagged fields."""
    return _TAGGED_HEADER if version >= of.tagged_responses_from else _INT32


def request_reader(of: Api, version: int) -> Callable[[Bytes, int], Any]:
    """A function that reads the body of a request from a position on, in the newest shape.

    Bytes behind the request are ignored, as in Kafka: librdkafka sends three too many in a Metadata request for all
    topics.
    """
    read, reshape = schema.reader(of.request, version), shapes.find_upgrade(of.request, version)

    def body(frame: Bytes, position: int) -> Any:
        if len(frame) > REQUEST_BYTES_MAX:
            check_size(frame)
        request, _ = read(frame, position)
        if reshape is not None:
            reshape(request, version)
        return request

    return body


def check_size(frame: Bytes) -> None:
    if len(frame) > REQUEST_BYTES_MAX:
        raise Malformed(f"a request of {len(frame)} bytes; without records the limit is {REQUEST_BYTES_MAX}")


def response_writer(of: Api, version: int) -> Callable[[Any, bytes], bytearray]:
    """A function that writes a response after its header. It changes the response to the shape of the version."""
    write, reshape = schema.writer(of.response, version), shapes.find_downgrade(of.response, version)

    def encoded(response: Any, header: bytes) -> bytearray:
        if reshape is not None:
            reshape(response, version)
        out = bytearray(header)
        write(out, response)
        return out

    return encoded


def decode_request(of: Api, version: int, frame: Bytes, position: int = 0) -> Any:
    """The body of one request."""
    return request_reader(of, version)(frame, position)


def encode_response(of: Api, version: int, response: Message, header: bytes = b"") -> bytearray:
    """One response after its header."""
    return response_writer(of, version)(response, header)


def request_header(of: Api, version: int, correlation: int, client_id: str | None) -> bytearray:
    """The header of a request, without the size of the frame. For clients."""
    encoded_id = b"" if client_id is None else client_id.encode()
    out = bytearray(_FIXED.pack(of.key, version, correlation, -1 if client_id is None else len(encoded_id)))
    out += encoded_id
    if version >= of.flexible_from:
        out.append(0)
    return out


def encode_request(message: Message, version: int, correlation: int, client_id: str | None) -> bytes:
    """A whole request as it is sent, preceded by its size. For clients."""
    out = request_header(find_api_of(message), version, correlation, client_id)
    schema.writer(type(message), version)(out, message)
    return _INT32.pack(len(out)) + bytes(out)


def decode_response(message_class: type[AnyMessage], version: int, frame: Bytes) -> tuple[int, AnyMessage]:
    """The correlation id and the message of a response without its size. For clients."""
    of = _BY_FOLDER[message_class.__module__.rpartition(".")[2]]
    try:
        (correlation,) = _INT32.unpack_from(frame)
    except struct_error:
        raise Malformed(f"a response of {len(frame)} bytes") from None
    position = 4
    if version >= of.tagged_responses_from:
        try:
            position = skip_tags(frame, position, len(frame), "response header")
        except IndexError:
            raise Malformed("a response that ends within its header") from None
    return correlation, schema.decode(message_class, version, frame, position)
