"""Table: the newest value of each key."""

from pyspark.sql import Column

from ottla.streams.relation import Relation
from ottla.streams.topics import Format, make_sink


class Table(Relation):
    """Rows that replace each other: a row is a change of its key's value, and a key can be deleted."""

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
