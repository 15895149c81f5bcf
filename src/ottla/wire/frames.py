"""Headers of requests and responses, and the register of the APIs.

    request header     1: api key int16, version int16, correlation id int32, client id nullable string
                       2: and tagged fields
    response header    0: correlation id int32
                       1: and tagged fields

The flexible versions of an API have the later header of each. Two old rules remain: the client id is never compact, and
the answer to ApiVersions always has header 0, since a client that asks for versions cannot know which one is meant.
A frame here is what follows the four bytes of its size.
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
from ottla.wire.messages.index import APIS
from ottla.wire.primitives import Bytes
from ottla.wire.readers import skip_tags

API_VERSIONS = 18

AnyMessage = TypeVar("AnyMessage", bound=Message)

REQUEST_BYTES_MAX = 4 * 1024 * 1024
"""Of a request that carries no records. A byte on the wire may become a hundred of Python objects, so that what
socket.request.max.bytes allows a producer would be gigabytes; a commit for 100,000 partitions fits."""

REQUEST_HEAD = Struct(">iih")
"""What every request begins with: its kind (key and version as one number), correlation id, size of the client id."""

_KEY_AND_VERSION = Struct(">hh")
_FIXED = Struct(">hhih")
_INT32 = Struct(">i")
_TAGGED_HEADER = Struct(">ix")


class Api:
    """One API; its message classes are imported when they are first needed."""

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
        return self._message("Request")

    @cached_property
    def response(self) -> type[Message]:
        return self._message("Response")

    def _message(self, kind: str) -> type[Message]:
        found: type[Message] = getattr(import_module(f"ottla.wire.messages.{self.folder}"), self.name + kind)
        return found


_BY_KEY = {row[0]: Api(*row) for row in APIS}
_BY_FOLDER = {each.folder: each for each in _BY_KEY.values()}


def apis() -> tuple[Api, ...]:
    """Every API, in the order of their keys."""
    return tuple(_BY_KEY.values())


def api(key: int) -> Api:
    """The API of a key; a key that nobody knows is the sender's mistake."""
    found = _BY_KEY.get(key)
    if found is None:
        raise Malformed(f"no API has key {key}")
    return found


def api_named(folder: str) -> Api:
    """The API whose messages are in `ottla.wire.messages.<folder>`."""
    return _BY_FOLDER[folder]


def is_api(folder: str) -> bool:
    return folder in _BY_FOLDER


def api_of(message: Message) -> Api:
    return _BY_FOLDER[type(message).__module__.rpartition(".")[2]]


class RequestHeader(NamedTuple):
    """`end` is the position of the first byte after the header."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    end: int


def api_key_and_version(frame: Bytes) -> tuple[int, int]:
    """What has to be known before the rest of the header can be read."""
    if len(frame) < 8:
        raise Malformed(f"a request of {len(frame)} bytes")
    key, version = _KEY_AND_VERSION.unpack_from(frame)
    return key, version


def correlation_id(frame: Bytes) -> int:
    """The correlation id of a request, whatever its API and version: it has the same place in every header."""
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
    """The rest of a request's header, and the position after it."""
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
    """How the correlation id, and what tagged fields there are after it (none), become the header."""
    return _TAGGED_HEADER if version >= of.tagged_responses_from else _INT32


def request_reader(of: Api, version: int) -> Callable[[Bytes, int], Any]:
    """What reads a request's body from a position on, and gives it its newest shape.

    Bytes behind it are passed over, as Kafka does: librdkafka asks for the metadata of all topics with three too many.
    """
    read, reshape = schema.reader(of.request, version), shapes.upward(of.request, version)

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
        raise Malformed(f"{len(frame)} bytes; without records a request may have {REQUEST_BYTES_MAX}")


def response_writer(of: Api, version: int) -> Callable[[Any, bytes], bytearray]:
    """What writes a response behind its header; it is changed where the version needs another shape or other codes."""
    write, reshape = schema.writer(of.response, version), shapes.downward(of.response, version)

    def encoded(response: Any, header: bytes) -> bytearray:
        if reshape is not None:
            reshape(response, version)
        out = bytearray(header)
        write(out, response)
        return out

    return encoded


def decode_request(of: Api, version: int, frame: Bytes, position: int = 0) -> Any:
    """One request's body."""
    return request_reader(of, version)(frame, position)


def encode_response(of: Api, version: int, response: Message, header: bytes = b"") -> bytearray:
    """One response, behind its header."""
    return response_writer(of, version)(response, header)


def request_header(of: Api, version: int, correlation: int, client_id: str | None) -> bytearray:
    """What every request begins with, behind its size. For clients."""
    encoded_id = b"" if client_id is None else client_id.encode()
    out = bytearray(_FIXED.pack(of.key, version, correlation, -1 if client_id is None else len(encoded_id)))
    out += encoded_id
    if version >= of.flexible_from:
        out.append(0)
    return out


def encode_request(message: Message, version: int, correlation: int, client_id: str | None) -> bytes:
    """A whole request as it goes over the network, with its size before it. For clients."""
    out = request_header(api_of(message), version, correlation, client_id)
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
