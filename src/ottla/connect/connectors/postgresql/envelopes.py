"""Changes as Debezium writes them: the schemas of a table's records, and the records as columns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from ottla import __version__
from ottla.connect.connectors.postgresql.column_types import ColumnType
from ottla.connect.connectors.postgresql.pgoutput import Row
from ottla.connect.data.arrow_types import find_arrow_type
from ottla.connect.data.columns import RecordColumns
from ottla.connect.data.record import Header
from ottla.connect.data.schema import Field, Schema, Type

_STRING, _LONG = Schema(Type.STRING), Schema(Type.INT64)
_OPTIONAL_STRING, _OPTIONAL_LONG = Schema(Type.STRING, optional=True), Schema(Type.INT64, optional=True)
_SNAPSHOT: Final = Schema(
    Type.STRING,
    optional=True,
    name="io.debezium.data.Enum",
    version=1,
    default="false",
    parameters={"allowed": "true,first,first_in_data_collection,last_in_data_collection,last,false,incremental"},
)
SOURCE: Final = Schema(
    Type.STRUCT,
    name="io.debezium.connector.postgresql.Source",
    version=1,
    fields=(
        Field("version", _STRING),
        Field("connector", _STRING),
        Field("name", _STRING),
        Field("ts_ms", _LONG),
        Field("snapshot", _SNAPSHOT),
        Field("db", _STRING),
        Field("sequence", _OPTIONAL_STRING),
        Field("ts_us", _OPTIONAL_LONG),
        Field("ts_ns", _OPTIONAL_LONG),
        Field("schema", _STRING),
        Field("table", _STRING),
        Field("txId", _OPTIONAL_LONG),
        Field("lsn", _OPTIONAL_LONG),
        Field("xmin", _OPTIONAL_LONG),
    ),
)
_TRANSACTION: Final = Schema(
    Type.STRUCT,
    optional=True,
    name="event.block",
    version=1,
    fields=(Field("id", _STRING), Field("total_order", _LONG), Field("data_collection_order", _LONG)),
)


@dataclass(frozen=True)
class ShapeColumn:
    name: str
    type: ColumnType
    is_required: bool
    at: int
    """Its place in the rows of the log."""
    key_position: int | None


@dataclass(frozen=True)
class ChangeColumns:
    """Changes of one table as Arrow's columns, in order."""

    ops: pa.Array
    befores: Sequence[pa.Array]
    """The texts of the rows before, by the places of columns in the log. They are null where there is no row."""
    has_before: pa.Array
    afters: Sequence[pa.Array]
    has_after: pa.Array
    xids: pa.Array
    lsns: pa.Array
    last_commits: pa.Array
    """LSN of the commit before, for `sequence`."""
    times_us: pa.Array
    """When they were committed."""

    def __len__(self) -> int:
        return len(self.ops)


@dataclass
class Changes:
    """Changes of one table, one by one, in order."""

    ops: list[str]
    befores: list[Row | None]
    afters: list[Row | None]
    xids: list[int | None]
    lsns: list[int]
    last_commits: list[int]
    times_us: list[int]
    headers: dict[int, list[Header]]
    """Of single changes, by their place."""

    @classmethod
    def empty(cls) -> "Changes":
        return cls([], [], [], [], [], [], [], {})

    def add(
        self, op: str, before: Row | None, after: Row | None, xid: int, lsn: int, last_commit: int, time_us: int
    ) -> None:
        self.ops.append(op)
        self.befores.append(before)
        self.afters.append(after)
        self.xids.append(xid)
        self.lsns.append(lsn)
        self.last_commits.append(last_commit)
        self.times_us.append(time_us)

    def to_columns(self) -> ChangeColumns:
        return ChangeColumns(
            pa.array(self.ops, pa.string()),
            *_to_columns(self.befores),
            *_to_columns(self.afters),
            pa.array(self.xids, pa.int64()),
            pa.array(self.lsns, pa.int64()),
            pa.array(self.last_commits, pa.int64()),
            pa.array(self.times_us, pa.int64()),
        )


def _to_columns(rows: Sequence[Row | None]) -> tuple[list[pa.Array], pa.Array]:
    """The texts of the columns, and whether there is a row. Without any row, there are no columns either."""
    absent: Row = [None] * max((len(row) for row in rows if row is not None), default=0)
    by_place = zip(*[absent if row is None else row for row in rows], strict=True)
    return [pa.array(each, pa.string()) for each in by_place], pa.array([row is not None for row in rows], pa.bool_())


class TableShape:
    """How the rows of a table become records."""

    def __init__(self, prefix: str, database: str, schema: str, table: str, columns: Sequence[ShapeColumn]) -> None:
        self.prefix, self.database, self.schema, self.table = prefix, database, schema, table
        self.topic = make_topic_name(prefix, schema, table)
        self.columns = columns
        self.key_columns = sorted(
            (each for each in columns if each.key_position is not None), key=lambda each: each.key_position or 0
        )
        fields = tuple(Field(each.name, replace(each.type.schema, optional=not each.is_required)) for each in columns)
        self.row_schema = Schema(Type.STRUCT, optional=True, name=f"{self.topic}.Value", fields=fields)
        self.key_schema = None
        if self.key_columns:
            self.key_schema = Schema(
                Type.STRUCT,
                name=f"{self.topic}.Key",
                fields=tuple(Field(each.name, each.type.schema) for each in self.key_columns),
            )
        self.value_schema = Schema(
            Type.STRUCT,
            name=f"{self.topic}.Envelope",
            version=2,
            fields=(
                Field("before", self.row_schema),
                Field("after", self.row_schema),
                Field("source", SOURCE),
                Field("transaction", _TRANSACTION),
                Field("op", _STRING),
                Field("ts_ms", _OPTIONAL_LONG),
                Field("ts_us", _OPTIONAL_LONG),
                Field("ts_ns", _OPTIONAL_LONG),
            ),
        )
        self._envelope_type = find_arrow_type(self.value_schema)
        self._source_type = find_arrow_type(SOURCE)
        self._row_type = find_arrow_type(self.row_schema)

    def make_key(self, row: Row) -> Any:
        """The key of one row, as the value of a header."""
        return None if self.key_schema is None else self._build_key(*_to_columns([row]))[0].as_py()

    def build_changes(
        self,
        changes: ChangeColumns,
        now_us: int,
        *,
        tombstones: bool,
        headers: Mapping[int, list[Header]] | None = None,
    ) -> RecordColumns:
        """The changes as records, each deletion followed by a tombstone if that is wanted.

        `headers` are those of single changes, by their places.
        """
        sequence = ['["', changes.last_commits.cast(pa.string()), '","', changes.lsns.cast(pa.string()), '"]']
        source = self._build_source(
            changes.times_us,
            "false",
            pc.binary_join_element_wise(*sequence, ""),
            changes.xids,
            changes.lsns,
        )
        value = self._build_envelope(
            self._build_rows(changes.befores, changes.has_before),
            self._build_rows(changes.afters, changes.has_after),
            source,
            changes.ops,
            now_us,
        )
        key = None if self.key_schema is None else self._build_key(*_choose_rows(changes))
        listed = [headers.get(at, []) for at in range(len(value))] if headers else None
        if key is not None and tombstones and pc.any(pc.equal(changes.ops, "d")).as_py():
            value, key, listed = _add_tombstones(changes.ops.to_pylist(), value, key, listed)
        return RecordColumns(self.topic, self.value_schema, value, self.key_schema, key, headers=listed)

    def build_snapshot(self, rows: pa.Table, snapshot_lsn: int, now_us: int) -> RecordColumns:
        """Rows of the table, in texts, one column for each of `columns`."""
        count = len(rows)
        texts = [column.combine_chunks() if column.num_chunks != 1 else column.chunk(0) for column in rows.columns]
        converted = [each.type.convert(text) for each, text in zip(self.columns, texts, strict=True)]
        source = self._build_source(
            pa.repeat(now_us, count),
            "true",
            pa.repeat(f'[null,"{snapshot_lsn}"]', count),
            pa.nulls(count, pa.int64()),
            pa.repeat(snapshot_lsn, count),
        )
        after = pa.StructArray.from_arrays(converted, fields=list(self._row_type))
        value = self._build_envelope(pa.nulls(count, self._row_type), after, source, pa.repeat("r", count), now_us)
        key = None
        if self.key_schema is not None:
            places = [self.columns.index(each) for each in self.key_columns]
            key = pa.StructArray.from_arrays(
                [converted[at] for at in places], fields=list(find_arrow_type(self.key_schema))
            )
        return RecordColumns(self.topic, self.value_schema, value, self.key_schema, key)

    def _build_rows(self, texts: Sequence[pa.Array], is_there: pa.Array) -> pa.Array:
        if not texts or not pc.any(is_there).as_py():
            return pa.nulls(len(is_there), self._row_type)
        arrays = []
        for column in self.columns:
            array = column.type.convert(texts[column.at])
            if column.is_required and array.null_count and column.type.zero is not None:
                zero = pa.array([column.type.zero]).cast(array.type)[0]
                array = array.fill_null(zero)
            arrays.append(array)
        return pa.StructArray.from_arrays(arrays, fields=list(self._row_type), mask=pc.invert(is_there))

    def _build_key(self, texts: Sequence[pa.Array], is_there: pa.Array) -> pa.Array:
        assert self.key_schema is not None
        kind = find_arrow_type(self.key_schema)
        if not texts:
            return pa.nulls(len(is_there), kind)
        arrays = [each.type.convert(texts[each.at]) for each in self.key_columns]
        return pa.StructArray.from_arrays(arrays, fields=list(kind), mask=pc.invert(is_there))

    def _build_source(
        self, times_us: pa.Array, snapshot: str, sequence: pa.Array, xids: pa.Array, lsns: pa.Array
    ) -> pa.Array:
        count = len(times_us)
        arrays = {
            **_make_times(times_us),
            "version": pa.repeat(__version__, count),
            "connector": pa.repeat("postgresql", count),
            "name": pa.repeat(self.prefix, count),
            "snapshot": pa.repeat(snapshot, count),
            "db": pa.repeat(self.database, count),
            "sequence": sequence,
            "schema": pa.repeat(self.schema, count),
            "table": pa.repeat(self.table, count),
            "txId": xids,
            "lsn": lsns,
            "xmin": pa.nulls(count, pa.int64()),
        }
        return _build_struct(self._source_type, arrays)

    def _build_envelope(
        self, before: pa.Array, after: pa.Array, source: pa.Array, ops: pa.Array, now_us: int
    ) -> pa.Array:
        count = len(ops)
        arrays = {
            **_make_times(pa.repeat(now_us, count)),
            "before": before,
            "after": after,
            "source": source,
            "transaction": pa.nulls(count, find_arrow_type(_TRANSACTION)),
            "op": ops,
        }
        return _build_struct(self._envelope_type, arrays)


def make_topic_name(prefix: str, schema: str, table: str) -> str:
    """What a topic's name may not have becomes an underscore, as in Debezium."""
    name = f"{prefix}.{schema}.{table}"
    return "".join(each if each.isascii() and (each.isalnum() or each in "._-") else "_" for each in name)


def _choose_rows(changes: ChangeColumns) -> tuple[Sequence[pa.Array], pa.Array]:
    """The row after each change, or else the one before; and whether there is one."""
    if not changes.afters:
        return changes.befores, changes.has_before
    if not changes.befores or pc.all(changes.has_after).as_py():
        return changes.afters, changes.has_after
    chosen = [
        pc.if_else(changes.has_after, after, before)
        for before, after in zip(changes.befores, changes.afters, strict=True)
    ]
    return chosen, pc.or_(changes.has_before, changes.has_after)


def _make_times(times_us: pa.Array) -> Mapping[str, pa.Array]:
    return {"ts_ms": pc.divide(times_us, 1000), "ts_us": times_us, "ts_ns": pc.multiply(times_us, 1000)}


def _build_struct(kind: pa.StructType, arrays: Mapping[str, pa.Array]) -> pa.Array:
    return pa.StructArray.from_arrays([arrays[each.name] for each in kind], fields=list(kind))


def _add_tombstones(ops: Sequence[str], value: pa.Array, key: pa.Array, headers: Any) -> tuple[Any, Any, Any]:
    places: list[int] = []
    values: list[int | None] = []
    for at, op in enumerate(ops):
        places.append(at)
        values.append(at)
        if op == "d":
            places.append(at)
            values.append(None)
    moved = None if headers is None else [headers[at] for at in places]
    return value.take(pa.array(values, pa.int64())), key.take(pa.array(places, pa.int64())), moved
