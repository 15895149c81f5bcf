"""What one read of a table or a query asks for, and the offset after it.

The offsets are Confluent's: `incrementing` is the highest value of the incrementing column, `timestamp` the highest
time in milliseconds, `timestamp_nanos` the nanoseconds of its second.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from ottla.connect.connector import SourceOffset
from ottla.connect.connectors.jdbc.dialect import Column, Dialect, TableId
from ottla.connect.connectors.jdbc.session import Session
from ottla.connect.connectors.jdbc.source_settings import BULK, INCREMENTING, TIMESTAMP
from ottla.connect.data.arrow_types import find_arrow_type
from ottla.connect.data.schema import Field, Schema, Type
from ottla.connect.errors import ConnectError

TIME: Final = "ottla_time"
NUMBER: Final = "ottla_number"
"""Columns of our own that a read has besides: what the offset is made of."""
_OFFSET_MICROS: Final = 1_000_000


@dataclass(frozen=True)
class Target:
    """A table, or the query."""

    table: TableId | None
    query: str = ""

    @property
    def name(self) -> str:
        return "query" if self.table is None else str(self.table)


def read_micros(offset: SourceOffset | None) -> int | None:
    """The time of an offset."""
    if not offset or offset.get("timestamp") is None:
        return None
    millis, nanos = int(offset["timestamp"]), offset.get("timestamp_nanos")
    return millis * 1000 if nanos is None else millis // 1000 * _OFFSET_MICROS + int(nanos) // 1000


class TargetQuery:
    """The columns of a target, and the SQL that reads them."""

    def __init__(self, config: Mapping[str, Any], dialect: Dialect, session: Session, target: Target) -> None:
        self._dialect = dialect
        self._session = session
        self._mode: str = config["mode"]
        self._target = target
        if target.table is None:
            columns = dialect.list_query_columns(session, target.query)
            self._from = f"({target.query}) AS queried"
        else:
            columns = dialect.list_columns(session, target.table)
            self._from = dialect.quote_table(target.table)
        if not columns:
            raise ConnectError(f"{target.name} has no columns, or does not exist")
        self._columns = {dialect.fold(column.name): column for column in columns}
        self._readings = {column.name: dialect.find_reading(column) for column in columns}
        self.schema = self._make_schema(columns)
        self._number = self._times = None
        must_be_full = config["validate.non.null"] and target.table is not None
        if self._mode not in (BULK, TIMESTAMP):
            self._number = self._find([config["incrementing.column.name"]], must_be_full=must_be_full)[0]
        if self._mode not in (BULK, INCREMENTING):
            self._times = self._find(config["timestamp.column.name"], must_be_full=must_be_full)

    def _make_schema(self, columns: Sequence[Column]) -> Schema:
        fields = []
        for column in columns:
            each = self._readings[column.name].schema
            optional = Schema(
                each.type,
                column.optional,
                each.name,
                each.version,
                parameters=each.parameters,
                value_schema=each.value_schema,
            )
            fields.append(Field(column.name, optional))
        name = None if self._target.table is None else self._target.table.name
        return Schema(Type.STRUCT, name=name, fields=tuple(fields))

    def _find(self, names: Sequence[str], *, must_be_full: bool) -> list[Column]:
        missing = [name for name in names if self._dialect.fold(name) not in self._columns]
        if missing:
            raise ConnectError(f"{self._target.name} has no column {', '.join(missing)} to poll by")
        found = [self._columns[self._dialect.fold(name)] for name in names]
        if must_be_full and all(column.optional for column in found):
            listed = ", ".join(column.name for column in found)
            raise ConnectError(f"{self._target.name}: {listed} may be null, and validate.non.null is true")
        return found

    @property
    def _time_type(self) -> str:
        assert self._times
        return self._times[0].type

    def _time(self) -> str:
        """The expression that timestamps are compared by."""
        assert self._times
        quoted = [self._dialect.quote(column.name) for column in self._times]
        return quoted[0] if len(quoted) == 1 else f"COALESCE({', '.join(quoted)})"

    def _comparable_time(self) -> str:
        return self._dialect.comparable_time(self._time(), self._time_type)

    def _quoted_number(self) -> str:
        assert self._number is not None
        return self._dialect.quote(self._number.name)

    def find_highest_number(self) -> int | None:
        rows = self._session.query_rows(f"SELECT CAST(max({self._quoted_number()}) AS bigint) AS n FROM {self._from}")
        return None if rows[0]["n"] is None else int(rows[0]["n"])

    def has_rows(self, offset: SourceOffset | None, cap: int) -> bool:
        sql = f"SELECT 1 AS found FROM {self._from}{self._where(offset, cap)} LIMIT 1"
        return bool(self._session.query_rows(sql))

    def read_all(self) -> Iterator[pa.StructArray]:
        for batch in self._session.stream(f"SELECT {self._select()} FROM {self._from}"):
            yield self._to_struct(pa.Table.from_batches([batch]))

    def read_page(self, offset: SourceOffset | None, cap: int, rows: int) -> tuple[pa.StructArray, SourceOffset | None]:
        """Rows after the offset and up to the cap, and the offset after them.

        Rows of the same time stay together if there is nothing else to tell them apart by: then there may be more.
        """
        extra, order = [], []
        if self._times:
            extra.append(f"{self._dialect.timestamp_micros(self._time(), self._time_type)} AS {TIME}")
            order.append(self._comparable_time())
        if self._number is not None:
            extra.append(f"CAST({self._quoted_number()} AS bigint) AS {NUMBER}")
            order.append(self._quoted_number())
        sql = (
            f"SELECT {self._select()}, {', '.join(extra)} FROM {self._from}{self._where(offset, cap)}"
            f" ORDER BY {', '.join(order)}"
        )
        while True:
            table = self._session.query(f"{sql} LIMIT {rows}")
            if self._number is not None or table.num_rows < rows:
                break
            times = table.column(TIME)
            kept = pc.sum(pc.not_equal(times, times[-1])).as_py()
            if kept:
                table = table.slice(0, kept)
                break
            rows *= 2
        return self._to_struct(table), self._find_offset(table)

    def _find_offset(self, table: pa.Table) -> SourceOffset | None:
        if not table.num_rows:
            return None
        offset: dict[str, Any] = {}
        if self._times:
            micros = table.column(TIME)[-1].as_py()
            offset |= {"timestamp_nanos": micros % _OFFSET_MICROS * 1000, "timestamp": micros // 1000}
        if self._number is not None:
            offset["incrementing"] = table.column(NUMBER)[-1].as_py()
        return offset

    def _where(self, offset: SourceOffset | None, cap: int) -> str:
        number = None if offset is None else offset.get("incrementing")
        if not self._times:
            low = "" if number is None else f"{self._quoted_number()} > {int(number)} AND "
            return f" WHERE {low}{self._quoted_number()} <= {cap}"
        time, micros = self._comparable_time(), read_micros(offset)
        high = f"{time} < {self._dialect.timestamp_literal(cap, self._time_type)}"
        if micros is None:
            return f" WHERE {high}"
        last = self._dialect.timestamp_literal(micros, self._time_type)
        if self._number is None or number is None:
            return f" WHERE {time} > {last} AND {high}"
        same = f"({time} = {last} AND {self._quoted_number()} > {int(number)})"
        return f" WHERE ({time} > {last} OR {same}) AND {high}"

    def _select(self) -> str:
        return ", ".join(
            f"{reading.expression} AS {self._dialect.quote(name)}" for name, reading in self._readings.items()
        )

    def _to_struct(self, table: pa.Table) -> pa.StructArray:
        """The rows in the Arrow types of their schema."""
        arrays, fields = [], []
        for field, column in zip(self.schema.fields, table.columns, strict=False):
            wanted = find_arrow_type(field.schema)
            array = column.combine_chunks()
            if isinstance(array, pa.ChunkedArray):
                array = array.chunk(0) if array.num_chunks else pa.array([], array.type)
            if isinstance(array, pa.ExtensionArray):
                array = array.storage
            arrays.append(_cast(array, wanted))
            fields.append(pa.field(field.name, wanted))
        return pa.StructArray.from_arrays(arrays, fields=fields)


def _cast(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    if array.type == wanted:
        return array
    if array.null_count == len(array):
        return pa.nulls(len(array), wanted)
    if pa.types.is_timestamp(wanted) and pa.types.is_timestamp(array.type):
        return array.cast(pa.timestamp("us", "UTC")).cast(wanted, safe=False)
    if pa.types.is_date(wanted) and pa.types.is_integer(array.type):
        return array.cast(pa.int32()).cast(wanted)
    return array.cast(wanted, safe=not pa.types.is_time(wanted))
