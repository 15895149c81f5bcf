"""kio as the reference: plain values under kio's field names become the bytes that kio writes for them."""

import dataclasses
import io
import typing
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib import import_module
from typing import Any
from uuid import UUID

from kio.schema.errors import ErrorCode
from kio.serial import entity_writer
from kio.static.primitive import i32Timedelta

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def kio_bytes(api: str, kind: str, version: int, values: dict[str, Any]) -> bytes:
    """The bytes that kio writes for the request or response (`kind`) of `api`, with those `values` that the version
    has."""
    module = import_module(f"kio.schema.{api}.v{version}.{kind}")
    message = getattr(module, f"{api.capitalize()}{kind.capitalize()}")
    buffer = io.BytesIO()
    entity_writer(message)(buffer, _entity(message, values))
    return buffer.getvalue()


@cache
def _hints(message: Any) -> dict[str, Any]:
    hints = typing.get_type_hints(message)
    return {field.name: hints[field.name] for field in dataclasses.fields(message)}


def _entity(message: Any, values: dict[str, Any]) -> Any:
    return message(**{name: _value(hint, values[name]) for name, hint in _hints(message).items()})


def _value(hint: Any, value: Any) -> Any:
    options = [option for option in typing.get_args(hint) if option is not type(None)]
    if typing.get_origin(hint) is not tuple and options:
        hint = options[0]  # the type may be null too
    if hint is UUID:
        return UUID(bytes=value) if any(value) else None
    if value is None:
        return None
    if typing.get_origin(hint) is tuple:
        element = typing.get_args(hint)[0]
        return tuple(_value(element, item) for item in value)
    if dataclasses.is_dataclass(hint):
        return _entity(hint, value)
    if hint is ErrorCode:
        return ErrorCode(value)
    if hint is i32Timedelta:
        return timedelta(milliseconds=value)
    if issubclass(hint, datetime):
        return None if value == -1 else EPOCH + timedelta(milliseconds=value)
    return value
