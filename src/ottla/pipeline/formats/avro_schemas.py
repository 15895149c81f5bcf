"""Parses Avro schemas: names of types are replaced by the schemas they stand for."""

import json
from typing import Any

Schema = Any
"""A schema with all names resolved: a dict with `type`, or a list for a union."""

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
_DEPTH_MAX = 50


def parse_schema(text: str) -> Schema:
    """Parses a schema. ValueError if the text is not a schema, or if the schema contains itself: no column type
    does."""
    try:
        found = json.loads(text)
    except ValueError:
        found = text.strip()
    return _resolve(found, {}, "", ())


def _resolve(schema: Any, names: dict[str, Schema], space: str, inside: tuple[str, ...]) -> Schema:
    """Replaces names of types by their schemas. `names` has the types defined so far, `space` is the namespace, and
    `inside` has the records around this schema."""
    if isinstance(schema, list):
        return [_resolve(each, names, space, inside) for each in schema]
    if isinstance(schema, str):
        if schema in PRIMITIVES:
            return {"type": schema}
        full = schema if "." in schema or not space else f"{space}.{schema}"
        full = full if full in names or full in inside else schema
        if full in inside:
            raise ValueError(f"Avro: {full} contains itself, which no column can hold")
        if full not in names:
            raise ValueError(f"Avro: {schema!r:.100} is no type")
        return names[full]
    if not isinstance(schema, dict) or "type" not in schema or len(inside) > _DEPTH_MAX:
        raise ValueError(f"Avro: {schema!r:.100} is no schema")
    kind = schema["type"]
    if isinstance(kind, dict | list):
        return _resolve(kind, names, space, inside)
    if kind == "array":
        return {**schema, "type": kind, "items": _resolve(schema.get("items"), names, space, inside)}
    if kind == "map":
        return {**schema, "type": kind, "values": _resolve(schema.get("values"), names, space, inside)}
    if kind in ("record", "error", "enum", "fixed"):
        return _resolve_named(schema, names, space, inside)
    return {**schema, "type": kind} if kind in PRIMITIVES else _resolve(kind, names, space, inside)


def _resolve_named(schema: dict[str, Any], names: dict[str, Schema], space: str, inside: tuple[str, ...]) -> Schema:
    name = str(schema.get("name", ""))
    space = name.rpartition(".")[0] if "." in name else schema.get("namespace", space) or ""
    full = name if "." in name or not space else f"{space}.{name}"
    found = {**schema, "type": "record" if schema["type"] == "error" else schema["type"], "name": full}
    if found["type"] == "record":
        found["fields"] = [
            {**field, "type": _resolve(field.get("type"), names, space, (*inside, full))}
            for field in schema.get("fields", [])
        ]
    names[full] = found
    return found
