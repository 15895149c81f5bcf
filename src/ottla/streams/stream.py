"""Stream: records of topics as rows, one after the other."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Self

from pyspark.sql import Column

from ottla.streams.columns import Expression, Schema, parse_schema
from ottla.streams.graph import ToTable
from ottla.streams.keys import choose_key, rekey
from ottla.streams.relation import Relation
from ottla.streams.topics import Format, make_sink

if TYPE_CHECKING:
    from ottla.streams.grouped import GroupedStream
    from ottla.streams.table import Table


class Stream(Relation):
    """Rows that stand for themselves: each record is one fact."""

    def flat_map(self, function: Callable[[dict[str, Any]], Iterable[dict[str, Any]]], *, schema: Schema) -> Self:
        """All the rows that a function makes of each row: dictionaries with the columns of `schema`. The key stays as
        it is; the function need not return its columns."""
        label = self._topology.label("flat_map")
        return self._add_function(label, "flat_map", function, self._with_key(label, parse_schema(label, schema)))

    def peek(self, function: Callable[[dict[str, Any]], object]) -> Self:
        """Calls a function for each row, which goes on as it is. A batch that is repeated calls it again."""
        peeked = self._add_function(self._topology.label("peek"), "peek", function, self.node.columns)
        self._topology.add_root(peeked.node)
        return peeked

    def select_key(self, *key: Expression) -> Self:
        """These columns become the key; those of the key before become columns of the value."""
        label = self._topology.label("select_key")
        relation, names = choose_key(self, label, key)
        return self._with(rekey(label, relation.node, names))

    def group_by(self, *key: Expression) -> "GroupedStream":
        """Rows with the same values in these columns belong together; the columns become the key."""
        from ottla.streams.grouped import GroupedStream

        return GroupedStream(self._topology, *choose_key(self, self._topology.label("group_by"), key))

    def group_by_key(self) -> "GroupedStream":
        """Rows with the same key belong together."""
        from ottla.streams.grouped import GroupedStream

        return GroupedStream(self._topology, self, self.node.key)

    def to_table(self, *, name: str) -> "Table":
        """The newest row of each key. A row whose value columns are all null deletes its key."""
        from ottla.streams.table import Table

        name = self._topology.claim_name("to_table", name)
        node = ToTable(name, (self.node,), self.node.columns, self.node.key, is_table=True, name=name)
        self._topology.add_root(node)
        return Table(self._topology, node)

    def to(
        self,
        topic: str | Column,
        *,
        key: Format | None = None,
        value: Format | None = None,
        allows_loop: bool = False,
    ) -> None:
        """Writes the rows to a topic, or each row to the topic that a Column names.

        By default a key of one simple column is written as Kafka's serializers do, any other key as a JSON object. A
        value that is the column `value` alone is written likewise, any other value as a JSON object of its columns.
        """
        label = self._topology.label("to")
        sink = make_sink(self._topology, self, label, topic, key=key, value=value, allows_loop=allows_loop)
        self._topology.add_root(sink)
