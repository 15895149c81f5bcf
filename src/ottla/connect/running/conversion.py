"""Between the rows of a connector and the bytes of topics: converters and transformations.

Rows as columns are converted as columns if there is no transformation. Everything else goes record by record, and so do
columns in which a record is bad, because only then it is known which one.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from ottla.connect.converters.choice import make_converter, make_header_converter
from ottla.connect.converters.converter import Converter, HeaderConverter
from ottla.connect.data.columns import RawRecords, RecordColumns
from ottla.connect.data.conversion import columns_to_records
from ottla.connect.data.record import Header, Record
from ottla.connect.data.schema import Schema, Type
from ottla.connect.errors import RecordError
from ottla.connect.running.tolerance import (
    HEADER_CONVERTER,
    KEY_CONVERTER,
    TRANSFORMATION,
    VALUE_CONVERTER,
    ErrorHandler,
    Original,
    RecordFailure,
)

Rows = RecordColumns | Sequence[Record]

_BYTES: Final = "org.apache.kafka.connect.converters.ByteArrayConverter"

_HEADERS: Final = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
RECORDS: Final = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("timestamp", pa.int64()),
        ("partition", pa.int32()),
        ("headers", _HEADERS),
    ]
)
"""Records for the encoder. A null timestamp is the current time, a null partition any."""


class Transforms(Protocol):
    """The transformations of a connector, one after the other."""

    def apply(self, record: Record) -> Record | None:
        """None: the record is left out."""


@dataclass(frozen=True)
class Conversion:
    """The converters and transformations of a connector."""

    key: Converter
    value: Converter
    header: HeaderConverter
    transforms: Transforms | None = None
    """None: there is no transformation."""

    def to_topics(self, rows: Rows | RawRecords, errors: ErrorHandler) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Records for topics, with the name of each topic. Their order within a topic stays."""
        if isinstance(rows, RawRecords):
            if self.transforms is None:
                yield rows.topic, rows.rows
            else:
                key, value = (make_converter(_BYTES, {}, is_key) for is_key in (True, False))
                raw = replace(self, key=key, value=value, header=make_header_converter(_BYTES, {}))
                yield from raw.to_topics(_list_raw(rows), errors)
            return
        if isinstance(rows, RecordColumns):
            if not len(rows):
                return
            found = self._columns_to_topic(rows) if self.transforms is None else None
            if found is not None:
                yield rows.topic, found
                return
            rows = columns_to_records(rows)
        by_topic: dict[str, list[tuple[Any, ...]]] = {}
        for record in rows:
            try:
                changed = self._transform(record, errors)
                if changed is not None:
                    by_topic.setdefault(changed.topic, []).append(self._to_bytes(changed, errors))
            except RecordFailure as failure:
                errors.handle(failure, None)
        for topic, lines in by_topic.items():
            columns = [
                pa.array(column, field.type) for column, field in zip(zip(*lines, strict=True), RECORDS, strict=True)
            ]
            yield topic, pa.record_batch(columns, schema=RECORDS)

    def _columns_to_topic(self, rows: RecordColumns) -> pa.RecordBatch | None:
        """None if a record is bad, or if one has headers."""
        if rows.headers is not None and any(rows.headers):
            return None
        try:
            value = self.value.columns_to_bytes(rows.topic, rows.value_schema, rows.value)
            key = None
            if rows.key is not None and rows.key_schema is not None:
                key = self.key.columns_to_bytes(rows.topic, rows.key_schema, rows.key)
        except RecordError:
            return None
        columns = (key, value, rows.timestamp, rows.partition, None)
        return pa.record_batch(
            [
                pa.nulls(len(rows), field.type) if column is None else column
                for column, field in zip(columns, RECORDS, strict=True)
            ],
            schema=RECORDS,
        )

    def _transform(self, record: Record, errors: ErrorHandler) -> Record | None:
        if self.transforms is None:
            return record
        return errors.attempt(TRANSFORMATION, self.transforms, self.transforms.apply, record)

    def _to_bytes(self, record: Record, errors: ErrorHandler) -> tuple[Any, ...]:
        topic, headers = record.topic, record.headers
        attempt = errors.attempt
        encoded = None
        if headers:
            to_bytes = self.header.header_to_bytes
            encoded = [
                {
                    "key": each.key,
                    "value": attempt(HEADER_CONVERTER, self.header, to_bytes, topic, each.key, each.schema, each.value),
                }
                for each in headers
            ]
        key = attempt(KEY_CONVERTER, self.key, self.key.to_bytes, topic, headers, record.key_schema, record.key)
        value = attempt(
            VALUE_CONVERTER, self.value, self.value.to_bytes, topic, headers, record.value_schema, record.value
        )
        return key, value, record.timestamp, record.partition, encoded

    def from_topic(self, topic: str, partition: int, found: pa.RecordBatch, errors: ErrorHandler) -> Rows:
        """The rows that a sink gets for records of a topic partition, as `pipeline.decoding` gives them."""
        timestamps = pc.divide(found.column("timestamp").cast(pa.int64()), 1000)
        if self.transforms is None:
            columns = self._columns_from_topic(topic, partition, found, timestamps)
            if columns is not None:
                return columns
        records = []
        for original in list_originals(topic, partition, found, timestamps):
            try:
                record = self._transform(self._from_bytes(original, errors), errors)
                if record is not None:
                    records.append(record)
            except RecordFailure as failure:
                errors.handle(failure, original)
        return records

    def _columns_from_topic(
        self, topic: str, partition: int, found: pa.RecordBatch, timestamps: pa.Array
    ) -> RecordColumns | None:
        """None if the records have no common schema, if one is bad, or if one has headers."""
        headers, key_bytes = found.column("headers"), found.column("key")
        if headers.null_count < len(headers) and pc.any(pc.greater(pc.list_value_length(headers), 0)).as_py():
            return None
        try:
            value = self.value.columns_from_bytes(topic, found.column("value"))
            has_key = key_bytes.null_count < len(key_bytes)
            key = self.key.columns_from_bytes(topic, key_bytes) if has_key else None
        except RecordError:
            return None
        if value is None or (has_key and key is None):
            return None
        key_schema, keys = (None, None) if key is None else key
        partitions = pa.repeat(pa.scalar(partition, pa.int32()), len(found))
        return RecordColumns(topic, *value, key_schema, keys, timestamps, partitions, found.column("offset"))

    def _from_bytes(self, original: Original, errors: ErrorHandler) -> Record:
        attempt, topic = errors.attempt, original.topic
        headers = []
        for name, data in original.headers:
            found = attempt(HEADER_CONVERTER, self.header, self.header.header_from_bytes, topic, name, data)
            headers.append(Header(name, found[1], found[0]))
        key_schema, key = attempt(KEY_CONVERTER, self.key, self.key.from_bytes, topic, headers, original.key)
        value_schema, value = attempt(
            VALUE_CONVERTER, self.value, self.value.from_bytes, topic, headers, original.value
        )
        return Record(
            topic,
            value,
            value_schema,
            key,
            key_schema,
            original.timestamp,
            headers,
            original.partition,
            original.offset,
        )


def list_originals(topic: str, partition: int, found: pa.RecordBatch, timestamps: pa.Array) -> Iterator[Original]:
    rows = zip(
        found.column("offset").to_pylist(),
        timestamps.to_pylist(),
        found.column("key").to_pylist(),
        found.column("value").to_pylist(),
        found.column("headers").to_pylist(),
        strict=True,
    )
    for offset, timestamp, key, value, headers in rows:
        named = [(each["key"], each["value"]) for each in headers or ()]
        yield Original(topic, partition, offset, timestamp, key, value, named)


def _list_raw(raw: RawRecords) -> list[Record]:
    """The records with bytes as keys, values and headers, as Kafka Connect's ByteArrayConverter makes them."""
    schema = Schema(Type.BYTES, optional=True)
    milliseconds = pc.divide(raw.rows.column("timestamp").cast(pa.timestamp("us", "UTC")).cast(pa.int64()), 1000)
    rows = raw.rows.set_column(raw.rows.schema.get_field_index("timestamp"), "timestamp", milliseconds)
    return [
        Record(
            raw.topic,
            row["value"],
            schema,
            row["key"],
            schema,
            row["timestamp"],
            [Header(each["key"], each["value"], schema) for each in row["headers"] or ()],
            row["partition"],
        )
        for row in rows.to_pylist()
    ]
