"""Confluent's JsonSchemaConverter: plain JSON, with its JSON Schemas in a schema registry.

What JSON Schema cannot say is in properties whose names begin with `connect.`. References, and unions of more than null
and one type, are refused; so are maps whose keys are not strings.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Final

import orjson

from ottla.connect.converters.json_values import JsonValues
from ottla.connect.converters.registered import REGISTRY_SETTINGS, Decode, Encode, RegistryConverter
from ottla.connect.data.schema import DECIMAL, Field, Schema, Type
from ottla.connect.errors import RecordError
from ottla.connect.settings.checks import one_of_ignoring_case
from ottla.connect.settings.definition import Importance, Kind, Setting, Settings
from ottla.pipeline.registry import RegisteredSchema

OPTIONAL_IF_NOT_REQUIRED: Final = "use.optional.for.nonrequired"

_JSON_TYPES: Final[dict[Type, dict[str, Any]]] = {
    Type.INT8: {"type": "integer", "connect.type": "int8"},
    Type.INT16: {"type": "integer", "connect.type": "int16"},
    Type.INT32: {"type": "integer", "connect.type": "int32"},
    Type.INT64: {"type": "integer", "connect.type": "int64"},
    Type.FLOAT32: {"type": "number", "connect.type": "float32"},
    Type.FLOAT64: {"type": "number", "connect.type": "float64"},
    Type.BOOLEAN: {"type": "boolean"},
    Type.STRING: {"type": "string"},
    Type.BYTES: {"type": "string", "connect.type": "bytes"},
}
_CONNECT_TYPES: Final = {found["connect.type"]: kind for kind, found in _JSON_TYPES.items() if "connect.type" in found}
_TYPES: Final = {"integer": Type.INT64, "number": Type.FLOAT64, "boolean": Type.BOOLEAN, "string": Type.STRING}


class JsonSchemaConverter(RegistryConverter):
    kind: ClassVar[str] = "JSON"
    settings: ClassVar[Settings] = Settings(
        (
            *REGISTRY_SETTINGS,
            Setting(
                "decimal.format",
                Kind.STRING,
                "BASE64",
                "Whether decimals are written as BASE64 or as NUMERIC.",
                Importance.LOW,
                check=one_of_ignoring_case("BASE64", "NUMERIC"),
            ),
            Setting(
                OPTIONAL_IF_NOT_REQUIRED,
                Kind.BOOLEAN,
                False,
                "Whether properties that a JSON Schema does not require are optional.",
            ),
        )
    )

    def __init__(self, config: Mapping[str, Any], is_key: bool) -> None:
        super().__init__(config, is_key)
        self._values = JsonValues(config["decimal.format"].upper() == "NUMERIC")
        self._optional_if_not_required: bool = config[OPTIONAL_IF_NOT_REQUIRED]

    def make_reader(self, registered: RegisteredSchema, indexes: tuple[int, ...]) -> tuple[Schema, Decode]:
        schema = self._read(json.loads(registered.text))
        return schema, lambda data: self._values.load(schema, data)

    def make_schema(self, schema: Schema) -> str:
        return json.dumps(self._write(schema))

    def make_writer(self, schema: Schema, registered: RegisteredSchema) -> Encode:
        encode = self._values.find_encoder(schema)
        return lambda value: orjson.dumps(encode(value))

    def _write(self, schema: Schema) -> dict[str, Any]:
        found = self._write_present(schema)
        for name, property_name in (("name", "title"), ("version", "connect.version"), ("doc", "description")):
            if getattr(schema, name) is not None:
                found[property_name] = getattr(schema, name)
        if schema.parameters:
            found["connect.parameters"] = dict(schema.parameters)
        if schema.default is not None:
            found["default"] = self._values.encode(schema, schema.default)
        return {"oneOf": [{"type": "null"}, found]} if schema.optional else found

    def _write_present(self, schema: Schema) -> dict[str, Any]:
        if schema.name == DECIMAL:
            return {"type": "number", "connect.type": "bytes"}
        if schema.type is Type.ARRAY and schema.value_schema:
            return {"type": "array", "items": self._write(schema.value_schema)}
        if schema.type is Type.MAP and schema.key_schema and schema.value_schema:
            if schema.key_schema.type is not Type.STRING:
                raise RecordError(f"JSON Schema has no map with keys of {schema.key_schema.type.name}")
            elements = self._write(schema.value_schema)
            return {"type": "object", "connect.type": "map", "additionalProperties": elements}
        if schema.type is Type.STRUCT:
            properties = {
                each.name: {**self._write(each.schema), "connect.index": at} for at, each in enumerate(schema.fields)
            }
            return {"type": "object", "properties": properties}
        return dict(_JSON_TYPES[schema.type])

    def _read(self, found: Any) -> Schema:
        if not isinstance(found, dict):
            raise ValueError(f"{found!r:.60} is no JSON Schema that Connect has a type for")
        choices = found.get("oneOf", found.get("anyOf"))
        if choices is not None:
            present = [each for each in choices if each.get("type") != "null"]
            if len(present) != 1:
                raise ValueError("it has a union of several types")
            return replace(self._read(present[0]), optional=len(present) < len(choices))
        kinds = found.get("type")
        if isinstance(kinds, list):
            present = [each for each in kinds if each != "null"]
            kind = present[0] if len(present) == 1 else None
            return replace(self._read({**found, "type": kind}), optional=len(present) < len(kinds))
        schema = self._read_present(found)
        version = found.get("connect.version")
        schema = replace(
            schema,
            name=found.get("title"),
            version=version if isinstance(version, int) else None,
            doc=found.get("description"),
            parameters=found.get("connect.parameters", {}),
        )
        return replace(schema, default=self._values.decode(schema, found["default"])) if "default" in found else schema

    def _read_present(self, found: dict[str, Any]) -> Schema:
        kind, connect_type = found.get("type"), found.get("connect.type", "")
        if kind == "array" and isinstance(found.get("items"), dict):
            return Schema(Type.ARRAY, value_schema=self._read(found["items"]))
        if kind == "object" and (connect_type == "map" or "properties" not in found):
            elements = self._read(found.get("additionalProperties"))
            return Schema(Type.MAP, key_schema=Schema(Type.STRING), value_schema=elements)
        if kind == "object":
            return self._read_object(found)
        if connect_type not in _CONNECT_TYPES and kind not in _TYPES:
            raise ValueError(f"{found!r:.60} is no JSON Schema that Connect has a type for")
        return Schema(_CONNECT_TYPES[connect_type] if connect_type in _CONNECT_TYPES else _TYPES[str(kind)])

    def _read_object(self, found: dict[str, Any]) -> Schema:
        required = found.get("required", ())
        properties = sorted(found["properties"].items(), key=lambda each: each[1].get("connect.index", 0))
        fields = []
        for name, each in properties:
            schema = self._read(each)
            if self._optional_if_not_required and name not in required:
                schema = replace(schema, optional=True)
            fields.append(Field(name, schema))
        return Schema(Type.STRUCT, fields=tuple(fields))
