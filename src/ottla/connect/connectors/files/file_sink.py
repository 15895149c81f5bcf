"""FileStreamSink: each record's value as a line at the end of a file, as Kafka's FileStreamSinkConnector writes it.

Kafka's connector may write records twice. This one keeps a ledger beside the file, `.<file>.<connector>.ledger`, with
the next offset of each topic partition. The ledger says from where on a batch is about to be written; if the writer
dies, the next one cuts the file there. So each record is in the file exactly once.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ottla.connect.connector import ConnectorContext, Sink, SinkBatch, Written
from ottla.connect.connectors.files.ledger import Ledger, LedgerFile
from ottla.connect.data.columns import RecordColumns
from ottla.connect.data.conversion import array_to_values
from ottla.connect.data.record import Record
from ottla.connect.data.schema import Schema, Type
from ottla.connect.errors import BadConfig
from ottla.connect.settings.definition import Importance, Kind, Setting, Settings
from ottla.topic_partition import TopicPartition


class FileStreamSink(Sink):
    settings: ClassVar[Settings] = Settings(
        (Setting("file", Kind.STRING, None, "The file to write to.", Importance.HIGH),)
    )
    version: ClassVar[str] = "1"

    def __init__(self, config: Mapping[str, Any], context: ConnectorContext) -> None:
        super().__init__(config, context)
        if not config["file"]:
            raise BadConfig("file: it is missing; a worker does not write records to its standard output")
        self._path: str = os.path.abspath(config["file"])
        directory, name = os.path.split(self._path)
        self._ledger = LedgerFile(os.path.join(directory, f".{name}.{context.name}.ledger"))
        self._epoch = 0

    def start(self) -> None:
        self._epoch = self._ledger.claim()

    def find_positions(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        with self._ledger.open(self._epoch) as ledger:
            self._cut_unfinished(ledger)
            return {where: ledger.positions[str(where)] for where in partitions if str(where) in ledger.positions}

    def alter_positions(self, positions: Mapping[TopicPartition, int | None]) -> bool:
        with self._ledger.open(self._epoch) as ledger:
            self._cut_unfinished(ledger)
            ledger.move(positions)
            self._ledger.save(ledger)
        return True

    def write(self, batch: SinkBatch) -> Written:
        where = str(TopicPartition(batch.topic, batch.partition))
        with self._ledger.open(self._epoch) as ledger:
            self._cut_unfinished(ledger)
            position = ledger.positions.get(where, batch.start)
            lines = [_write_lines(rows, position) for rows in batch.rows]
            batch.set_aside((), batch.end)
            if any(lines):
                self._append(ledger, lines)
            ledger.positions[where] = max(position, batch.end)
            ledger.intent = None
            self._ledger.save(ledger)
        return Written()

    def _append(self, ledger: Ledger, lines: Sequence[bytes | memoryview]) -> None:
        with open(self._path, "ab") as file:
            ledger.intent = {"length": file.tell()}
            self._ledger.save(ledger)
            file.writelines(lines)
            file.flush()
            os.fsync(file.fileno())

    def _cut_unfinished(self, ledger: Ledger) -> None:
        """Remove what a batch that did not come to its end has written."""
        if ledger.intent is not None:
            if os.path.exists(self._path) and os.path.getsize(self._path) > ledger.intent["length"]:
                os.truncate(self._path, ledger.intent["length"])
            ledger.intent = None
            self._ledger.save(ledger)


def _write_lines(rows: RecordColumns | Sequence[Record], position: int) -> bytes | memoryview:
    """The lines of the records from an offset on, each with its end."""
    if not isinstance(rows, RecordColumns):
        found = [show(each.value_schema, each.value) for each in rows if each.offset is None or each.offset >= position]
        return _join(found)
    value = rows.value
    if rows.offset is not None:
        value = value.filter(pc.greater_equal(rows.offset, position))
    if pa.types.is_string(value.type):
        return _join_column(value.fill_null(show(None, None)))
    schema = None if rows.value_schema.is_inferred else rows.value_schema
    return _join([show(schema, each) for each in array_to_values(value)])


def _join(lines: Sequence[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "replace")


def _join_column(lines: pa.Array) -> memoryview:
    """Arrow keeps texts one after the other, so its buffer is what the file gets."""
    whole = pc.binary_join_element_wise(lines, "", "\n")
    _, places, data = whole.buffers()
    ends = np.frombuffer(places, np.int32)[whole.offset : whole.offset + len(whole) + 1]
    return memoryview(data or b"")[ends[0] : ends[-1]]


def show(schema: Schema | None, value: Any) -> str:
    """A value as Java's `toString` shows it, which is what Kafka's connector writes."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case dict():
            name = "Struct" if schema is not None and schema.type is Type.STRUCT else ""
            separator = "," if name else ", "
            pairs = (f"{show(None, key)}={show(_find_schema(schema, key), each)}" for key, each in value.items())
            return f"{name}{{{separator.join(pairs)}}}"
        case list():
            element = None if schema is None else schema.value_schema
            return f"[{', '.join(show(element, each) for each in value)}]"
        case bytes():
            return value.decode("utf-8", "replace")
    return str(value)


def _find_schema(schema: Schema | None, key: Any) -> Schema | None:
    """The schema of a field of a STRUCT, or of a value of a MAP."""
    if schema is None or schema.type is not Type.STRUCT:
        return None if schema is None else schema.value_schema
    field = schema.find_field(key)
    return None if field is None else field.schema
