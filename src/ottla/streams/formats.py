"""How keys and values of records become columns and back: what the user says about it, and what is made of that.

    "string", "binary", "int", "long", "double", "bool"
                     the same bytes as Kafka's serializers write, so that a stream that is keyed by such a column is in
                     the same partitions as a topic keyed with it
    "id long, name string", a StructType of Spark, json(...)
                     JSON with these fields
    avro(...), protobuf(...)
                     with a schema
    registry(...)    with the schemas of a schema registry

`resolve` turns these into a RecordFormat with the type of the columns. A sink may leave the schema out: it is made
from the columns.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import orjson
import pyarrow as pa

from ottla.pipeline.formats.avro import derive_type
from ottla.pipeline.formats.avro_schemas import parse_schema
from ottla.pipeline.formats.avro_writing import make_schema
from ottla.pipeline.formats.ddl import type_of_ddl
from ottla.pipeline.formats.protobuf import Protobuf
from ottla.pipeline.formats.text import make_json_schema, type_of_json_schema
from ottla.pipeline.registry import RegisteredSchema, Registry, RegistryError, UnknownSchema
from ottla.streams.format_codecs import decode_column, encode_columns, make_decoder, make_encoder
from ottla.streams.record_format import CANONICAL, CANONICAL_TYPES, KINDS, RecordFormat
from ottla.streams.state.json_text import check_type

__all__ = [
    "CANONICAL",
    "CANONICAL_TYPES",
    "KINDS",
    "RecordFormat",
    "avro",
    "decode_column",
    "encode_columns",
    "json",
    "protobuf",
    "registry",
    "resolve",
]

_WITH_SCHEMA: Final = ("json", "avro", "protobuf")
_SYNONYMS: Final = {"bytes": "binary", "integer": "int", "bigint": "long", "boolean": "bool"}
_NESTED: Final = re.compile(r"\s*(array|map|struct)\s*<", re.IGNORECASE)
_EXPECTED: Final = f"{', '.join(CANONICAL)}, or fields such as 'id long, name string'"
_RECORD: Final = "Value"
"""The name of an Avro record whose schema is made from columns."""


# What a user says


def json(schema: Any = None) -> RecordFormat:
    """JSON. The schema is fields in SQL syntax, a JSON Schema, or a type of Spark or Arrow."""
    if isinstance(schema, str) and schema.lstrip().startswith("{"):
        return RecordFormat("json", schema, type=_type_of_json_text(schema))
    return RecordFormat("json", type=None if schema is None else _parse_type(schema))


def avro(schema: str | None = None) -> RecordFormat:
    """Avro's binary encoding, with the text of a schema."""
    if not isinstance(schema, str | None):
        raise ValueError(f"avro: the schema must be a text, not {schema!r:.100}")
    return RecordFormat("avro", schema, type=None if schema is None else derive_type(parse_schema(schema)))


def protobuf(descriptors: bytes, message: str) -> RecordFormat:
    """Protobuf. `descriptors` is the content of the file that `protoc --include_imports --descriptor_set_out=` writes,
    and `message` the full name of a message in it."""
    if not isinstance(descriptors, bytes) or not isinstance(message, str):
        raise ValueError(f"protobuf: it takes the bytes of a descriptor set and a message, not {descriptors!r:.100}")
    return RecordFormat("protobuf", descriptors, message, type=Protobuf.of_set(descriptors, message).type)


def registry(
    url: str,
    format: str = "",
    *,
    schema: Any = None,
    subject: str = "",
    message: str = "",
    user: str = "",
    token: str = "",
) -> RecordFormat:
    """Avro, JSON or Protobuf with the schemas of a registry, which values name by their ids.

    Without a `schema` the newest one of the subject is used, which is `<topic>-key` or `<topic>-value` if none is
    named. A sink registers its schema. `user` is "name:password".
    """
    for each in (url, format, subject, message, user, token):
        if not isinstance(each, str):
            raise ValueError(f"registry: {each!r:.100} must be a text")
    kind = format.strip().lower()
    if kind and kind not in _WITH_SCHEMA:
        raise ValueError(f"registry: {format!r} is no format; there are {', '.join(_WITH_SCHEMA)}")
    if schema is not None and not kind:
        raise ValueError(f"registry: a schema needs its format: {', '.join(_WITH_SCHEMA)}")
    makers = {"json": json, "avro": avro, "protobuf": lambda given: protobuf(given, message)}
    form = makers[kind](schema) if schema is not None else RecordFormat(kind, message=message)
    return replace(form, registry=url, subject=subject, registry_user=user, registry_token=token)


# What is made of it


def resolve(
    given: Any, *, topic: str = "", part: str = "value", columns: Sequence[pa.Field] | None = None
) -> RecordFormat:
    """The format that a user has given for the key or the value (`part`) of a topic, with its type.

    `columns` are those that a sink writes: they make the schema if none is given. A registry is asked for its newest
    schema, and told that of a sink. ValueError with one line if nothing can be made of what is given.
    """
    form = _parse(given)
    try:
        if form.registry is not None:
            form = _resolve_registered(form, form.subject or _name_subject(topic, part), columns)
        elif form.type is None:
            form = _complete(form, columns)
        if not form.is_canonical and form.kind == "json":
            check_type(form.type, part)
        make_decoder(form)
        if columns is not None:
            make_encoder(form)
    except RegistryError as error:
        raise ValueError(f"schema registry: {error}") from None
    return form


def _parse(given: Any) -> RecordFormat:
    if isinstance(given, RecordFormat):
        return given
    if given is None:
        return RecordFormat(type=pa.binary())
    if not isinstance(given, str):
        return _format_of_type(_parse_type(given))
    name = given.strip().lower()
    name = _SYNONYMS.get(name, name)
    if name in CANONICAL_TYPES:
        return RecordFormat(name, type=CANONICAL_TYPES[name])
    if name in _WITH_SCHEMA:
        return RecordFormat(name)
    if name.isidentifier() or not name:
        raise ValueError(f"{given!r} is no format: there are {_EXPECTED}")
    return RecordFormat("json", type=_parse_type(given))


def _format_of_type(kind: pa.DataType) -> RecordFormat:
    name = next((name for name, each in CANONICAL_TYPES.items() if each == kind), "json")
    return RecordFormat(name, type=kind)


def _complete(form: RecordFormat, columns: Sequence[pa.Field] | None) -> RecordFormat:
    """Makes the schema of a format without one from the columns of a sink."""
    if form.is_canonical:
        return replace(form, type=CANONICAL_TYPES[form.kind])
    if form.schema is not None:
        makers = {"json": json, "avro": avro, "protobuf": lambda schema: protobuf(schema, form.message)}
        return replace(form, type=makers[form.kind](form.schema).type)
    if columns is None or form.kind == "protobuf":
        example = {"json": "json('id long, name string')", "avro": "avro(schema)"}
        raise ValueError(f"{form.kind} needs a schema: {example.get(form.kind, 'protobuf(descriptors, message)')}")
    kind = pa.struct([pa.field(each.name, each.type) for each in columns])
    if form.kind == "json":
        return replace(form, type=kind)
    made = avro(make_schema(kind, _RECORD))
    return replace(form, schema=made.schema, type=made.type)


# Types


def _parse_type(given: Any) -> pa.DataType:
    """The Arrow type of a text in SQL syntax, of a type of Spark or of Arrow."""
    if isinstance(given, str):
        kind = type_of_ddl(f"v {given}").field(0).type if _NESTED.match(given) else type_of_ddl(given)
    elif isinstance(given, pa.Schema):
        kind = pa.struct(list(given))
    elif isinstance(given, pa.DataType):
        kind = given
    else:
        kind = _type_of_spark(given)
    return _simplify(kind)


def _type_of_spark(given: Any) -> pa.DataType:
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import to_arrow_type
    from pyspark.sql.types import DataType

    if not isinstance(given, DataType):
        raise ValueError(f"{given!r:.100} is no format: there are {_EXPECTED}")
    try:
        return to_arrow_type(given, timezone="UTC")
    except PySparkException:
        raise ValueError(f"{given.simpleString():.100} has no form in records") from None


def _simplify(kind: pa.DataType) -> pa.DataType:
    """The type without NOT NULL and the names of list items: any field of a record may be missing."""
    if pa.types.is_struct(kind):
        names = [field.name for field in kind]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"the schema has two fields {name!r}")
        return pa.struct([pa.field(field.name, _simplify(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_simplify(kind.key_type), _simplify(kind.item_type))
    return pa.list_(_simplify(kind.value_type)) if pa.types.is_list(kind) else kind


def _type_of_json_text(schema: str | bytes) -> pa.DataType:
    try:
        return type_of_json_schema(orjson.loads(schema))
    except orjson.JSONDecodeError as error:
        raise ValueError(f"not a JSON Schema: {error}") from None


# Schema registry


def _name_subject(topic: str, part: str) -> str:
    if not topic:
        raise ValueError("registry: name the subject=, because the topic's name is not known")
    return f"{topic}-{part}"


def _resolve_registered(form: RecordFormat, subject: str, columns: Sequence[pa.Field] | None) -> RecordFormat:
    client = Registry(form.registry_settings)
    found: RegisteredSchema | None = None
    if form.type is None:
        try:
            found = client.latest(subject)
        except UnknownSchema:
            if columns is None or form.kind == "protobuf":
                raise ValueError(f"the schema registry has no subject {subject!r}; name another subject=") from None
    if found is not None:
        return _take_registered(replace(form, subject=subject), found, client)
    if form.type is None:
        form = _complete(replace(form, kind=form.kind or "avro"), columns)
    form = replace(form, subject=subject)
    return form if columns is None else replace(form, schema_id=_register(form, client))


def _take_registered(form: RecordFormat, found: RegisteredSchema, client: Registry) -> RecordFormat:
    """The format with the newest schema of the subject."""
    kind = found.kind.lower()
    if form.kind and form.kind != kind:
        raise ValueError(f"subject {form.subject!r} holds {kind}, not {form.kind}")
    form = replace(form, kind=kind, schema_id=found.number)
    if kind == "json":
        return replace(form, schema=found.text, type=_type_of_json_text(found.text))
    if kind == "avro":
        return replace(form, schema=found.text, type=derive_type(parse_schema(found.text)))
    return _take_protobuf(form, client.files(found))


def _take_protobuf(form: RecordFormat, files: list[bytes]) -> RecordFormat:
    from google.protobuf import descriptor_pb2

    parsed = [descriptor_pb2.FileDescriptorProto.FromString(each) for each in files]
    descriptors = descriptor_pb2.FileDescriptorSet(file=parsed).SerializeToString()
    package, messages = parsed[-1].package, parsed[-1].message_type
    if not form.message and not messages:
        raise ValueError(f"the Protobuf schema of subject {form.subject!r} has no message")
    message = form.message or (f"{package}.{messages[0].name}" if package else messages[0].name)
    return replace(form, schema=descriptors, message=message, type=Protobuf.of_set(descriptors, message).type)


def _register(form: RecordFormat, client: Registry) -> int:
    if form.kind == "protobuf":
        raise ValueError("a Protobuf schema is registered with protoc's own tools; leave schema= out to use it")
    text = form.schema if isinstance(form.schema, str) else orjson.dumps(make_json_schema(form.type)).decode()
    return client.register(form.subject, form.kind.upper(), text)
