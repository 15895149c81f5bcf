"""Table: the newest value of each key."""

from typing import TYPE_CHECKING, Any, NoReturn

from pyspark.sql import Column

from ottla.streams import later
from ottla.streams.calls import operator
from ottla.streams.columns import Expression, find_plain_name
from ottla.streams.errors import TopologyError
from ottla.streams.graph import ForeignKeyJoin, TableJoin, ToStream
from ottla.streams.joins import check_how, check_same_key, join_columns
from ottla.streams.keys import choose_key
from ottla.streams.relation import Relation, check_columns
from ottla.streams.topics import Format, make_sink

if TYPE_CHECKING:
    from ottla.streams.grouped import GroupedTable
    from ottla.streams.stream import Stream


class Table(Relation):
    """Rows that replace each other: a row is a change of its key's value, and a key can be deleted."""

    @operator
    def group_by(self, *key: Expression) -> "GroupedTable":
        """Rows with the same values in these columns belong together; the columns become the key."""
        from ottla.streams.grouped import GroupedTable

        return GroupedTable(self._topology, *choose_key(self, self._topology.label("group_by"), key))

    @operator
    def join(
        self, other: "Table", *, on: Expression | tuple[str, ...] | None = None, how: str = "inner", name: str
    ) -> "Table":
        """A table of both tables' columns, which follows the changes of both.

        Without `on`, rows with the same key belong together: inner, left or outer. With `on`, each row belongs to the
        row of the other table whose key is in the columns `on`, a foreign key: inner or left. The result has the key of
        this table. A name that both have gets `_left` and `_right` added.
        """
        if not isinstance(other, Table):
            raise TopologyError(f"join: {other!r} is not a table; a stream joins a table by stream.join(table)")
        self._check_app("join", other)
        left, right = self.node, other.node
        foreign = None if on is None else _names_of("join: on", on)
        check_how("join", how, ("inner", "left", "outer") if foreign is None else ("inner", "left"))
        if foreign is not None:
            check_columns("join: on", left, foreign)
        check_same_key("join", left, foreign or left.key, right)
        joined = join_columns("join", left, right)
        fields = joined.fields(left, right, self._topology.claim_name("join", name), how, is_table=True)
        node = TableJoin(**fields) if foreign is None else ForeignKeyJoin(**fields, foreign_key=foreign)
        self._topology.add_root(node)
        return self._with(node, joined.value(self, other))

    @operator
    def to_stream(self) -> "Stream":
        """Each change as a row of a stream. A deleted key is a row whose value columns are null."""
        from ottla.streams.stream import Stream

        node = ToStream(self._topology.label("to_stream"), (self.node,), self.node.columns, self.node.key)
        return Stream(self._topology, node, self._value)

    @operator
    def to(
        self,
        topic: str | Column,
        *,
        key: Format | None = None,
        value: Format | None = None,
        allows_loop: bool = False,
    ) -> None:
        """Writes each change to a topic; a deleted key becomes a record without a value. Formats are chosen as in
        `Stream.to`."""
        label = self._topology.label("to")
        sink = make_sink(self._topology, self, label, topic, key=key, value=value, allows_loop=allows_loop)
        self._topology.add_root(sink)

    def window(self, *_: Any, **__: Any) -> NoReturn:
        later.refuse(later.WINDOWS_OVER_TABLES, "window")


def _names_of(label: str, on: object) -> tuple[str, ...]:
    """The columns of a foreign key: one or several, by name or as plain Columns."""
    names = [find_plain_name(label, each) for each in (on if isinstance(on, tuple | list) else (on,))]
    found = tuple(name for name in names if name is not None)
    if not found or len(found) < len(names):
        raise TopologyError(f"{label}: {on!r} must name columns; compute a new one with with_columns() before")
    return found
