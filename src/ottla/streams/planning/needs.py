"""What the readers of a node need of it: of which tables the newest change of a key is enough, and which columns."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from ottla.streams import graph
from ottla.streams.graph import Node

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Needs:
    """Answers for the nodes of one topology."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._readers: Mapping[int, list[Node]] = defaultdict(list)
        for node in nodes:
            for parent in node.inputs:
                self._readers[id(parent)].append(node)
        self._narrowed = {id(node): self._narrow(node) for node in nodes if isinstance(node, graph.ColumnStep)}

    def is_newest_enough(self, table: Node) -> bool:
        """Whether the readers of all changes of a table do with the newest one of each key in a batch: those whose
        results are the same then, whatever becomes of single rows.

        A table that rows of a stream look at is none of those, nor one that goes on as a stream, nor one of which a
        function of the user sees each change and may refuse some.
        """
        return all(self._is_collector(reader) for reader in self._readers[id(table)])

    def is_newest_of_store_enough(self, table: Node) -> bool:
        """The same for the readers that need a store of the table. Others get its changes from the step before."""
        with_store = (graph.Rekey, graph.Aggregate, graph.StreamTableJoin, graph.TableJoin, graph.ForeignKeyJoin)
        return all(self._is_collector(reader) for reader in self._readers[id(table)] if isinstance(reader, with_store))

    def _is_collector(self, reader: Node) -> bool:
        if isinstance(reader, graph.Sink):
            return reader.topic is not None
        if isinstance(reader, graph.Aggregate):
            return isinstance(reader.aggregation, tuple)
        return isinstance(reader, graph.Rekey | graph.TableJoin) and self.is_newest_enough(reader)

    def narrow(self, step: graph.ColumnStep) -> graph.ColumnStep:
        """The step without the columns that no reader needs."""
        return self._narrowed[id(step)]

    def _narrow(self, step: graph.ColumnStep) -> graph.ColumnStep:
        readers = self._readers[id(step)]
        if not readers or not all(isinstance(each, graph.Rekey) for each in readers):
            return step
        needed = {name for each in readers for name in each.columns.names}
        if step.is_table:
            needed |= {*step.key}
        left_out = [name for name in step.columns.names if name not in needed]
        if not left_out:
            return step

        def apply(frame: "DataFrame") -> "DataFrame":
            return step.apply(frame).drop(*left_out)

        columns = pa.schema([each for each in step.columns if each.name in needed])
        key = tuple(name for name in step.key if name in needed)
        return replace(step, columns=columns, key=key, apply=apply)
