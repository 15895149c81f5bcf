"""By which columns the rows of a node are spread over partitions."""

from ottla.streams import graph
from ottla.streams.graph import Node


class Partitioning:
    """Answers for the nodes of one topology. The columns are those whose canonical bytes choose the partition."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[str, ...] | None] = {}

    def is_by_key(self, node: Node) -> bool:
        """Whether all rows of a key are in the partition that the key's bytes choose."""
        return bool(node.key) and self.columns_of(node) == node.key

    def columns_of(self, node: Node) -> tuple[str, ...] | None:
        """None if any row may be anywhere."""
        if id(node) not in self._known:
            self._known[id(node)] = self._find(node)
        return self._known[id(node)]

    def _find(self, node: Node) -> tuple[str, ...] | None:
        if isinstance(node, graph.Source):
            return node.key if node.key_format.is_canonical else None
        if isinstance(node, graph.Repartition):
            return node.key
        if isinstance(node, graph.Aggregate):
            return node.inputs[0].key
        if isinstance(node, graph.Process):
            return node.key  # rows were brought to their key, and those that a processor makes keep it
        if isinstance(node, graph.ToTable):
            return node.key
        before = self.columns_of(node.inputs[0])
        if isinstance(node, graph.StreamJoin | graph.StreamTableJoin | graph.TableJoin | graph.ForeignKeyJoin):
            # the left side was brought to its key for the join
            return tuple(node.left_columns.get(name, name) for name in before or node.inputs[0].key)
        if isinstance(node, graph.Merge):
            return before if all(self.columns_of(each) == before for each in node.inputs) else None
        return before if before is not None and set(before) <= set(node.key) else None
