"""Messages to bytes and back: readers and writers for every class and version, compiled from the class's table.

A reader takes a buffer and a position and gives the message and the position after it; what its version lacks has the
protocol's default. A writer appends to a bytearray. Both are compiled when they are first asked for and then kept.
Everything that is wrong with the bytes, or with a message that is to become bytes, is `Malformed` and nothing else.
"""

from __future__ import annotations

from typing import TypeVar, cast

from ottla.wire.malformed import Malformed
from ottla.wire.message import EMPTY, NEVER, ZERO_UUID, Field, Message
from ottla.wire.primitives import Bytes
from ottla.wire.readers import Reader, ReaderSource
from ottla.wire.writers import Writer, WriterSource

__all__ = [
    "EMPTY",
    "NEVER",
    "ZERO_UUID",
    "Field",
    "Malformed",
    "Message",
    "decode",
    "encode",
    "reader",
    "writer",
    "written",
]

AnyMessage = TypeVar("AnyMessage", bound=Message)


_readers: dict[tuple[type[Message], int], Reader] = {}
_writers: dict[tuple[type[Message], int], Writer] = {}


def reader(message_class: type[Message], version: int) -> Reader:
    found = _readers.get((message_class, version))
    if found is None:
        _check_version(message_class, version)
        found = _readers[message_class, version] = ReaderSource(message_class, version).compiled()
    return found


def writer(message_class: type[Message], version: int) -> Writer:
    found = _writers.get((message_class, version))
    if found is None:
        _check_version(message_class, version)
        found = _writers[message_class, version] = WriterSource(message_class, version).compiled()
    return found


def decode(message_class: type[AnyMessage], version: int, buffer: Bytes, position: int = 0) -> AnyMessage:
    """The message that fills the buffer from `position` to its end, to the last byte."""
    message: AnyMessage
    message, position = reader(message_class, version)(buffer, position)
    if position != len(buffer):
        raise Malformed(f"{message_class.__name__} v{version}: {len(buffer) - position} bytes left over")
    return message


def encode(message_class: type[AnyMessage], version: int, message: AnyMessage) -> bytearray:
    out = bytearray()
    writer(message_class, version)(out, message)
    return out


def written(owner: type[Message], version: int, structure: AnyMessage) -> AnyMessage:
    """A structure of `owner` as the bytes that it is in messages of that version, to stand for it in an array there.

    The type is that of what the bytes stand for. They must not tell an error: nobody would find it (`error_codes`).
    """
    _check_version(owner, version)
    key = (type(structure), version)
    write = _writers.get(key)
    if write is None:
        write = _writers[key] = WriterSource(type(structure), version, owner.FLEXIBLE_FROM).compiled()
    out = bytearray()
    write(out, structure)
    return cast(AnyMessage, bytes(out))


def _check_version(message_class: type[Message], version: int) -> None:
    if version not in message_class.VERSIONS:
        raise Malformed(f"{message_class.__name__} has no version {version}")
