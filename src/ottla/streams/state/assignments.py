"""Stores as JSON, for the driver to describe them to a state server, which never unpickles what a network brings."""

from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import pyarrow as pa

from ottla.streams.formats import RecordFormat
from ottla.streams.kernels.kernel import StoreSpec
from ottla.streams.planning.plan import StorePlan
from ottla.streams.state.protocol import ProtocolError

_SPEC = ("name", "is_source")
_FORMAT = tuple(each.name for each in fields(RecordFormat) if each.name not in ("schema", "type"))


def describe_store(plan: StorePlan) -> dict[str, Any]:
    """The store as a JSON object."""
    return {
        **{name: getattr(plan.spec, name) for name in _SPEC},
        "changelog": plan.changelog,
        "key_columns": _describe_schema(plan.key_columns),
        "value_columns": _describe_schema(plan.value_columns),
        "kind": plan.kind,
        "is_queryable": plan.is_queryable,
        "key_format": _describe_format(plan.key_format),
        "value_format": _describe_format(plan.value_format),
        "time": plan.time,
        "window_ms": plan.window_ms,
    }


def read_store(described: Mapping[str, Any]) -> StorePlan:
    """The store that `describe_store` has described. ProtocolError if it is something else."""
    try:
        return StorePlan(
            StoreSpec(**{name: described[name] for name in _SPEC}),
            described["changelog"],
            _read_schema(described["key_columns"]),
            _read_schema(described["value_columns"]),
            described["kind"],
            described["is_queryable"],
            _read_format(described["key_format"]),
            _read_format(described["value_format"]),
            described["time"],
            described["window_ms"],
        )
    except (KeyError, TypeError, ValueError, OSError, pa.ArrowException) as error:
        raise ProtocolError(f"the description of a store is malformed: {error!r}") from None


def _describe_schema(schema: pa.Schema) -> str:
    return b64encode(schema.serialize()).decode()


def _read_schema(text: str) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(b64decode(text)))


def _describe_format(format: RecordFormat | None) -> dict[str, Any] | None:
    if format is None:
        return None
    schema = format.schema
    return {
        **{name: getattr(format, name) for name in _FORMAT},
        "schema": {"bytes": b64encode(schema).decode()} if isinstance(schema, bytes) else schema,
        "type": None if format.type is None else _describe_schema(pa.schema([pa.field("type", format.type)])),
    }


def _read_format(described: Mapping[str, Any] | None) -> RecordFormat | None:
    if described is None:
        return None
    schema, kind = described["schema"], described["type"]
    return RecordFormat(
        **{name: described[name] for name in _FORMAT},
        schema=b64decode(schema["bytes"]) if isinstance(schema, Mapping) else schema,
        type=None if kind is None else _read_schema(kind).field(0).type,
    )
