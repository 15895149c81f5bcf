"""What the catalog of a database says about its tables and types."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from ottla.connect.connectors.postgresql.column_types import TypeInfo
from ottla.connect.connectors.postgresql.connecting import query_rows

if TYPE_CHECKING:
    from adbc_driver_manager.dbapi import Connection

_TABLES: Final = """
SELECT c.oid::int8 AS oid, n.nspname::text AS schema, c.relname::text AS table, c.relkind::text AS kind,
       c.relreplident::text AS identity, a.attname::text AS name, a.atttypid::int8 AS type_oid, a.atttypmod AS modifier,
       a.attnotnull AS is_required, array_position(i.indkey::int2[], a.attnum) AS key_position
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
     JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
     LEFT JOIN pg_index i ON i.indrelid = c.oid AND i.indisprimary
WHERE c.relkind IN ('r', 'p') AND c.relpersistence = 'p'
      AND n.nspname <> 'information_schema' AND n.nspname !~ '^pg_'
ORDER BY n.nspname, c.relname, c.oid, a.attnum
"""
_TYPES: Final = """
SELECT t.oid::int8 AS oid, t.typname::text AS name, t.typbasetype::int8 AS base, t.typtypmod AS modifier,
       CASE WHEN t.typcategory = 'A' THEN t.typelem::int8 ELSE 0 END AS element,
       (SELECT array_agg(e.enumlabel::text ORDER BY e.enumsortorder) FROM pg_enum e WHERE e.enumtypid = t.oid) AS labels
FROM pg_type t WHERE t.typtype IN ('b', 'd', 'e')
"""


@dataclass(frozen=True)
class CatalogColumn:
    name: str
    type_oid: int
    modifier: int
    is_required: bool
    key_position: int | None
    """In the primary key."""


@dataclass(frozen=True)
class CatalogTable:
    oid: int
    schema: str
    name: str
    kind: str
    """r, or p for one that is partitioned: its rows are in its partitions."""
    identity: str
    columns: tuple[CatalogColumn, ...]

    @property
    def full_name(self) -> str:
        return f"{self.schema}.{self.name}"

    @property
    def key(self) -> list[CatalogColumn]:
        """The columns of the primary key, in its order."""
        found = [each for each in self.columns if each.key_position is not None]
        return sorted(found, key=lambda each: each.key_position or 0)


def read_tables(connection: "Connection") -> list[CatalogTable]:
    """All tables that are not the system's, with the columns that are stored, in order of their names."""
    tables = []
    for oid, rows in groupby(query_rows(connection, _TABLES), lambda row: int(row["oid"])):
        found: Sequence[Mapping[str, Any]] = list(rows)
        columns = tuple(
            CatalogColumn(row["name"], row["type_oid"], row["modifier"], row["is_required"], row["key_position"])
            for row in found
        )
        first = found[0]
        tables.append(CatalogTable(oid, first["schema"], first["table"], first["kind"], first["identity"], columns))
    return tables


def read_types(connection: "Connection") -> dict[int, TypeInfo]:
    return {
        row["oid"]: TypeInfo(
            row["oid"], row["name"], row["element"], row["base"], row["modifier"], tuple(row["labels"] or ())
        )
        for row in query_rows(connection, _TYPES)
    }
