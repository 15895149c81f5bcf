"""Makes the format that a user has named with the options valueFormat and keyFormat, with its schema."""

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
    """Makes a format. ValueError with one line if there is no format of that name, or if it lacks a parameter.

    For json, `schema` is an Arrow type, a JSON Schema, or fields in SQL syntax. For avro it is the text of a schema.
    For protobuf it is a descriptor set (bytes, or text in base64), and `message` is the name of a message in it. With a
    `registry` each value carries the id of its schema; if no `schema` is given, the newest one of the `subject`
    (usually the topic's name and "-value") determines the column's type.
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
        return _parse_json_type(schema)
    if kind == "protobuf" and isinstance(schema, str):
        try:
            return b64decode(schema, validate=True)
        except ValueError:
            raise ValueError("not a descriptor set in base64") from None
    expected = {"json": pa.DataType, "avro": str, "protobuf": bytes}[kind]
    if not isinstance(schema, expected):
        raise ValueError(f"a schema for {kind} cannot be {type(schema).__name__}")
    return schema


def _parse_json_type(schema: str) -> pa.DataType:
    """Parses a JSON Schema, `{"type": "object", ...}`, or fields in SQL syntax, `id BIGINT, name STRING`."""
    if not schema.lstrip().startswith("{"):
        return type_of_ddl(schema)
    try:
        return type_of_json_schema(json.loads(schema))
    except json.JSONDecodeError as error:
        raise ValueError(f"not a JSON Schema: {error}") from None
