"""The protocol between state servers and those who ask them: frames of packed bytes, never code.

A connection begins with the server's challenge, random bytes. The client's HELLO has the HMAC-SHA256 of the challenge,
keyed with the token that all processes of the app share, so the token itself never travels. From then on each request
gets one answer, in order.

    frame      length (4 bytes, big-endian), kind (1 byte), length of the fields (4 bytes), fields, payload
    fields     a JSON object: names, partitions and offsets
    payload    a list of byte strings: their number, their lengths (4 bytes each; -1 for None), then their bytes
"""

from array import array
from collections.abc import Mapping, Sequence
from hmac import digest
from itertools import accumulate
from struct import Struct
from sys import byteorder
from typing import Any, Final, NamedTuple

import orjson

from ottla.streams.errors import StreamsError

HELLO, ASSIGN, GET_MANY, RANGE, ADVANCE, STATUS, DROP, STOP = range(8)
"""Kinds of requests."""

OK, RESTORING, UNASSIGNED, AHEAD, REFUSED, FAILED, LOST = range(7)
"""Kinds of answers. RESTORING and UNASSIGNED: ask again later. AHEAD: the state has gone on, so the one who asks acts
for a batch that is over. REFUSED: the request is wrong. FAILED: the server could not read the changelog or its disk.
LOST: records of the changelog are gone."""

FRAME_BYTES_MAX: Final = 64 * 1024 * 1024
HELLO_BYTES_MAX: Final = 1024
"""The largest frame of a client that has not shown its token."""
KEYS_MAX: Final = 50_000
"""Keys of one request for values."""
ANSWER_BYTES: Final = 8 * 1024 * 1024
"""An answer with values ends after the first one that goes beyond this size; the client asks for the rest."""
ROWS_MAX: Final = 20_000
"""Rows of one answer to a request for a range."""
CHALLENGE_BYTES: Final = 32

LENGTH: Final = Struct(">I")
_HEAD: Final = Struct(">BI")
_COUNT: Final = Struct(">I")


class ProtocolError(StreamsError):
    """Bytes that are not a frame of this protocol, or a request that a server refuses."""


class StateAhead(StreamsError):
    """The state has gone beyond the offset that was asked for: the batch that asks is over, and its task is fenced."""


class StateLost(StreamsError):
    """Records of a changelog were deleted before the state had them."""


class Frame(NamedTuple):
    kind: int
    fields: Mapping[str, Any]
    payload: memoryview


def prove(token: str, challenge: bytes | memoryview) -> bytes:
    """What a client answers to a challenge to show that it knows the token."""
    return digest(token.encode(), bytes(challenge), "sha256")


def encode_frame(kind: int, fields: Mapping[str, Any], payload: bytes = b"") -> bytes:
    """A frame with its length. ProtocolError if it is too large to be accepted."""
    text = orjson.dumps(fields)
    size = _HEAD.size + len(text) + len(payload)
    if size > FRAME_BYTES_MAX:
        raise ProtocolError(f"a message of {size} bytes is larger than the {FRAME_BYTES_MAX} bytes that are allowed")
    return b"".join((LENGTH.pack(size), _HEAD.pack(kind, len(text)), text, payload))


def decode_frame(body: bytes | bytearray | memoryview) -> Frame:
    """A frame without its length. ProtocolError if it is malformed."""
    view = memoryview(body)
    if len(view) < _HEAD.size:
        raise ProtocolError(f"a message of {len(view)} bytes is too short")
    kind, size = _HEAD.unpack_from(view)
    if size > len(view) - _HEAD.size:
        raise ProtocolError("a message ends within its fields")
    try:
        fields = orjson.loads(view[_HEAD.size : _HEAD.size + size])
    except orjson.JSONDecodeError:
        raise ProtocolError("the fields of a message are not JSON") from None
    if not isinstance(fields, dict):
        raise ProtocolError("the fields of a message are not an object")
    return Frame(kind, fields, view[_HEAD.size + size :])


def pack_many(values: Sequence[bytes | None]) -> bytes:
    """A list of byte strings as a payload."""
    lengths = array("i", [-1 if value is None else len(value) for value in values])
    if byteorder == "little":
        lengths.byteswap()
    return b"".join((_COUNT.pack(len(values)), lengths.tobytes(), *(value for value in values if value is not None)))


def unpack_many(payload: bytes | memoryview) -> list[bytes | None]:
    """The byte strings of a payload. ProtocolError if it is malformed."""
    view = memoryview(payload)
    if len(view) < _COUNT.size:
        raise ProtocolError("a list of byte strings has no length")
    (count,) = _COUNT.unpack_from(view)
    begin = _COUNT.size + 4 * count
    if begin > len(view):
        raise ProtocolError("a list of byte strings ends within its lengths")
    lengths = array("i")
    lengths.frombytes(view[_COUNT.size : begin])
    if byteorder == "little":
        lengths.byteswap()
    if count and min(lengths) < -1:
        raise ProtocolError("a byte string has a length below zero")
    content = bytes(view[begin:])
    sizes = [max(length, 0) for length in lengths]
    if sum(sizes) != len(content):
        raise ProtocolError("the lengths of byte strings do not add up to their bytes")
    ends = accumulate(sizes)
    return [None if length < 0 else content[end - length : end] for length, end in zip(lengths, ends, strict=True)]


def take_text(fields: Mapping[str, Any], name: str) -> str:
    """A field that must be text. ProtocolError if it is not."""
    value = fields.get(name)
    if not isinstance(value, str) or not value:
        raise ProtocolError(f"the field {name!r} is not a text")
    return value


def take_number(fields: Mapping[str, Any], name: str, default: int | None = None) -> int:
    """A field that must be a whole number, zero or above. ProtocolError if it is not."""
    value = fields.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ProtocolError(f"the field {name!r} is not a number from zero on")
    return value
