"""Confluent's ProtobufConverter: Protobuf messages, with their schemas in a schema registry.

Values are read with the schema that they name, and written with one that is made of the record's
(`protobuf_schemas.py`) and registered, or with the newest schema of the subject.
"""

from typing import Any, ClassVar

import pyarrow as pa

from ottla.connect.converters.protobuf_schemas import write_protobuf_schema
from ottla.connect.converters.registered import Decode, Encode, RegistryConverter, ask
from ottla.connect.data.arrow_types import find_schema, normalise
from ottla.connect.data.conversion import array_to_values, values_to_array
from ottla.connect.data.schema import Schema
from ottla.connect.errors import RecordError
from ottla.pipeline.formats.avro_reading import Unreadable
from ottla.pipeline.formats.protobuf import Protobuf
from ottla.pipeline.formats.protobuf_messages import find_message_indexes, message_at, read_indexes, write_indexes
from ottla.pipeline.formats.protobuf_writing import ProtobufEncoder
from ottla.pipeline.registry import RegisteredSchema


class ProtobufConverter(RegistryConverter):
    kind: ClassVar[str] = "PROTOBUF"

    def read_indexes(self, data: bytes, start: int) -> tuple[tuple[int, ...], int]:
        try:
            return read_indexes(data, start)
        except (Unreadable, IndexError):
            raise RecordError("it does not say which message of its schema it is") from None

    def make_reader(self, registered: RegisteredSchema, indexes: tuple[int, ...]) -> tuple[Schema, Decode]:
        files = ask(lambda: self._registry.files(registered))
        form = Protobuf(files, message_at(files[-1], indexes))

        def decode(data: bytes) -> Any:
            column, bad = form.decode(pa.array([data], pa.binary()))
            if bad:
                raise RecordError(bad[0])
            return array_to_values(normalise(column)[1])[0]

        return find_schema(form.type, optional=False), decode

    def make_schema(self, schema: Schema) -> str:
        return write_protobuf_schema(schema)

    def make_writer(self, schema: Schema, registered: RegisteredSchema) -> Encode:
        files = ask(lambda: self._registry.files(registered))
        name = message_at(files[-1], (0,))
        if schema.name is not None:
            try:
                find_message_indexes(files, schema.name)
                name = schema.name
            except ValueError:
                pass  # the record's schema has a name of its own; the first message is the one to write
        form = Protobuf(files, name)
        encoder, target = ProtobufEncoder(form), find_schema(form.type)
        prefix = write_indexes(find_message_indexes(files, name))

        def encode(value: Any) -> bytes:
            column = values_to_array(target, [value])
            try:
                encoded: bytes = encoder.encode(column.cast(form.type), prefix)[0].as_py()
            except ValueError as error:
                raise RecordError(f"it does not fit the Protobuf message: {error}") from None
            return encoded

        return encode
