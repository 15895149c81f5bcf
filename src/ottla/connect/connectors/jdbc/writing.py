"""Writes rows to a table: through a staging table and one statement, or row by row where the database refuses some.

Tables are created and get columns here, as auto.create and auto.evolve allow.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ottla.connect.connector import RefusedRecord
from ottla.connect.connectors.jdbc.dialect import Column, Dialect, TableId
from ottla.connect.connectors.jdbc.rows import ColumnData, TableRows
from ottla.connect.connectors.jdbc.session import STAGING, RowsRefused, Session
from ottla.connect.data.conversion import columns_to_records
from ottla.connect.errors import ConnectError


class TableWriter:
    """Writes in one transaction, which its caller ends."""

    def __init__(self, config: Mapping[str, Any], dialect: Dialect, session: Session) -> None:
        self._dialect = dialect
        self._session = session
        self._mode: str = config["insert.mode"]
        self._batch_size: int = config["batch.size"]
        self._may_create: bool = config["auto.create"]
        self._may_evolve: bool = config["auto.evolve"]
        self._tables: dict[str, tuple[TableId, dict[str, Column]]] = {}

    def write(self, rows: TableRows, refused: list[RefusedRecord]) -> None:
        table, columns = self._prepare(rows)
        for start in range(0, len(rows), self._batch_size):
            piece = rows.slice(start, min(self._batch_size, len(rows) - start))
            self._write_or_divide(table, columns, piece, refused)

    def _write_or_divide(
        self, table: TableId, columns: Mapping[str, Column], rows: TableRows, refused: list[RefusedRecord]
    ) -> None:
        """Halves are written in order, so that the last good record of a key wins whatever is refused."""
        try:
            with self._session.savepoint():
                for is_delete, indices in self._list_steps(rows):
                    self._move(table, columns, rows, indices, is_delete=is_delete)
        except RowsRefused as error:
            if len(rows) == 1:
                refused.append(RefusedRecord(columns_to_records(rows.records)[0], f"{table}: {error}"))
                return
            half = len(rows) // 2
            self._write_or_divide(table, columns, rows.slice(0, half), refused)
            self._write_or_divide(table, columns, rows.slice(half, len(rows) - half), refused)

    def _list_steps(self, rows: TableRows) -> Iterator[tuple[bool, pa.Array]]:
        """Rows that one statement can write, by their indices, and whether it deletes them."""
        everything = pa.array(range(len(rows)), pa.int64())
        if self._mode == "upsert":
            last = _find_last(rows, everything)
            deletes = rows.is_delete.take(last)
            yield True, last.filter(deletes)
            yield False, last.filter(pc.invert(deletes))
            return
        flags = rows.is_delete.to_pylist()
        start = 0
        for end in range(1, len(flags) + 1):
            if end == len(flags) or flags[end] != flags[start]:
                step = everything.slice(start, end - start)
                yield flags[start], step if self._mode == "insert" and not flags[start] else _find_last(rows, step)
                start = end

    def _move(
        self, table: TableId, columns: Mapping[str, Column], rows: TableRows, indices: pa.Array, *, is_delete: bool
    ) -> None:
        if not len(indices):
            return
        taken = rows.take(indices)
        names = rows.key_names if is_delete else list(rows.columns)
        staged = pa.table({name: self._dialect.to_staging(taken[name]) for name in names})
        quote, kinds = self._dialect.quote, dict(zip(names, staged.schema.types, strict=True))
        values = {
            name: self._dialect.from_staging(f"s.{_quote_staged(name)}", columns[self._dialect.fold(name)], kinds[name])
            for name in names
        }
        target, keys = self._dialect.quote_table(table), rows.key_names
        others = [name for name in names if name not in keys]
        with self._session.staged(staged):
            if is_delete:
                key = ", ".join(quote(name) for name in keys)
                chosen = ", ".join(values[name] for name in keys)
                self._session.execute(f"DELETE FROM {target} WHERE ({key}) IN (SELECT {chosen} FROM {STAGING} AS s)")
            elif self._mode == "update":
                if others:
                    changes = ", ".join(f"{quote(name)} = {values[name]}" for name in others)
                    same = " AND ".join(f"t.{quote(name)} = {values[name]}" for name in keys)
                    self._session.execute(f"UPDATE {target} AS t SET {changes} FROM {STAGING} AS s WHERE {same}")
            else:
                listed = ", ".join(quote(name) for name in names)
                chosen = ", ".join(values[name] for name in names)
                sql = f"INSERT INTO {target} ({listed}) SELECT {chosen} FROM {STAGING} AS s WHERE true"
                self._session.execute(sql + (self._on_conflict(keys, others) if self._mode == "upsert" else ""))

    def _on_conflict(self, keys: Sequence[str], others: Sequence[str]) -> str:
        quote = self._dialect.quote
        key = ", ".join(quote(name) for name in keys)
        changes = ", ".join(f"{quote(name)} = excluded.{quote(name)}" for name in others)
        return f" ON CONFLICT ({key}) DO " + (f"UPDATE SET {changes}" if changes else "NOTHING")

    def _prepare(self, rows: TableRows) -> tuple[TableId, dict[str, Column]]:
        """The table with all columns that the rows have."""
        found = self._tables.get(rows.table) or self._describe(rows.table)
        if found is None or self._list_missing(rows, found[1]):
            self._dialect.lock_catalogue(self._session)
            found = self._describe(rows.table)
            if found is None:
                self._create(rows)
            else:
                self._evolve(found[0], self._list_missing(rows, found[1]), rows.columns)
            found = self._describe(rows.table)
            if found is None:
                raise ConnectError(f"the table {rows.table} is not where the search path leads")
        self._tables[rows.table] = found
        return found

    def _list_missing(self, rows: TableRows, columns: Mapping[str, Column]) -> list[str]:
        return [name for name in rows.columns if self._dialect.fold(name) not in columns]

    def _describe(self, name: str) -> tuple[TableId, dict[str, Column]] | None:
        table = self._dialect.find_table(self._session, name)
        if table is None:
            return None
        return table, {
            self._dialect.fold(column.name): column for column in self._dialect.list_columns(self._session, table)
        }

    def _create(self, rows: TableRows) -> None:
        if not self._may_create:
            raise ConnectError(f"the table {rows.table} does not exist, and auto.create is false")
        parts = [self._declare(name, each) for name, each in rows.columns.items()]
        if rows.key_names:
            parts.append(f"PRIMARY KEY ({', '.join(self._dialect.quote(name) for name in rows.key_names)})")
        self._session.execute(f"CREATE TABLE {self._dialect.quote(*_split(rows.table))} ({', '.join(parts)})")

    def _declare(self, name: str, column: ColumnData) -> str:
        is_needed = column.is_key or not column.schema.optional
        kind = self._dialect.find_type(column.schema)
        return f"{self._dialect.quote(name)} {kind}{' NOT NULL' if is_needed else ''}"

    def _evolve(self, table: TableId, missing: Sequence[str], columns: Mapping[str, ColumnData]) -> None:
        if not missing:
            return
        if not self._may_evolve:
            raise ConnectError(f"the table {table} has no column {', '.join(missing)}, and auto.evolve is false")
        needed = [name for name in missing if not columns[name].schema.optional]
        if needed:
            raise ConnectError(
                f"the table {table} cannot get the column {', '.join(needed)}: its field is not optional"
            )
        for name in missing:
            self._session.execute(
                f"ALTER TABLE {self._dialect.quote_table(table)} ADD COLUMN {self._declare(name, columns[name])}"
            )


def _find_last(rows: TableRows, indices: pa.Array) -> pa.Array:
    """Of each key the last of these rows, in order."""
    names = rows.key_names
    if not names:
        return indices
    keys = {f"k{number}": rows.columns[name].values.take(indices) for number, name in enumerate(names)}
    table = pa.table({**keys, "at": indices})
    last = table.group_by(list(keys)).aggregate([("at", "max")]).column("at_max").combine_chunks()
    return last.take(pc.sort_indices(last)) if len(last) else last


def _split(name: str) -> list[str]:
    schema, _, simple = name.rpartition(".")
    return [schema, simple] if schema else [simple]


def _quote_staged(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
