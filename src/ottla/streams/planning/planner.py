"""From the logical topology to subtopologies: where rows must change their partition, and what runs in one task.

Rows of a node are in one or several *places*, outputs inside of subtopologies. Steps without a key are added to the
subtopology of each place, so a merge costs nothing. A step that needs all rows of a key in one partition brings the
places together: in one subtopology if the rows are there already, otherwise through a repartition topic. Column steps
begin subtopologies (see `plan.py`): where one comes later, the rows go through a topic before it.
"""

from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa

from ottla.streams import graph
from ottla.streams.errors import TopologyError
from ottla.streams.graph import Node
from ottla.streams.kernels.foreign_key import (
    response_columns,
    response_key,
    subscription_columns,
    subscription_key,
)
from ottla.streams.kernels.joining import JoinShape
from ottla.streams.planning import naming, steps
from ottla.streams.planning.building import Builder, topics_of
from ottla.streams.planning.drafts import DraftSink, Place
from ottla.streams.planning.needs import Needs
from ottla.streams.planning.partitioning import Partitioning
from ottla.streams.planning.plan import RECORDS, AppPlan, SinkPlan, SourcePlan
from ottla.streams.planning.steps import Made, RowForm

Join = graph.StreamJoin | graph.StreamTableJoin | graph.TableJoin


def make_plan(app_name: str, sinks: Sequence[Node], partition_counts: Mapping[str, int] | None = None) -> AppPlan:
    """Plan an app. `sinks` are the nodes that have an effect: sinks, tables that can be queried, functions that peek.

    `partition_counts` has the number of partitions of each source topic; without it, topics are taken to be equal.
    TopologyError, one line, if the app cannot work.
    """
    planner = _Planner(app_name, graph.walk(sinks), partition_counts)
    return planner.plan(sinks)


class _Planner:
    def __init__(self, app: str, nodes: Sequence[Node], partition_counts: Mapping[str, int] | None) -> None:
        self._app = app
        self._nodes = nodes
        self._counts = partition_counts
        self._builder = Builder(app, partition_counts)
        self._names_below = naming.name_below(nodes)
        self._partitioning = Partitioning()
        self._places: dict[int, list[Place]] = {}
        self._need_old = _find_tables_with_old(nodes)
        self._needs = Needs(nodes)
        self._further_outputs: dict[int, dict[str, Place]] = {}
        """Of processors, by the id of their node and by name."""
        self._tables: dict[int, tuple[Place, str]] = {}
        """Changes of tables by the id of their node, and the stores that have the tables by canonical keys."""
        self._visitors: dict[type[Node], Callable[..., list[Place]]] = {
            graph.Source: self._add_source,
            graph.ColumnStep: self._add_column_step,
            graph.FunctionStep: self._add_function,
            graph.Rekey: self._pass_on,
            graph.Merge: self._pass_on,
            graph.ToStream: self._add_to_stream,
            graph.Repartition: self._add_repartition,
            graph.ToTable: self._add_to_table,
            graph.Aggregate: self._add_aggregate,
            graph.StreamJoin: self._add_stream_join,
            graph.StreamTableJoin: self._add_stream_table_join,
            graph.TableJoin: self._add_table_join,
            graph.ForeignKeyJoin: self._add_foreign_key_join,
            graph.Process: self._add_process,
            graph.Output: self._add_output,
            graph.Sink: self._add_sink,
        }

    def plan(self, sinks: Sequence[Node]) -> AppPlan:
        for node in self._nodes:
            self._places[id(node)] = self._visitors[type(node)](node)
        for node in sinks:
            name = getattr(node, "name", None)
            if node.is_table and name and not isinstance(node, graph.Sink | graph.Aggregate):
                self._table(node, name)
        return self._builder.finish()

    # Sources, sinks, and steps without a key

    def _add_source(self, node: graph.Source) -> list[Place]:
        if self._counts is not None and node.topic not in self._counts:
            raise TopologyError(f"{node.label}: topic {node.topic!r} does not exist: ottla topic create {node.topic}")
        source = SourcePlan(
            node.topic,
            node.columns,
            node.key,
            node.is_table,
            RECORDS,
            node.key_format,
            node.value_format,
            node.time,
            node.start,
            node.topic,
        )
        return [self._builder.begin(source)]

    def _add_sink(self, node: graph.Sink) -> list[Place]:
        source = node.inputs[0]

        def plan(number: int) -> SinkPlan:
            return SinkPlan(
                number,
                node.columns,
                node.key,
                node.topic,
                node.topic_column,
                source.is_table,
                RECORDS,
                node.key_format,
                node.value_format,
                node.label,
                node.value_columns,
            )

        for place in self._places[id(source)]:
            place.unit.sinks.append(DraftSink(place, plan, node.topic))
        return []

    def _add_column_step(self, node: graph.ColumnStep) -> list[Place]:
        before = self._places[id(node.inputs[0])]
        step = self._needs.narrow(node)
        fronts = [place.origin for place in before if place.origin is not None]
        places = [self._builder.begin(source, (*columns, step)) for source, columns in fronts]
        inside = [place for place in before if place.origin is None]
        if inside:
            topic = self._builder.name_rows_topic(self._names_below.get(id(node), node.label))
            source = self._builder.send(inside, node.inputs[0], topic, partition_by=None)
            places.append(self._builder.begin(source, (step,)))
        return places

    def _add_function(self, node: graph.FunctionStep) -> list[Place]:
        return self._run_everywhere(node, steps.make_function(node))

    def _add_to_stream(self, node: graph.ToStream) -> list[Place]:
        return self._run_everywhere(node, steps.make_to_stream(node))

    def _run_everywhere(self, node: Node, made: Made) -> list[Place]:
        """Add a step without a store wherever its rows are."""
        return [self._builder.run(node, made, [place])[0] for place in self._places[id(node.inputs[0])]]

    def _pass_on(self, node: Node) -> list[Place]:
        """The rows stay where they are: a new key is a matter of the next step, and several inputs are just more
        places."""
        return [place for parent in node.inputs for place in self._places[id(parent)]]

    # Steps with a key

    def _add_repartition(self, node: graph.Repartition) -> list[Place]:
        topic = naming.repartition_of(self._app, node.name)
        places = self._places[id(node.inputs[0])]
        sent = self._builder.send(places, node, topic, partition_by=node.key, partitions=node.partitions)
        return [self._builder.begin(sent)]

    def _add_to_table(self, node: graph.ToTable) -> list[Place]:
        place = self._gather(node.inputs[0], node.name)
        made = steps.make_to_table(self._app, node, with_old=id(node) in self._need_old)
        outputs = self._builder.run(node, made, [place])
        self._tables[id(node)] = outputs[0], node.name
        return outputs

    def _add_aggregate(self, node: graph.Aggregate) -> list[Place]:
        source = node.inputs[0]
        places = self._places[id(source)]
        if source.is_table:
            table = source.inputs[0] if isinstance(source, graph.Rekey) else source
            is_newest_enough = isinstance(node.aggregation, tuple)
            places = [self._changes(table, f"{node.name}-source", is_newest_enough=is_newest_enough)]
        partial = steps.make_partial(node)
        is_gathered = self._is_gathered(source)
        if partial is not None:
            places = [self._builder.run(node, partial, [place])[0] for place in places]
        rows = None if partial is None else partial.rows
        if is_gathered:
            place = self._merge(places, source, rows)
        else:
            topic = naming.repartition_of(self._app, node.name)
            place = self._builder.begin(self._builder.send(places, source, topic, partition_by=source.key, rows=rows))
        outputs = self._builder.run(node, steps.make_aggregate(self._app, node), [place])
        if node.window is None:
            self._tables[id(node)] = outputs[0], node.name
        return outputs

    def _add_process(self, node: graph.Process) -> list[Place]:
        source = node.inputs[0]
        place = self._gather(source, node.name) if source.key else self._merge(self._places[id(source)], source)
        main, *further = self._builder.run(node, steps.make_process(self._app, node), [place])
        self._further_outputs[id(node)] = dict(zip(node.outputs, further, strict=True))
        return [main]

    def _add_output(self, node: graph.Output) -> list[Place]:
        return [self._further_outputs[id(node.inputs[0])][node.name]]

    # Joins

    def _add_stream_join(self, node: graph.StreamJoin) -> list[Place]:
        (left, _), (right, _) = self._bring_together(node)
        return self._builder.run(node, steps.make_stream_join(self._app, node), [left, right])

    def _add_stream_table_join(self, node: graph.StreamTableJoin) -> list[Place]:
        (stream, _), (table, store) = self._bring_together(node)
        return self._builder.run(node, steps.make_stream_table_join(node, store), [stream, table])

    def _add_table_join(self, node: graph.TableJoin) -> list[Place]:
        (left, left_store), (right, right_store) = self._bring_together(node)
        made = steps.make_table_join(
            node,
            left_store,
            right_store,
            with_old=id(node) in self._need_old,
            only_newest=self._needs.is_newest_enough(node),
        )
        return self._builder.run(node, made, [left, right])

    def _add_foreign_key_join(self, node: graph.ForeignKeyJoin) -> list[Place]:
        """Left changes go to the partition of their foreign key, answers come back: see `kernels/foreign_key.py`."""
        shape, (left, right) = JoinShape.of(node), node.inputs
        changes, left_store = self._table_with_old(left, f"{node.name}-left")
        is_right_moved = not self._is_gathered(right)
        right_name = f"{node.name}-right"
        rights, right_store = (self._move_table if is_right_moved else self._table)(right, right_name)
        asked, answered = self._builder.run(node, steps.make_subscribe(node), [changes])
        asking = self._exchange(
            [asked], node, "subscriptions", subscription_columns(shape), subscription_key(shape), [rights]
        )
        self._builder.unite([rights, asking], node.name)
        responses = self._builder.run(node, steps.make_respond(self._app, node, right_store), [asking, rights])
        received = self._exchange(responses, node, "responses", response_columns(shape), response_key(shape), [changes])
        self._builder.unite([changes, received], node.name)
        result = self._builder.run(node, steps.make_resolve(node, left_store), [changes, answered, received])
        made = steps.make_derived_table(self._app, node, node.name, with_old=id(node) in self._need_old)
        outputs = self._builder.run(node, made, result)
        self._tables[id(node)] = outputs[0], node.name
        return outputs

    def _exchange(
        self,
        places: Sequence[Place],
        node: graph.ForeignKeyJoin,
        what: str,
        columns: pa.Schema,
        key: Sequence[str],
        like: Sequence[Place],
    ) -> Place:
        """Send rows with these columns by this key to as many partitions as the places `like` are in."""
        rows = Node(node.label, (), columns, tuple(key))
        topic = naming.repartition_of(self._app, f"{node.name}-{what}")
        sent = self._builder.send(places, rows, topic, partition_by=rows.key, like=topics_of(like))
        return self._builder.begin(sent)

    def _table_with_old(self, node: Node, name: str) -> tuple[Place, str]:
        """Changes of a table by its key, with old values, and the store that has it."""
        if not self._is_gathered(node):
            made = steps.make_derived_table(self._app, node, name, with_old=True)
            return self._builder.run(node, made, [self._move(node, name)])[0], name
        place, store = self._table(node, name)
        if isinstance(node, graph.Source):
            (place,) = self._builder.run(node, steps.make_source_table(node, store), [place])
        return place, store

    def _bring_together(self, node: Join) -> list[tuple[Place, str]]:
        """The places of both sides, by their keys and in one subtopology, with the stores of those that are tables."""
        is_moved = [not self._is_gathered(side) for side in node.inputs]
        counts = [self._builder.count_of(self._places[id(side)][0]) for side in node.inputs]
        if not any(is_moved) and counts[0] != counts[1]:
            is_moved[_choose_moved(node, counts)] = True
        models = [side for side, moved in zip(node.inputs, is_moved, strict=True) if not moved] or node.inputs
        like = topics_of([place for side in models for place in self._places[id(side)]])
        sides = []
        for side, moved, which in zip(node.inputs, is_moved, ("left", "right"), strict=True):
            name = f"{node.name}-{which}"
            if side.is_table:
                sides.append(self._move_table(side, name, like) if moved else self._table(side, name))
            else:
                sides.append((self._move(side, name, like) if moved else self._gather(side, name), ""))
        self._builder.unite([place for place, _ in sides], node.name)
        return sides

    # What they are made of

    def _is_gathered(self, node: Node) -> bool:
        """Whether the rows of a key are in its partition already, and no Column steps keep its places apart."""
        return self._partitioning.is_by_key(node) and self._builder.can_unite(self._places[id(node)])

    def _gather(self, node: Node, name: str) -> Place:
        """The place with the rows of the node by their key. They go through a topic only if they must."""
        if not self._is_gathered(node):
            return self._move(node, name)
        return self._merge(self._places[id(node)], node)

    def _merge(self, places: Sequence[Place], node: Node, rows: RowForm | None = None) -> Place:
        """One place in one subtopology with the rows of all these: those of `node`, unless `rows` says otherwise."""
        if len(places) == 1:
            return places[0]
        self._builder.unite(places, node.label)
        return self._builder.run(node, steps.make_merge(node.columns if rows is None else rows.columns), places)[0]

    def _move(self, node: Node, name: str, like: tuple[str, ...] = ()) -> Place:
        """Bring rows to the partitions of their keys, as many as the topics `like` have."""
        topic = naming.repartition_of(self._app, name)
        places = self._places[id(node)]
        return self._builder.begin(self._builder.send(places, node, topic, partition_by=node.key, like=like))

    def _move_table(self, node: Node, name: str, like: tuple[str, ...] = ()) -> tuple[Place, str]:
        place = self._move(node, name, like)
        return self._builder.run(node, steps.make_derived_table(self._app, node, name), [place])[0], name

    def _table(self, node: Node, name: str) -> tuple[Place, str]:
        """The changes of a table, and the store that has it by canonical keys. A store that must be made gets this
        name, and so does a source table that the user has not named."""
        if id(node) in self._tables:
            return self._tables[id(node)]
        (place,) = self._places[id(node)]
        if isinstance(node, graph.Source):
            store = node.name or name
            self._builder.keep(node, steps.make_source_store(node, store), place)
        else:
            store, with_old = name, id(node) in self._need_old
            only_newest = with_old and self._needs.is_newest_of_store_enough(node)
            rows = self._needs.narrow(node) if isinstance(node, graph.ColumnStep) else node
            made = steps.make_derived_table(self._app, rows, store, with_old=with_old, only_newest=only_newest)
            (place,) = self._builder.run(node, made, [place])
        self._tables[id(node)] = place, store
        return place, store

    def _changes(self, node: Node, name: str, *, is_newest_enough: bool) -> Place:
        """The changes of a table with its old values, or the newest ones of each key and batch."""
        if isinstance(node, graph.Aggregate | graph.ToTable | graph.TableJoin | graph.ForeignKeyJoin):
            (place,) = self._places[id(node)]
            return place
        place, store = self._table(node, name)
        if isinstance(node, graph.Source):
            made = steps.make_source_table(node, store, only_newest=is_newest_enough)
            (place,) = self._builder.run(node, made, [place])
        return place


def _choose_moved(node: Join, counts: Sequence[int | None]) -> int:
    """Of two sides with different numbers of partitions: the stream, or else the one with fewer."""
    if isinstance(node, graph.StreamTableJoin):
        return 0
    return 0 if (counts[0] or 0) < (counts[1] or 0) else 1


def _find_tables_with_old(nodes: Sequence[Node]) -> set[int]:
    """The tables, by id, whose old values must be known: their changes are grouped anew, or by a foreign key."""
    grouped = [node.inputs[0] for node in nodes if isinstance(node, graph.Aggregate) and node.inputs[0].is_table]
    by_foreign_key = [node.inputs[0] for node in nodes if isinstance(node, graph.ForeignKeyJoin)]
    return {id(each.inputs[0]) if isinstance(each, graph.Rekey) else id(each) for each in (*grouped, *by_foreign_key)}
