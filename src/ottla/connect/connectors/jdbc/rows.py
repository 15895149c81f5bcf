"""From records to the rows of a table: which columns a run of records has, and which rows it deletes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from ottla.connect.connector import RefusedRecord
from ottla.connect.data.columns import RecordColumns
from ottla.connect.data.conversion import columns_to_records, records_to_columns
from ottla.connect.data.record import Record
from ottla.connect.data.schema import Schema, Type
from ottla.connect.errors import ConnectError, RecordError

KAFKA_FIELDS: Final = ("__connect_topic", "__connect_partition", "__connect_offset")
_KAFKA_SCHEMAS: Final = (Schema(Type.STRING), Schema(Type.INT32), Schema(Type.INT64))


@dataclass(frozen=True)
class ColumnData:
    schema: Schema
    values: pa.Array
    is_key: bool


@dataclass(frozen=True)
class TableRows:
    """Rows of one table that have the same columns, in order."""

    table: str
    columns: Mapping[str, ColumnData]
    is_delete: pa.Array
    records: RecordColumns
    """What the rows were made of, for those that the database refuses."""

    def __len__(self) -> int:
        return len(self.records)

    @property
    def key_names(self) -> list[str]:
        return [name for name, column in self.columns.items() if column.is_key]

    def slice(self, start: int, length: int) -> "TableRows":
        columns = {
            name: ColumnData(each.schema, each.values.slice(start, length), each.is_key)
            for name, each in self.columns.items()
        }
        return TableRows(
            self.table, columns, self.is_delete.slice(start, length), slice_columns(self.records, start, length)
        )

    def take(self, indices: pa.Array) -> dict[str, pa.Array]:
        return {name: each.values.take(indices) for name, each in self.columns.items()}


def slice_columns(rows: RecordColumns, start: int, length: int | None = None) -> RecordColumns:
    def cut(column: pa.Array | None) -> pa.Array | None:
        return None if column is None else column.slice(start, length)

    end = None if length is None else start + length
    return RecordColumns(
        rows.topic,
        rows.value_schema,
        rows.value.slice(start, length),
        rows.key_schema,
        cut(rows.key),
        cut(rows.timestamp),
        cut(rows.partition),
        cut(rows.offset),
        None if rows.headers is None else rows.headers[start:end],
    )


class RowMaker:
    """Makes rows as `pk.mode`, `pk.fields`, `fields.whitelist` and `table.name.format` say."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._mode: str = config["pk.mode"]
        self._key_fields: list[str] = list(config["pk.fields"])
        self._wanted = set(config["fields.whitelist"])
        self._format: str = config["table.name.format"]
        self._may_delete: bool = config["delete.enabled"]

    def make(
        self, found: Sequence[RecordColumns | Sequence[Record]], position: int, refused: list[RefusedRecord]
    ) -> list[TableRows]:
        """The rows of records from an offset on. What cannot be a row at all is added to `refused`."""
        made = []
        for rows in found:
            for run in _list_runs(rows, refused, needs_keys=self._mode == "record_key"):
                assert run.offset is not None
                first = len(run.offset.filter(pc.less(run.offset, position)))
                if first < len(run):
                    made += self._make_rows(slice_columns(run, first), refused)
        return made

    def _make_rows(self, run: RecordColumns, refused: list[RefusedRecord]) -> list[TableRows]:
        reason = self._find_reason(run)
        if reason:
            refused += [RefusedRecord(record, reason) for record in columns_to_records(run)]
            return []
        deletes = run.value.is_null()
        bad = pa.array([False] * len(run)) if self._may_delete else deletes
        keys = self._find_keys(run)
        for column in keys.values():
            bad = pc.or_(bad, column.values.is_null())
        if pc.any(bad).as_py():
            why = "a primary key or the value is null"
            refused += [RefusedRecord(record, why) for record in columns_to_records(_filter(run, bad))]
            kept = _filter(run, pc.invert(bad))
            return self._make_rows(kept, refused) if len(kept) else []
        columns = {**keys, **self._find_values(run, keys)}
        return [TableRows(self._format.replace("${topic}", run.topic), columns, deletes, run)]

    def _find_reason(self, run: RecordColumns) -> str | None:
        """Why no record of the run can be a row."""
        has_values = run.value.null_count < len(run)
        if has_values and (run.value_schema.type is not Type.STRUCT or run.value_schema.is_inferred):
            return "the value has no schema of a struct, which tells the columns"
        if self._mode == "record_key" and run.key is None:
            return "pk.mode is record_key, and the record has no key"
        return None

    def _find_keys(self, run: RecordColumns) -> dict[str, ColumnData]:
        match self._mode:
            case "kafka":
                values = (pa.repeat(pa.scalar(run.topic), len(run)), run.partition, run.offset)
                names = self._key_fields or KAFKA_FIELDS
                found = zip(names, _KAFKA_SCHEMAS, values, strict=True)
                return {name: ColumnData(schema, column, True) for name, schema, column in found}
            case "record_key":
                assert run.key_schema is not None
                return self._find_record_keys(run.key_schema, run.key)
            case "record_value":
                return self._pick(run.value_schema, run.value, "value")
        return {}

    def _find_record_keys(self, schema: Schema, column: pa.Array) -> dict[str, ColumnData]:
        if schema.type is Type.STRUCT:
            return self._pick(schema, column, "key")
        if len(self._key_fields) != 1:
            raise ConnectError("pk.fields: a key that is no struct needs exactly one name, that of its column")
        return {self._key_fields[0]: ColumnData(schema, column, True)}

    def _pick(self, schema: Schema, column: pa.Array, what: str) -> dict[str, ColumnData]:
        names = self._key_fields or [each.name for each in schema.fields]
        missing = [name for name in names if schema.find_field(name) is None]
        if missing:
            raise ConnectError(f"pk.fields: the record's {what} has no field {', '.join(missing)}")
        return {name: ColumnData(each.schema, each.values, True) for name, each in _flatten(schema, column, names)}

    def _find_values(self, run: RecordColumns, keys: Mapping[str, ColumnData]) -> dict[str, ColumnData]:
        if run.value_schema.type is not Type.STRUCT:  # tombstones only
            return {}
        names = [
            each.name
            for each in run.value_schema.fields
            if each.name not in keys and (not self._wanted or each.name in self._wanted)
        ]
        return dict(_flatten(run.value_schema, run.value, names))


def _flatten(schema: Schema, column: pa.Array, names: Sequence[str]) -> list[tuple[str, ColumnData]]:
    by_name = dict(zip([each.name for each in schema.fields], column.flatten(), strict=True))
    fields = [(name, schema.find_field(name)) for name in names]
    return [(name, ColumnData(each.schema, by_name[name], False)) for name, each in fields if each is not None]


def _filter(run: RecordColumns, kept: pa.Array) -> RecordColumns:
    def pick(column: pa.Array | None) -> pa.Array | None:
        return None if column is None else column.filter(kept)

    headers = run.headers
    return RecordColumns(
        run.topic,
        run.value_schema,
        run.value.filter(kept),
        run.key_schema,
        pick(run.key),
        pick(run.timestamp),
        pick(run.partition),
        pick(run.offset),
        None if headers is None else [each for each, is_kept in zip(headers, kept.to_pylist(), strict=True) if is_kept],
    )


def _list_runs(
    rows: RecordColumns | Sequence[Record], refused: list[RefusedRecord], *, needs_keys: bool
) -> list[RecordColumns]:
    """Records as columns, a new run wherever the topic or a schema changes. Keys without a schema are left out."""
    if isinstance(rows, RecordColumns):
        return [rows]
    runs: list[list[Record]] = []
    schema: Schema | None = None
    for record in rows:
        if record.value_schema is None and record.value is not None:
            refused.append(RefusedRecord(record, "the value has no schema of a struct, which tells the columns"))
            continue
        if record.key is not None and record.key_schema is None:
            if needs_keys:
                refused.append(RefusedRecord(record, "pk.mode is record_key, and the key has no schema"))
                continue
            record = replace(record, key=None)
        is_same = runs and (record.topic, record.key_schema) == (runs[-1][0].topic, runs[-1][0].key_schema)
        if is_same and (record.value is None or schema is None or record.value_schema == schema):
            runs[-1].append(record)
        else:
            runs.append([record])
            schema = None
        schema = schema if record.value is None else record.value_schema
    found = []
    for run in runs:
        try:
            found.append(_to_columns(run))
        except RecordError as error:
            refused += [RefusedRecord(record, str(error)) for record in run]
    return found


def _to_columns(run: Sequence[Record]) -> RecordColumns:
    if all(each.value is None for each in run):  # tombstones have no schema, columns have one
        filler = Schema(Type.STRUCT, True)
        keyed = records_to_columns([*run, Record(run[0].topic, {}, filler, run[0].key, run[0].key_schema)])
        assert keyed is not None
        return slice_columns(keyed, 0, len(run))
    columns = records_to_columns(run)
    assert columns is not None
    return columns
