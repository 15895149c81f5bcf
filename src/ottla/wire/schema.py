"""Messages to bytes and back: readers and writers for every class and version, compiled from the table of the class.

A reader takes a buffer and a position, and returns the message and the position after it; fields that the version does
not have get the default of the protocol. A writer appends to a bytearray. Both are compiled on first use and kept. Both
raise `Malformed`, and nothing else, if the bytes or the message are wrong.
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
    "write_structure",
    "writer",
]

AnyMessage = TypeVar("AnyMessage", bound=Message)


_readers: dict[tuple[type[Message], int], Reader] = {}
_writers: dict[tuple[type[Message], int], Writer] = {}


def reader(message_class: type[Message], version: int) -> Reader:
    found = _readers.get((message_class, version))
    if found is None:
        _check_version(message_class, version)
        found = _readers[message_class, version] = ReaderSource(message_class, version).compile_function()
    return found


def writer(message_class: type[Message], version: int) -> Writer:
    found = _writers.get((message_class, version))
    if found is None:
        _check_version(message_class, version)
        found = _writers[message_class, version] = WriterSource(message_class, version).compile_function()
    return found


def decode(message_class: type[AnyMessage], version: int, buffer: Bytes, position: int = 0) -> AnyMessage:
    """The message in the buffer from `position` on. Malformed if bytes are left over."""
    message: AnyMessage
    message, position = reader(message_class, version)(buffer, position)
    if position != len(buffer):
        raise Malformed(f"{message_class.__name__} v{version}: {len(buffer) - position} bytes left over")
    return message


def encode(message_class: type[AnyMessage], version: int, message: AnyMessage) -> bytearray:
    out = bytearray()
    writer(message_class, version)(out, message)
    return out


def write_structure(owner: type[Message], version: int, structure: AnyMessage) -> AnyMessage:
    """Encode a structure of `owner`. The bytes can take its place in an array of a message of that version.

    The return type is that of the structure, so that mypy accepts the array. The structure must not contain an error
    code: it would not be counted (`error_codes`).
    """
    _check_version(owner, version)
    key = (type(structure), version)
    write = _writers.get(key)
    if write is None:
        write = _writers[key] = WriterSource(type(structure), version, owner.FLEXIBLE_FROM).compile_function()
    out = bytearray()
    write(out, structure)
    return cast(AnyMessage, bytes(out))


def _check_version(message_class: type[Message], version: int) -> None:
    if version not in message_class.VERSIONS:
        raise Malformed(f"{message_class.__name__} has no version {version}")
