"""Decodes keys and values of records to columns and encodes columns again, in the formats of `record_format.py`."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ottla.pipeline.formats import Decoded, Format
from ottla.pipeline.formats.avro import Avro
from ottla.pipeline.formats.avro_writing import AvroEncoder
from ottla.pipeline.formats.framed import Framed
from ottla.pipeline.formats.numbers import Numbers
from ottla.pipeline.formats.protobuf import Protobuf
from ottla.pipeline.formats.protobuf_messages import find_message_indexes, write_indexes
from ottla.pipeline.formats.protobuf_writing import ProtobufEncoder
from ottla.pipeline.formats.text import Text
from ottla.pipeline.registry import MAGIC, Registry
from ottla.streams.json_format import JsonDecoder
from ottla.streams.record_format import CANONICAL_TYPES, RecordFormat
from ottla.streams.state.json_text import object_text, to_text
from ottla.streams.state.values import take_column

Encode = Callable[[list[pa.Array], int], pa.Array]
"""Encodes columns, which have the names and types of the format, in rows of this number."""

_CODECS_MAX = 256


def decode_column(form: RecordFormat, column: pa.Array) -> Decoded:
    """Decodes keys or values to one column of the format's type, with the reasons of bad rows. A null stays null."""
    return make_decoder(form).decode(column)


def encode_columns(form: RecordFormat, rows: pa.Table, names: Sequence[str]) -> pa.Array:
    """Encodes the columns `names` of each row to one value, as binary; null where all of them are null.

    ValueError with one line if the columns or a value do not fit the format.
    """
    fields = _match_fields(form, rows, names)
    columns = [_take(rows, field, name) for field, name in fields]
    if not columns:
        return make_encoder(form)(columns, rows.num_rows)
    is_present = columns[0].is_valid()
    for column in columns[1:]:
        is_present = pc.or_(is_present, column.is_valid())
    if pc.all(is_present).as_py() is not False:
        return make_encoder(form)(columns, rows.num_rows)
    kept = [column.filter(is_present) for column in columns]
    found = make_encoder(form)(kept, len(kept[0]))
    places = pc.if_else(is_present, pc.subtract(pc.cumulative_sum(is_present.cast(pa.int64())), 1), None)
    return found.take(places)


def _match_fields(form: RecordFormat, rows: pa.Table, names: Sequence[str]) -> list[tuple[pa.Field, str | None]]:
    """The fields of the format, and the column of each one; None for a field that is always null."""
    kind = form.resolved_type
    if not pa.types.is_struct(kind):
        if len(names) != 1:
            raise ValueError(f"{form.kind} takes one column, not {', '.join(names) or 'none'}")
        return [(pa.field(names[0], kind), names[0])]
    known = [field.name for field in kind]
    for name in names:
        if name not in known:
            raise ValueError(f"the {form.kind} schema has no field {name!r}")
    return [(field, field.name if field.name in names else None) for field in kind]


def _take(rows: pa.Table, field: pa.Field, name: str | None) -> pa.Array:
    if name is None:
        return pa.nulls(rows.num_rows, field.type)
    try:
        return take_column(rows, field.with_name(name))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
        found = rows.schema.field(name).type
        raise ValueError(f"column {name!r} is {found}, and its values do not fit {field.type}") from None


# Decoders


class _Bytes:
    type = pa.binary()

    def decode(self, values: pa.Array) -> Decoded:
        return Decoded(values.cast(pa.binary()), {})


@lru_cache(_CODECS_MAX)
def make_decoder(form: RecordFormat) -> Format:
    """ValueError with one line if there is no decoder for the format."""
    if form.kind == "binary":
        return _Bytes()
    if form.kind == "string":
        return Text()
    if form.is_canonical:
        return Numbers(CANONICAL_TYPES[form.kind])
    if form.registry is not None:
        schema: Any = form.type if form.kind == "json" else form.schema
        return Framed(Registry(form.registry_settings), form.kind, form.subject, schema, form.message)
    if form.kind == "json":
        return JsonDecoder(form.resolved_type)
    if form.kind == "avro":
        return Avro(_text_of(form))
    return Protobuf.of_set(_bytes_of(form), form.message)


def _text_of(form: RecordFormat) -> str:
    if not isinstance(form.schema, str):
        raise ValueError(f"{form.kind} needs the text of a schema")
    return form.schema


def _bytes_of(form: RecordFormat) -> bytes:
    if not isinstance(form.schema, bytes):
        raise ValueError(f"{form.kind} needs a descriptor set as bytes")
    return form.schema


# Encoders


@lru_cache(_CODECS_MAX)
def make_encoder(form: RecordFormat) -> Encode:
    """ValueError with one line if there is no encoder for the format."""
    if form.kind in ("binary", "string"):
        return lambda columns, _: columns[0].cast(pa.binary())
    if form.is_canonical:
        numbers = Numbers(CANONICAL_TYPES[form.kind])
        return lambda columns, _: numbers.encode(columns[0])
    if form.kind == "json":
        return _json_encoder(form)
    encoder: AvroEncoder | ProtobufEncoder
    if form.kind == "avro":
        encoder, prefix = AvroEncoder(_text_of(form)), _frame(form)
    else:
        message = Protobuf.of_set(_bytes_of(form), form.message)
        encoder, prefix = ProtobufEncoder(message), _frame(form, find_message_indexes(message.files, form.message))
    return lambda columns, rows: encoder.encode(_join_columns(form, columns, rows), prefix)


def _join_columns(form: RecordFormat, columns: list[pa.Array], rows: int) -> pa.Array:
    """The columns as one: a struct, unless the format is of one value."""
    kind = form.resolved_type
    if not pa.types.is_struct(kind):
        return columns[0]
    fields = list(kind)
    return pa.StructArray.from_arrays(columns, fields=fields) if fields else pa.array([{}] * rows, kind)


def _json_encoder(form: RecordFormat) -> Encode:
    prefix, kind = _frame(form), form.resolved_type

    def encode(columns: list[pa.Array], rows: int) -> pa.Array:
        if pa.types.is_struct(kind):
            texts = object_text([field.name for field in kind], columns, rows)
        else:
            texts = to_text(columns[0])
        found = texts.cast(pa.binary())
        if not prefix:
            return found
        return pc.binary_join_element_wise(pa.scalar(prefix, pa.binary()), found, pa.scalar(b"", pa.binary()))

    return encode


def _frame(form: RecordFormat, indexes: tuple[int, ...] | None = None) -> bytes:
    """What comes before each value: nothing without a registry, otherwise the id of the schema and, for Protobuf, the
    indexes of the message in it."""
    if form.registry is None:
        return b""
    if form.schema_id is None:
        raise ValueError(f"{form.kind} is written with a schema registry, but the id of the schema is not known")
    prefix = bytes([MAGIC]) + form.schema_id.to_bytes(4, "big")
    return prefix if indexes is None else prefix + write_indexes(indexes)
