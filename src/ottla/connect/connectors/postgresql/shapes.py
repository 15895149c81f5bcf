"""Makes the shapes of captured tables out of the catalog, and of the tables that the log describes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.connect.connectors.postgresql.catalog import CatalogTable, read_tables, read_types
from ottla.connect.connectors.postgresql.column_types import TypeInfo, TypeModes, find_column_type
from ottla.connect.connectors.postgresql.envelopes import ShapeColumn, TableShape
from ottla.connect.connectors.postgresql.filters import CaptureFilter
from ottla.connect.connectors.postgresql.pgoutput import Relation
from ottla.connect.data.schema import Type

if TYPE_CHECKING:
    from adbc_driver_manager.dbapi import Connection


@dataclass(frozen=True)
class Capture:
    """What is captured, and how it is written."""

    prefix: str
    database: str
    filter: CaptureFilter
    modes: TypeModes


@dataclass
class Shapes:
    """The shapes of a database's tables, as its catalog is at one moment."""

    capture: Capture
    tables: Mapping[int, CatalogTable]
    """All tables by their oids."""
    types: Mapping[int, TypeInfo]

    @classmethod
    def read(cls, connection: "Connection", capture: Capture) -> "Shapes":
        tables = {each.oid: each for each in read_tables(connection)}
        return cls(capture, tables, read_types(connection))

    def make_from_catalog(self, table: CatalogTable) -> TableShape:
        columns = [
            self._make_column(table.schema, table.name, table, at, each.name, each.type_oid, each.modifier)
            for at, each in enumerate(table.columns)
        ]
        return self._make(table.schema, table.name, [each for each in columns if each])

    def make_from_log(self, relation: Relation) -> TableShape:
        """A column that has been dropped since may be null, for all that is known."""
        table = self.tables.get(relation.oid)
        columns = [
            self._make_column(relation.schema, relation.table, table, at, each.name, each.type_oid, each.modifier)
            for at, each in enumerate(relation.columns)
        ]
        return self._make(relation.schema, relation.table, [each for each in columns if each])

    def find_key_places(self, relation: Relation) -> list[int]:
        """Where the columns of the primary key are in the rows of the log."""
        table = self.tables.get(relation.oid)
        places = {each.name: at for at, each in enumerate(relation.columns)}
        key = [] if table is None else table.key
        return [places[each.name] for each in key] if all(each.name in places for each in key) else []

    def find_key_types(self, table: CatalogTable) -> list[str]:
        """The names of the types of the primary key's columns; of a domain, that of its base type."""
        found = []
        for each in table.key:
            info = self.types.get(each.type_oid)
            while info is not None and info.base:
                info = self.types.get(info.base)
            found.append("" if info is None else info.name)
        return found

    def _make_column(
        self, schema: str, name: str, table: CatalogTable | None, at: int, column: str, type_oid: int, modifier: int
    ) -> ShapeColumn | None:
        if not self.capture.filter.has_column(schema, name, column):
            return None
        known = next((each for each in table.columns if each.name == column), None) if table else None
        kind = find_column_type(self.types, type_oid, modifier, self.capture.modes)
        key_position = known.key_position if known else None
        is_plain = kind.schema.type not in (Type.ARRAY, Type.STRUCT)
        is_required = known is not None and known.is_required and (is_plain or key_position is not None)
        return ShapeColumn(column, kind, is_required, at, key_position)

    def _make(self, schema: str, name: str, columns: list[ShapeColumn]) -> TableShape:
        return TableShape(self.capture.prefix, self.capture.database, schema, name, columns)
