"""Confluent's AvroConverter: Avro, with its schemas in a schema registry."""

import json
from typing import Any, ClassVar

from ottla.connect.converters.avro_schemas import AvroWriter, read_avro_schema, strip_logical_types
from ottla.connect.converters.registered import Decode, Encode, RegistryConverter
from ottla.connect.data.schema import Schema
from ottla.connect.errors import RecordError
from ottla.pipeline.formats.avro_reading import Unreadable, make_reader
from ottla.pipeline.formats.avro_schemas import parse_schema
from ottla.pipeline.formats.avro_writing import make_writer
from ottla.pipeline.registry import RegisteredSchema


class AvroConverter(RegistryConverter):
    kind: ClassVar[str] = "AVRO"

    def make_reader(self, registered: RegisteredSchema, indexes: tuple[int, ...]) -> tuple[Schema, Decode]:
        if registered.references:
            raise ValueError("it refers to other schemas, which Avro schemas cannot do here")
        parsed = parse_schema(registered.text)
        schema, convert = read_avro_schema(parsed)
        plain = strip_logical_types(parsed)
        read = make_reader(plain, plain)

        def decode(data: bytes) -> Any:
            try:
                found, end = read(data, 0)
            except (Unreadable, IndexError, UnicodeDecodeError, RecursionError) as error:
                reason = "it is cut off" if isinstance(error, IndexError) else error
                raise RecordError(f"not the Avro that its schema says: {reason}") from None
            if end != len(data):
                raise RecordError(f"not the Avro that its schema says: {len(data) - end} bytes too many")
            return convert(found)

        return schema, decode

    def make_schema(self, schema: Schema) -> str:
        return json.dumps(AvroWriter().write(schema)[0])

    def make_writer(self, schema: Schema, registered: RegisteredSchema) -> Encode:
        _, convert = AvroWriter().write(schema)
        write = make_writer(strip_logical_types(parse_schema(registered.text)), "value")

        def encode(value: Any) -> bytes:
            buffer = bytearray()
            try:
                write(convert(value), buffer)
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise RecordError(f"it does not fit the Avro schema: {error}") from None
            return bytes(buffer)

        return encode
