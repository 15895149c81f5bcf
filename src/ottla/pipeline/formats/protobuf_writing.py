"""Encodes rows as Protobuf messages: the counterpart of `protobuf.py`, for the same descriptors and column types.

A null leaves its field unset, so it has the field's default for readers, unless the field has presence.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from ottla.pipeline.formats.protobuf import Protobuf, is_repeated

_TIMESTAMP = "google.protobuf.Timestamp"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECONDS = 1_000_000
_MICROSECOND = timedelta(microseconds=1)

Fill = Callable[[Any, Any], None]
"""Sets the fields of a message to those of a value."""
Put = Callable[[Any, Any], None]
"""Sets one field of a message."""


class ProtobufEncoder:
    def __init__(self, form: Protobuf) -> None:
        self.type = form.type
        self._message = form.message_class
        self._fill = _make_fill(form.message_class.DESCRIPTOR)

    def encode(self, column: pa.Array, prefix: bytes = b"") -> pa.Array:
        """The bytes of each value after `prefix`; null where the column is null. ValueError if a value does not fit."""
        found: list[bytes | None] = []
        for value in column.to_pylist():
            if value is None:
                found.append(None)
                continue
            message = self._message()
            self._fill(message, value)
            found.append(prefix + message.SerializeToString(deterministic=True))
        return pa.array(found, pa.binary())


def _make_fill(descriptor: Any) -> Fill:
    if descriptor.full_name == _TIMESTAMP:
        return _fill_timestamp
    puts = [(field.name, _refuse_misfits(_make_put(field), field)) for field in descriptor.fields]

    def fill(message: Any, value: Mapping[str, Any]) -> None:
        message.SetInParent()
        for name, put in puts:
            if (found := value.get(name)) is not None:
                put(message, found)

    return fill


def _fill_timestamp(message: Any, value: datetime) -> None:
    message.seconds, microseconds = divmod((value - _EPOCH) // _MICROSECOND, _MICROSECONDS)
    message.nanos = microseconds * 1000


def _refuse_misfits(put: Put, field: Any) -> Put:
    def checked(message: Any, value: Any) -> None:
        try:
            put(message, value)
        except (TypeError, ValueError, AttributeError) as error:
            if isinstance(error, _Misfit):
                raise
            raise _Misfit(f"{field.full_name}: {value!r:.60} does not fit the Protobuf field") from None

    return checked


class _Misfit(ValueError):
    """A value does not fit its field; raised for the innermost one."""


def _make_put(field: Any) -> Put:
    name = field.name
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return _make_map_put(field)
    if field.message_type is not None:
        fill = _make_fill(field.message_type)
        if not is_repeated(field):
            return lambda message, value: fill(getattr(message, name), value)

        def put_messages(message: Any, value: Any) -> None:
            for each in value:
                fill(getattr(message, name).add(), each)

        return put_messages
    convert = _make_convert(field)
    if is_repeated(field):
        return lambda message, value: getattr(message, name).extend([convert(each) for each in value])
    return lambda message, value: setattr(message, name, convert(value))


def _make_map_put(field: Any) -> Put:
    name, entry = field.name, field.message_type.fields_by_name["value"]
    key_of = _make_convert(field.message_type.fields_by_name["key"])
    if entry.message_type is not None:
        fill = _make_fill(entry.message_type)

        def put_messages(message: Any, value: Any) -> None:
            for key, each in value:
                fill(getattr(message, name)[key_of(key)], each)

        return put_messages
    convert = _make_convert(entry)

    def put(message: Any, value: Any) -> None:
        found = getattr(message, name)
        for key, each in value:
            found[key_of(key)] = convert(each)

    return put


def _make_convert(field: Any) -> Callable[[Any], Any]:
    if field.enum_type is not None:
        numbers = {value.name: value.number for value in field.enum_type.values}
        return lambda value: numbers[value] if value in numbers else int(value)
    if field.cpp_type == field.CPPTYPE_UINT64:
        return int
    return lambda value: value
