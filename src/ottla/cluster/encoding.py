"""The encoding of metadata changes, as entries of the log and snapshots hold them.

An entry is encoded as a JSON array with one object per change: `kind` and the fields that differ from their default,
keys sorted, no blanks, bytes as base64url without padding. The encoding is canonical: equal changes give equal bytes.
An unknown kind or field is refused, never skipped. The array of a large entry is compressed, because its objects repeat
the same names and ids.
"""

import base64
import binascii
import dataclasses
import json
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING
from enum import IntEnum
from functools import lru_cache
from types import UnionType
from typing import Any, NamedTuple, get_args, get_origin, get_type_hints

from ottla.cluster.changes import Change, ChangePartition
from ottla.errors import ErrorCode, KafkaError

ENTRY_BYTES_MAX = 512 << 10
"""ZooKeeper drops the connection of a client that sends more than 1 MiB. Half of it leaves room for the rest of the
request."""

PLAIN_BYTES_MAX = 16 << 20
"""Size of an entry before compression: about 130,000 new partitions."""

COMPRESS_FROM_BYTES = 4096

COMPRESSED = b"\x01"
"""The first byte of a compressed entry. The rest is a zlib stream. An entry that is not compressed begins with '['."""

_COMPRESSION_LEVEL = 3
"""10,000 new partitions are 1.2 MB; this makes 40 kB of them in 3 ms."""


class MalformedEntry(ValueError):
    """Bytes that are not an entry of this version of the metadata log."""


def encode(changes: Iterable[Change]) -> bytes:
    """The encoding of the changes of an entry. Equal changes give equal bytes; a large entry is compressed."""
    plain = encode_plain(changes)
    if len(plain) > PLAIN_BYTES_MAX:
        message = f"the change is too large: {len(plain)} bytes of metadata, {PLAIN_BYTES_MAX} are the limit"
        raise KafkaError(ErrorCode.POLICY_VIOLATION, message)
    if len(plain) < COMPRESS_FROM_BYTES:
        return plain
    return COMPRESSED + zlib.compress(plain, _COMPRESSION_LEVEL)


def count_fitting(changes: Sequence[ChangePartition]) -> int:
    """How many of these changes, from the first on, fit one entry."""
    count = len(changes)
    if sum(map(_estimate_size, changes)) <= ENTRY_BYTES_MAX:
        return count
    while (excess := _measure_excess(changes[:count])) > 1:
        count = int(count / excess * 0.95)  # the first ones may be larger than the others
    return count


def _estimate_size(change: ChangePartition) -> int:
    """No less than the bytes that the change takes in an entry, which is compressed."""
    brokers = (change.isr or (), change.replicas or (), change.adding or (), change.removing or ())
    return 60 + 5 * sum(map(len, brokers))


def _measure_excess(changes: Sequence[Change]) -> float:
    """The size of an entry with these changes, as a multiple of what is allowed."""
    plain = encode_plain(changes)
    return max(len(plain) / PLAIN_BYTES_MAX, (1 + len(zlib.compress(plain, _COMPRESSION_LEVEL))) / ENTRY_BYTES_MAX)


def encode_plain(changes: Iterable[Change]) -> bytes:
    """The canonical encoding, never compressed."""
    return _dump([_encode_members(change) for change in changes])


def encode_change(change: Change) -> bytes:
    return _dump(_encode_members(change))


def _encode_members(change: Change) -> dict[str, Any]:
    members: dict[str, Any] = {"kind": type(change).__name__}
    for name, field in _FIELDS[type(change)].items():
        value = getattr(change, name)
        if value != field.default:
            members[name] = field.write(value)
    return members


def _dump(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def decode(data: bytes) -> tuple[Change, ...]:
    """The changes of an entry. MalformedEntry says in one line what is wrong with the bytes."""
    if data.startswith(COMPRESSED):
        data = _decompress(data[len(COMPRESSED) :])
    try:
        items = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise MalformedEntry(f"not JSON: {error}") from None
    if type(items) is not list:
        raise MalformedEntry("not an array of changes")
    return tuple(_decode_change(item) for item in items)


def _decompress(data: bytes) -> bytes:
    stream = zlib.decompressobj()
    try:
        plain = stream.decompress(data, PLAIN_BYTES_MAX)
    except zlib.error as error:
        raise MalformedEntry(f"not compressed changes: {error}") from None
    if not stream.eof or stream.unused_data:
        raise MalformedEntry(f"compressed changes that end too early, or are larger than {PLAIN_BYTES_MAX} bytes")
    return plain


def _decode_change(item: object) -> Change:
    if type(item) is not dict:
        raise MalformedEntry(f"not a change: {item!r}")
    kind = item.pop("kind", None)
    change = _KINDS.get(kind) if type(kind) is str else None
    if change is None:
        raise MalformedEntry(f"unknown kind of change {kind!r}; written by a newer version?")
    fields = _FIELDS[change]
    _rename_old_fields(kind, item)
    unknown = sorted(item.keys() - fields.keys())
    if unknown:
        raise MalformedEntry(f"{kind} has an unknown field {unknown[0]!r}; written by a newer version?")
    values = {}
    for name, field in fields.items():
        if name in item:
            try:
                values[name] = field.read(item[name])
            except (TypeError, ValueError):
                raise MalformedEntry(f"{kind}.{name} cannot be {item[name]!r}") from None
        elif field.default is MISSING:
            raise MalformedEntry(f"{kind} lacks {name}")
    return change(**values)  # type: ignore[no-any-return]


def _rename_old_fields(kind: str, item: dict[str, Any]) -> None:
    """Read what versions of Ottla wrote that could not form a cluster yet."""
    if kind == "RegisterBroker" and "directory_id" in item:
        item["directories"] = [item.pop("directory_id")]
        item["first_rules"] = True
    elif kind == "CreatePartition" and "unclean" in item:
        item["recovering"] = item.pop("unclean")


class _Field(NamedTuple):
    default: Any
    read: Callable[[Any], Any]
    write: Callable[[Any], Any]


def _exactly(expected: type) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        if type(value) is not expected:
            raise TypeError(value)
        return value

    return read


def _read_bytes(value: Any) -> bytes:
    if type(value) is not str or "=" in value:
        raise TypeError(value)
    return _decode_base64(value)


@lru_cache(1024)  # the partitions of a topic repeat its id
def _decode_base64(value: str) -> bytes:
    try:
        data = base64.b64decode(value + "=" * (-len(value) % 4), altchars=b"-_", validate=True)
    except binascii.Error:
        raise ValueError(value) from None
    if _write_bytes(data) != value:  # unused bits are set: a second encoding of the same bytes
        raise ValueError(value)
    return data


@lru_cache(1024)
def _write_bytes(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()


def _same(value: Any) -> Any:
    return value


def _optional(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else convert(value)


def _codec(annotation: Any) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """The functions that read and write a field of this type."""
    if annotation is bytes:
        return _read_bytes, _write_bytes
    if isinstance(annotation, type) and issubclass(annotation, tuple) and annotation is not tuple:
        return _named_tuple_codec(annotation)
    if isinstance(annotation, type) and issubclass(annotation, IntEnum):
        return lambda value: annotation(_exactly(int)(value)), int
    if get_origin(annotation) is tuple:
        if get_args(annotation)[0] is int:
            return _read_numbers, list
        read, write = _codec(get_args(annotation)[0])
        sequence = _exactly(list)
        return lambda value: tuple(map(read, sequence(value))), lambda value: list(map(write, value))
    if get_origin(annotation) is UnionType:
        read, write = _codec(get_args(annotation)[0])
        return _optional(read), _optional(write)
    return _exactly(annotation), _same


def _read_numbers(value: Any) -> tuple[int, ...]:
    if type(value) is not list:
        raise TypeError(value)
    for each in value:
        if type(each) is not int:
            raise TypeError(value)
    return tuple(value)


def _named_tuple_codec(annotation: Any) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """A named tuple is written as an array of its fields."""
    codecs = [_codec(hint) for hint in get_type_hints(annotation).values()]

    def read(value: Any) -> Any:
        return annotation(*(codec[0](part) for codec, part in zip(codecs, _exactly(list)(value), strict=True)))

    def write(value: Any) -> Any:
        return [codec[1](part) for codec, part in zip(codecs, value, strict=True)]

    return read, write


def _fields_of(change: Any) -> Mapping[str, _Field]:
    hints = get_type_hints(change)
    return {field.name: _Field(field.default, *_codec(hints[field.name])) for field in dataclasses.fields(change)}


_KINDS: Mapping[str, Any] = {change.__name__: change for change in get_args(Change)}
_FIELDS: Mapping[Any, Mapping[str, _Field]] = {change: _fields_of(change) for change in _KINDS.values()}
