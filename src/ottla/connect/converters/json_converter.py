"""Kafka's JsonConverter: JSON with its schema in each message, `{"schema": ..., "payload": ...}`, or plain JSON."""

import re
from collections.abc import Mapping
from typing import Any, ClassVar, Final

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from ottla.connect.converters.converter import Converter, Headers
from ottla.connect.converters.json_columns import infer_columns, is_plain, read_plain, write_json
from ottla.connect.converters.json_schemas import schema_from_json, schema_to_json
from ottla.connect.converters.json_values import Inexact, JsonValues, dump_without_schema, load, load_exactly
from ottla.connect.data.conversion import values_to_array
from ottla.connect.data.schema import Schema
from ottla.connect.data.schema_cache import SchemaCache
from ottla.connect.errors import BadConfig, RecordError
from ottla.connect.settings.checks import one_of_ignoring_case
from ottla.connect.settings.definition import Importance, Kind, Setting, Settings, Width

SCHEMAS_ENABLE: Final = "schemas.enable"
SCHEMA_CONTENT: Final = "schema.content"
DECIMAL_FORMAT: Final = "decimal.format"
REPLACE_NULL: Final = "replace.null.with.default"

_NO_ENVELOPE: Final = (
    'JsonConverter with schemas.enable requires "schema" and "payload" fields and may not contain additional fields.'
    " If you are trying to deserialize plain JSON data, set schemas.enable=false in your converter configuration."
)
_PAYLOAD: Final = re.compile(rb',\s*"payload"\s*:\s*')


class JsonConverter(Converter):
    settings: ClassVar[Settings] = Settings(
        (
            Setting(
                SCHEMAS_ENABLE,
                Kind.BOOLEAN,
                True,
                "Include schemas within each of the serialized values and keys.",
                Importance.HIGH,
                group="Schemas",
                order=0,
                width=Width.MEDIUM,
                display_name="Enable Schemas",
            ),
            Setting(
                "schemas.cache.size",
                Kind.INT,
                1000,
                "The maximum number of schemas that can be cached in this converter instance.",
                Importance.HIGH,
                group="Schemas",
                order=1,
                width=Width.MEDIUM,
                display_name="Schema Cache Size",
            ),
            Setting(
                SCHEMA_CONTENT,
                Kind.STRING,
                None,
                "A schema as JSON for messages that carry none: with it, messages are plain JSON of this schema when "
                "they are read.",
                Importance.HIGH,
                group="Schemas",
                order=2,
                width=Width.MEDIUM,
                display_name="Schema Content",
            ),
            Setting(
                DECIMAL_FORMAT,
                Kind.STRING,
                "BASE64",
                "Controls which format this converter will serialize decimals in. This value is case insensitive and "
                "can be either 'BASE64' (default) or 'NUMERIC'",
                Importance.LOW,
                check=one_of_ignoring_case("BASE64", "NUMERIC"),
                group="Serialization",
                order=0,
                width=Width.MEDIUM,
                display_name="Decimal Format",
            ),
            Setting(
                REPLACE_NULL,
                Kind.BOOLEAN,
                True,
                "Whether to replace fields that have a default value and that are null to the default value. When set "
                "to true, the default value is used, otherwise null is used.",
                Importance.LOW,
                group="Serialization",
                order=1,
                width=Width.MEDIUM,
                display_name="Replace null with default",
            ),
        )
    )

    def __init__(self, config: Mapping[str, Any], is_key: bool) -> None:
        self._has_schemas: bool = config[SCHEMAS_ENABLE]
        self._values = JsonValues(config[DECIMAL_FORMAT].upper() == "NUMERIC", config[REPLACE_NULL])
        self._fixed_schema = self._parse_fixed_schema(config[SCHEMA_CONTENT])
        self._prefixes = SchemaCache(self._make_prefix)
        self._known: tuple[bytes, Schema] | None = None
        """The start of the messages that were read last, up to the payload, and the schema in it."""
        self._schemas: dict[bytes, Schema] = {}

    def _parse_fixed_schema(self, content: str | None) -> Schema | None:
        if not content or not self._has_schemas:
            return None
        try:
            return schema_from_json(orjson.loads(content), self._values.decode)
        except (orjson.JSONDecodeError, RecordError) as error:
            raise BadConfig(f"{SCHEMA_CONTENT}: {error}") from None

    def from_bytes(self, topic: str, headers: Headers, data: bytes | None) -> tuple[Schema | None, Any]:
        if data is None:
            return None, None
        if not self._has_schemas:
            return None, load(data) if data else None
        if self._fixed_schema is not None:
            return self._fixed_schema, self._values.load(self._fixed_schema, data)
        if self._known is not None and data.startswith(self._known[0]) and data.endswith(b"}"):
            prefix, schema = self._known
            try:
                return schema, self._values.load(schema, data[len(prefix) : -1])
            except RecordError:
                pass  # perhaps there are more fields: the whole message shows it
        return self._from_envelope(data)

    def _from_envelope(self, data: bytes) -> tuple[Schema | None, Any]:
        envelope = load(data) if data else None
        if not isinstance(envelope, dict) or envelope.keys() != {"schema", "payload"}:
            raise RecordError(_NO_ENVELOPE)
        if envelope["schema"] is None:
            return None, envelope["payload"]
        written = orjson.dumps(envelope["schema"])
        schema = self._schemas.get(written)
        if schema is None:
            schema = schema_from_json(load_exactly(written), self._values.decode)
            assert schema is not None
            self._schemas[written] = schema
        prefix = _find_prefix(data, envelope["schema"])
        if prefix is not None:
            self._known = prefix, schema
        try:
            return schema, self._values.decode(schema, envelope["payload"])
        except Inexact:
            return schema, self._values.decode(schema, load_exactly(data)["payload"])

    def to_bytes(self, topic: str, headers: Headers, schema: Schema | None, value: Any) -> bytes | None:
        if schema is None:
            if value is None:
                return None
            written = dump_without_schema(value)
            return b'{"schema":null,"payload":' + written + b"}" if self._has_schemas else written
        encoded = self._values.encode(schema, value)
        try:
            written = orjson.dumps(encoded)
        except orjson.JSONEncodeError as error:
            raise RecordError(f"Converting Kafka Connect data to byte[] failed: {error}") from None
        return self._prefixes.find(schema) + written + b"}" if self._has_schemas else written

    def _make_prefix(self, schema: Schema) -> bytes:
        """What comes before the payload of each message of the schema."""
        return b'{"schema":' + orjson.dumps(schema_to_json(schema, self._values.encode)) + b',"payload":'

    def columns_from_bytes(self, topic: str, data: pa.Array) -> tuple[Schema, pa.Array] | None:
        """Without schemas, rows that all have the same fields get a schema in which everything is optional."""
        rows = data.to_pylist()
        if not self._has_schemas:
            return infer_columns([None if not each else load(each) for each in rows])
        schema, start, end = self._find_common(rows)
        if schema is None:
            return None
        payloads = [None if each is None else each[start : len(each) - end] for each in rows]
        if is_plain(schema):
            parsed = [None if each is None else load(each) for each in payloads]
            if all(each is None or type(each) is dict for each in parsed):
                column = read_plain(schema, parsed)
                if column is not None:
                    return schema, column
        values = [None if each is None else self._values.load(schema, each) for each in payloads]
        return schema, values_to_array(schema, values)

    def _find_common(self, rows: list[bytes | None]) -> tuple[Schema | None, int, int]:
        """The schema of all rows, and how many bytes come before and after each payload. No schema: they differ."""
        if self._fixed_schema is not None:
            return self._fixed_schema, 0, 0
        first = next((each for each in rows if each is not None), None)
        if first is None:
            return None, 0, 0
        self._from_envelope(first)
        if self._known is None:
            return None, 0, 0
        prefix, schema = self._known
        if not all(each is None or (each.startswith(prefix) and each.endswith(b"}")) for each in rows):
            return None, 0, 0
        return schema, len(prefix), 1

    def columns_to_bytes(self, topic: str, schema: Schema, column: pa.Array) -> pa.Array:
        present = column.drop_null() if column.null_count else column
        text = write_json(self._values, schema, present)
        if self._has_schemas:
            text = pc.binary_join_element_wise(self._prefixes.find(schema).decode(), text, "}", "")
        written = text.cast(pa.binary())
        if not column.null_count:
            return written
        places = pc.cumulative_sum(column.is_valid().cast(pa.int64()))
        at = pc.if_else(column.is_valid(), pc.subtract(places, 1), pa.scalar(None, pa.int64()))
        return written.take(at)


def _find_prefix(data: bytes, schema: Any) -> bytes | None:
    """What comes before the payload of a message, blanks included. None if the payload comes first, or if it cannot be
    told from a field of the schema that has its name."""
    found = _PAYLOAD.search(data)
    if found is None:
        return None
    prefix = data[: found.end()]
    try:
        is_whole: bool = orjson.loads(prefix + b"null}") == {"schema": schema, "payload": None}
    except orjson.JSONDecodeError:
        return None
    return prefix if is_whole else None
