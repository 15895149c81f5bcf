"""Schemas as JSON, with the names and in the order in which Kafka's JsonConverter writes them."""

from collections.abc import Callable
from typing import Any, Final

from ottla.connect.data.schema import Field, Schema, Type
from ottla.connect.errors import RecordError

DefaultCodec = Callable[[Schema, Any], Any]
"""Between a default value and its JSON."""

_TYPES: Final = {each.value: each for each in Type}


def schema_to_json(schema: Schema, encode: DefaultCodec) -> dict[str, Any]:
    found: dict[str, Any] = {"type": schema.type.value}
    if schema.type is Type.ARRAY:
        found["items"] = _to_json_or_null(schema.value_schema, encode)
    elif schema.type is Type.MAP:
        found["keys"] = _to_json_or_null(schema.key_schema, encode)
        found["values"] = _to_json_or_null(schema.value_schema, encode)
    elif schema.type is Type.STRUCT:
        found["fields"] = [{**schema_to_json(each.schema, encode), "field": each.name} for each in schema.fields]
    found["optional"] = schema.optional
    for name in ("name", "version", "doc"):
        if getattr(schema, name) is not None:
            found[name] = getattr(schema, name)
    if schema.parameters:
        found["parameters"] = dict(schema.parameters)
    if schema.default is not None:
        found["default"] = encode(schema, schema.default)
    return found


def _to_json_or_null(schema: Schema | None, encode: DefaultCodec) -> dict[str, Any] | None:
    return None if schema is None else schema_to_json(schema, encode)


def schema_from_json(found: Any, decode: DefaultCodec) -> Schema | None:
    """RecordError if `found` is not what Kafka takes for a schema. null is no schema."""
    return None if found is None else _parse(found, decode)


def _parse(found: Any, decode: DefaultCodec) -> Schema:
    if not isinstance(found, dict) or not isinstance(found.get("type"), str):
        raise RecordError("Schema must contain 'type' field")
    kind = _TYPES.get(found["type"])
    if kind is None:
        raise RecordError(f"Unknown schema type: {found['type']}")
    fields: tuple[Field, ...] = ()
    key_schema = value_schema = None
    if kind is Type.ARRAY:
        value_schema = _parse_part(found, "items", "Array schema did not specify the element type", decode)
    elif kind is Type.MAP:
        key_schema = _parse_part(found, "keys", "Map schema did not specify the key type", decode)
        value_schema = _parse_part(found, "values", "Map schema did not specify the value type", decode)
    elif kind is Type.STRUCT:
        fields = _parse_fields(found.get("fields"), decode)
    version = found.get("version")
    schema = Schema(
        kind,
        found.get("optional") is True,
        _text_or_none(found.get("name")),
        version if isinstance(version, int) and not isinstance(version, bool) else None,
        _text_or_none(found.get("doc")),
        None,
        _parse_parameters(found.get("parameters")),
        fields,
        key_schema,
        value_schema,
    )
    if "default" not in found:
        return schema
    default = decode(schema, found["default"])
    return Schema(**{**{name: getattr(schema, name) for name in _ATTRIBUTES}, "default": default})


_ATTRIBUTES: Final = tuple(Schema.__dataclass_fields__)


def _parse_part(found: dict[str, Any], name: str, trouble: str, decode: DefaultCodec) -> Schema:
    if found.get(name) is None:
        raise RecordError(trouble)
    return _parse(found[name], decode)


def _parse_fields(found: Any, decode: DefaultCodec) -> tuple[Field, ...]:
    if not isinstance(found, list):
        raise RecordError('Struct schema\'s "fields" argument is not an array.')
    for each in found:
        if not isinstance(each, dict) or not isinstance(each.get("field"), str):
            raise RecordError("Struct schema's field name not specified properly")
    return tuple(Field(each["field"], _parse(each, decode)) for each in found)


def _parse_parameters(found: Any) -> dict[str, str]:
    if not isinstance(found, dict):
        return {}
    if not all(isinstance(each, str) for each in found.values()):
        raise RecordError("Schema parameters must have string values.")
    return found


def _text_or_none(found: Any) -> str | None:
    return found if isinstance(found, str) else None
