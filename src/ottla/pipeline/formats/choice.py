"""The format that a user has named (valueFormat, keyFormat), with the schema that goes with it."""

import json
from base64 import b64decode
from typing import Any

import pyarrow as pa

from ottla.pipeline.formats import Format
from ottla.pipeline.formats.avro import Avro
from ottla.pipeline.formats.ddl import type_of_ddl
from ottla.pipeline.formats.framed import Framed
from ottla.pipeline.formats.protobuf import Protobuf
from ottla.pipeline.formats.text import Json, Text, type_of_json_schema
from ottla.pipeline.registry import Registry

NAMES = ("string", "json", "avro", "protobuf")


def choose_format(
    name: str,
    *,
    schema: "pa.DataType | str | bytes | None" = None,
    message: str = "",
    registry: Registry | None = None,
    subject: str = "",
) -> Format:
    """ValueError with one line if the format is none, or lacks what it needs.

    `schema` is an Arrow type, a JSON Schema, or fields as in SQL for json; the text of a schema for avro; a descriptor
    set (bytes, or in base64) with the name of a `message` for protobuf. With a `registry` values carry the number of
    their schema, and without a schema the newest of the `subject` (usually the topic's name and "-value") makes the
    column.
    """
    kind = name.strip().lower()
    if kind not in NAMES:
        raise ValueError(f"{name!r} is no format; there are {', '.join(NAMES)}")
    if kind == "string":
        return Text()
    wanted = _parse_given_schema(kind, schema)
    if registry is not None:
        return Framed(registry, kind, subject, wanted, message)
    if wanted is None:
        raise ValueError(f"{kind} needs a schema, or a schema registry")
    if kind == "json":
        return Json(wanted)
    if kind == "avro":
        return Avro(wanted)
    if not message:
        raise ValueError("protobuf needs the full name of a message")
    return Protobuf.of_set(wanted, message)


def _parse_given_schema(kind: str, schema: "pa.DataType | str | bytes | None") -> Any:
    if schema is None:
        return None
    if kind == "json" and isinstance(schema, str):
        return _type_of_text(schema)
    if kind == "protobuf" and isinstance(schema, str):
        try:
            return b64decode(schema, validate=True)
        except ValueError:
            raise ValueError("not a descriptor set in base64") from None
    expected = {"json": pa.DataType, "avro": str, "protobuf": bytes}[kind]
    if not isinstance(schema, expected):
        raise ValueError(f"a schema for {kind} cannot be {type(schema).__name__}")
    return schema


def _type_of_text(schema: str) -> pa.DataType:
    """`{"type": "object", ...}` or `id BIGINT, name STRING`."""
    if not schema.lstrip().startswith("{"):
        return type_of_ddl(schema)
    try:
        return type_of_json_schema(json.loads(schema))
    except json.JSONDecodeError as error:
        raise ValueError(f"not a JSON Schema: {error}") from None
