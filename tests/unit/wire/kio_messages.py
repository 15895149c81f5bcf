"""Converts our messages to kio's, so that kio's own writer and reader say what the bytes should be."""

import dataclasses
import io
import typing
from datetime import UTC, datetime, timedelta
from pkgutil import resolve_name
from typing import Any
from uuid import UUID

from kio.schema.errors import ErrorCode
from kio.schema.index import schema_name_map
from kio.serial import entity_reader, entity_writer

from ottla.wire.message import ZERO_UUID, Message

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def kio_class(message_class: type[Message], version: int) -> Any:
    """kio's class for one version: the folder has one with the same name."""
    folder = message_class.__module__.rpartition(".")[2]
    paths = schema_name_map[folder][version].values()
    return next(found for path in paths if (found := resolve_name(path)).__name__ == message_class.__name__)


def kio_write(entity: Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


def kio_read(entity_class: Any, data: bytes) -> Any:
    entity, size = entity_reader(entity_class)(data, 0)
    assert size == len(data)
    return entity


def as_kio(message: Any, entity_class: Any) -> Any:
    return entity_class(
        **{field.name: _kio_value(field, _ours(message, field)) for field in dataclasses.fields(entity_class)}
    )


def _ours(message: Any, field: "dataclasses.Field[Any]") -> Any:
    kio_type = field.metadata.get("kafka_type") or ""
    is_time = kio_type.startswith(("timedelta", "datetime"))
    return getattr(message, f"{field.name}_ms" if is_time else field.name)


def _kio_value(field: "dataclasses.Field[Any]", value: Any) -> Any:
    kio_type = field.metadata.get("kafka_type") or ""
    if isinstance(value, list):
        return tuple(_kio_scalar(kio_type, each, _nested(field.type)) for each in value)
    return _kio_scalar(kio_type, value, _nested(field.type))


def _kio_scalar(kio_type: str, value: Any, nested: Any) -> Any:
    if kio_type == "uuid":
        return None if value in (ZERO_UUID, None) else UUID(bytes=value)
    if value is None:
        return None
    if nested is not None:
        return as_kio(value, nested)
    if kio_type == "error_code":
        return ErrorCode(value)
    if kio_type.startswith("timedelta"):
        return timedelta(milliseconds=value)
    if kio_type.startswith("datetime"):
        return None if value == -1 else EPOCH + timedelta(milliseconds=value)
    return value


def _nested(annotation: Any) -> Any:
    """The dataclass inside of a field's type, if there is one."""
    if dataclasses.is_dataclass(annotation):
        return annotation
    return next((found for each in typing.get_args(annotation) if (found := _nested(each)) is not None), None)
