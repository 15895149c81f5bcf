"""Connect's schemas as Avro's and back, as Confluent's AvroConverter has them, with the functions for their values.

What Avro cannot say is in properties whose names begin with `connect.`. A MAP whose keys are not strings is an array of
entries. A union of several types is a STRUCT with a field for each, of which one is not null.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from ottla.connect.data.arrow_types import PRECISION
from ottla.connect.data.logical import find_scale, from_logical, to_logical
from ottla.connect.data.schema import DATE, DECIMAL, LOGICAL_NAMES, TIME, TIMESTAMP, Field, Schema, Type
from ottla.connect.errors import RecordError

Convert = Callable[[Any], Any]

NAMESPACE: Final = "io.confluent.connect.avro"
UNION: Final = f"{NAMESPACE}.Union"
_UNNAMED: Final = f"{NAMESPACE}.ConnectDefault"
"""The record of a STRUCT without a name; others of them have a number behind it."""
_ENTRY: Final = "MapEntry"
_PRECISION: Final = "64"
"""Of a decimal whose schema does not say it, as Confluent has it."""

_AVRO_TYPES: Final[dict[Type, Any]] = {
    Type.INT8: {"type": "int", "connect.type": "int8"},
    Type.INT16: {"type": "int", "connect.type": "int16"},
    Type.INT32: {"type": "int"},
    Type.INT64: {"type": "long"},
    Type.FLOAT32: {"type": "float"},
    Type.FLOAT64: {"type": "double"},
    Type.BOOLEAN: {"type": "boolean"},
    Type.STRING: {"type": "string"},
    Type.BYTES: {"type": "bytes"},
}
_TYPES: Final = {
    "int": Type.INT32,
    "long": Type.INT64,
    "float": Type.FLOAT32,
    "double": Type.FLOAT64,
    "boolean": Type.BOOLEAN,
    "string": Type.STRING,
    "bytes": Type.BYTES,
    "fixed": Type.BYTES,
    "enum": Type.STRING,
}
_SMALL_TYPES: Final = {"int8": Type.INT8, "int16": Type.INT16}
_LOGICAL_TYPES: Final = {DATE: "date", TIME: "time-millis", TIMESTAMP: "timestamp-millis", DECIMAL: "decimal"}
_LOGICAL_NAMES: Final = {text: name for name, text in _LOGICAL_TYPES.items()}


class AvroWriter:
    """Makes the Avro schema of a schema, and the function that makes values for it."""

    def __init__(self) -> None:
        self._records: dict[str, Schema] = {}
        """The named records so far: Avro defines each once and names it afterwards."""

    def write(self, schema: Schema) -> tuple[Any, Convert]:
        avro, convert = self._write_present(schema)
        _add_properties(avro, schema)
        avro = avro["type"] if avro.keys() == {"type"} else avro
        if not schema.optional:
            default = schema.default
            return avro, (lambda value: convert(default if value is None else value))
        union = [avro, "null"] if schema.default is not None else ["null", avro]
        return union, lambda value: None if value is None else convert(value)

    def _write_present(self, schema: Schema) -> tuple[Any, Convert]:
        if schema.name in LOGICAL_NAMES:
            avro = {**_AVRO_TYPES[schema.type], "logicalType": _LOGICAL_TYPES[schema.name or ""]}
            if schema.name == DECIMAL:
                avro |= {"scale": find_scale(schema), "precision": int(schema.parameters.get(PRECISION, _PRECISION))}
            return avro, lambda value: from_logical(schema, value)
        if schema.type is Type.ARRAY and schema.value_schema:
            items, convert = self.write(schema.value_schema)
            return {"type": "array", "items": items}, lambda value: [convert(each) for each in value]
        if schema.type is Type.MAP and schema.key_schema and schema.value_schema:
            return self._write_map(schema.key_schema, schema.value_schema)
        if schema.type is Type.STRUCT:
            return self._write_record(schema)
        return dict(_AVRO_TYPES[schema.type]), lambda value: value

    def _write_map(self, key_schema: Schema, value_schema: Schema) -> tuple[Any, Convert]:
        if key_schema.type is Type.STRING and not key_schema.optional:
            values, convert = self.write(value_schema)
            return {"type": "map", "values": values}, lambda found: [(key, convert(v)) for key, v in found.items()]
        entry = Schema(
            Type.STRUCT, name=f"{NAMESPACE}.{_ENTRY}", fields=(Field("key", key_schema), Field("value", value_schema))
        )
        items, convert_entry = self._write_record(entry)
        return {"type": "array", "items": items}, lambda found: [
            convert_entry({"key": key, "value": value}) for key, value in found.items()
        ]

    def _write_record(self, schema: Schema) -> tuple[Any, Convert]:
        bare = replace(schema, optional=False, default=None)
        name = schema.name or _UNNAMED
        full, number = name, 1
        while full in self._records and self._records[full] != bare:
            number += 1
            full = f"{name}{number}"
        is_known = full in self._records
        self._records[full] = bare
        fields = [(each, *(AvroWriter() if is_known else self).write(each.schema)) for each in schema.fields]
        converts = [(each.name, convert) for each, _, convert in fields]
        space, _, short = full.rpartition(".")
        record = {"type": "record", "name": short, "fields": [_make_field(each, avro) for each, avro, _ in fields]}
        if space:
            record["namespace"] = space
        _check_names(short, *(each.name for each in schema.fields))
        return {"type": full} if is_known else record, lambda value: {n: c(value.get(n)) for n, c in converts}


def _add_properties(avro: dict[str, Any], schema: Schema) -> None:
    if avro["type"] not in ("record", *(each["type"] for each in _AVRO_TYPES.values()), "array", "map"):
        return
    for name in ("name", "version", "doc"):
        if getattr(schema, name) is not None:
            avro[f"connect.{name}"] = getattr(schema, name)
    if schema.parameters:
        avro["connect.parameters"] = dict(schema.parameters)


def _make_field(field: Field, avro: Any) -> dict[str, Any]:
    schema = field.schema
    found = {"name": field.name, "type": avro}
    if schema.default is not None:
        default = from_logical(schema, schema.default) if schema.name in LOGICAL_NAMES else schema.default
        found["default"] = default.decode("latin-1") if isinstance(default, bytes) else default
    elif schema.optional:
        found["default"] = None
    return found


def _check_names(*names: str) -> None:
    for name in names:
        if not name.isascii() or not name.isidentifier():
            raise RecordError(f"Avro does not allow the name {name!r}: letters, digits and underscores only")


def read_avro_schema(avro: Any) -> tuple[Schema, Convert]:
    """The schema of a parsed Avro schema, and the function that converts what is read with it, without logical
    types (`strip_logical_types`)."""
    if isinstance(avro, list):
        return _read_union(avro)
    schema, convert = _read_present(avro)
    version = avro.get("connect.version")
    return replace(
        schema,
        name=avro.get("connect.name", schema.name),
        version=version if isinstance(version, int) else schema.version,
        doc=avro.get("connect.doc", avro.get("doc")),
        parameters=avro.get("connect.parameters", schema.parameters),
    ), convert


def _read_union(avro: list[Any]) -> tuple[Schema, Convert]:
    present = [each for each in avro if each["type"] != "null"]
    optional = len(present) < len(avro)
    if len(present) == 1:
        schema, convert = read_avro_schema(present[0])
        return replace(schema, optional=optional), lambda found: None if found is None else convert(found)
    branches = [(each.get("name", each["type"]).rpartition(".")[2], *read_avro_schema(each)) for each in present]
    fields = tuple(Field(name, replace(schema, optional=True)) for name, schema, _ in branches)
    by_member = {f"member{at}": (name, convert) for at, (name, _, convert) in enumerate(branches)}
    empty = dict.fromkeys(each.name for each in fields)

    def convert_member(found: dict[str, Any] | None) -> Any:
        if found is None:
            return None
        ((member, value),) = found.items()
        name, convert = by_member[member]
        return {**empty, name: convert(value)}

    return Schema(Type.STRUCT, optional=optional, name=UNION, fields=fields), convert_member


def _read_present(avro: dict[str, Any]) -> tuple[Schema, Convert]:
    kind = avro["type"]
    if kind == "record":
        fields = [(each, *read_avro_schema(each["type"])) for each in avro["fields"]]
        converts = [(each["name"], convert) for each, _, convert in fields]
        schema = Schema(
            Type.STRUCT,
            name=None if avro["name"].startswith(_UNNAMED) else avro["name"],
            fields=tuple(Field(each["name"], _with_default(inner, each, convert)) for each, inner, convert in fields),
        )
        return schema, lambda found: {name: convert(found[name]) for name, convert in converts}
    if kind == "array":
        return _read_array(avro["items"])
    if kind == "map":
        element, convert = read_avro_schema(avro["values"])
        schema = Schema(Type.MAP, key_schema=Schema(Type.STRING), value_schema=element)
        return schema, lambda found: {key: convert(value) for key, value in found}
    if kind == "null":
        return Schema(Type.STRING, optional=True), lambda _: None
    name = _LOGICAL_NAMES.get(avro.get("logicalType", ""), avro.get("connect.name"))
    if name in LOGICAL_NAMES:
        parameters = {"scale": str(avro.get("scale", 0))} if name == DECIMAL else {}
        schema = Schema(_TYPES[kind], name=name, version=1, parameters=parameters)
        return schema, lambda found: to_logical(schema, found)
    return Schema(_SMALL_TYPES.get(avro.get("connect.type", ""), _TYPES[kind])), lambda found: found


def _read_array(items: Any) -> tuple[Schema, Convert]:
    element, convert = read_avro_schema(items)
    if element.type is Type.STRUCT and element.name == f"{NAMESPACE}.{_ENTRY}":
        key, value = (each.schema for each in element.fields)
        schema = Schema(Type.MAP, key_schema=key, value_schema=value)
        return schema, lambda found: {each["key"]: each["value"] for each in map(convert, found)}
    return Schema(Type.ARRAY, value_schema=element), lambda found: [convert(each) for each in found]


def _with_default(schema: Schema, field: dict[str, Any], convert: Convert) -> Schema:
    default = field.get("default")
    if default is None:
        return schema
    if schema.type is Type.BYTES:
        default = str(default).encode("latin-1")
    elif schema.type is Type.MAP:
        default = list(default.items())
    return replace(schema, default=convert(default))


def strip_logical_types(avro: Any) -> Any:
    """The parsed schema, so that values are read and written as their plain types."""
    if isinstance(avro, list):
        return [strip_logical_types(each) for each in avro]
    if not isinstance(avro, dict):
        return avro
    return {name: strip_logical_types(each) for name, each in avro.items() if name not in ("logicalType", "default")}
