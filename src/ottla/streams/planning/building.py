"""Puts subtopologies together: sources, steps, exchanges through topics, and subtopologies that become one."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import count

from ottla.streams.errors import TopologyError
from ottla.streams.graph import ColumnStep, Node
from ottla.streams.planning import naming
from ottla.streams.planning.drafts import Draft, DraftSink, DraftStep, Place
from ottla.streams.planning.plan import PARCELS, AppPlan, InternalTopic, SinkPlan, SourcePlan, StorePlan
from ottla.streams.planning.steps import Made, RowForm


class Builder:
    """The subtopologies and internal topics of an app while it is planned."""

    def __init__(self, app: str, partition_counts: Mapping[str, int] | None) -> None:
        self.app = app
        self._counts = partition_counts
        self._drafts: list[Draft] = []
        self._fronts: dict[tuple[SourcePlan, tuple[ColumnStep, ...]], Place] = {}
        self._topics: dict[str, InternalTopic] = {}
        self._sequence = count()

    def begin(self, source: SourcePlan, columns: tuple[ColumnStep, ...] = ()) -> Place:
        """The place of a source's rows after these Column steps. Equal ones share a subtopology."""
        found = self._fronts.get((source, columns))
        if found is None:
            draft = Draft(columns=columns)
            found = self._fronts[source, columns] = Place(draft, (source, columns))
            draft.sources.append((source, found))
            self._drafts.append(draft)
        return found

    def run(self, node: Node, made: Made, inputs: Sequence[Place]) -> list[Place]:
        """Add a step to the subtopology that has all of its inputs. Returns the places of its outputs."""
        unit = inputs[0].unit
        outputs = [Place(unit) for _ in range(made.outputs)]
        unit.steps.append(
            DraftStep(
                next(self._sequence),
                node.label,
                made.kernel,
                list(inputs),
                outputs,
                made.late_topic,
                made.late_columns,
                made.key,
                made.needs_time,
            )
        )
        for store in made.stores:
            self.keep(node, store, inputs[0])
        return outputs

    def keep(self, node: Node, store: StorePlan, place: Place) -> None:
        """Add a store to the subtopology of a place."""
        name = store.spec.name
        if any(name in draft.stores for draft in self._drafts if draft.joined_to is None):
            raise TopologyError(f"{node.label}: the name {name!r} is taken by another store")
        place.unit.stores[name] = store

    def send(
        self,
        places: Sequence[Place],
        node: Node,
        topic: str,
        *,
        partition_by: tuple[str, ...] | None,
        partitions: int | None = None,
        like: tuple[str, ...] = (),
        rows: RowForm | None = None,
    ) -> SourcePlan:
        """Write the rows of all these places to a topic of our own, and return it as a source.

        The rows are those of `node`, unless `rows` says otherwise. `partition_by` are the columns that choose the
        partition; None keeps rows where they are. The topic has `partitions`, or as many as the topics `like`, or as
        many as the topics that the rows come from.
        """
        if topic in self._topics:
            raise TopologyError(f"{node.label}: the name of its topic {topic!r} is taken by another step")
        form = RowForm(node.columns, node.is_table) if rows is None else rows

        def plan(number: int) -> SinkPlan:
            return SinkPlan(
                number,
                form.columns,
                node.key,
                topic,
                is_table=form.is_table,
                holds=PARCELS,
                label=topic,
                has_old=form.has_old,
                partition_by=partition_by,
            )

        for place in places:
            place.unit.sinks.append(DraftSink(place, plan, topic))
        self._topics[topic] = InternalTopic(topic, like or topics_of(places), partitions, is_purged=True)
        return SourcePlan(topic, form.columns, node.key, form.is_table, PARCELS, label=topic, has_old=form.has_old)

    def name_rows_topic(self, name: str) -> str:
        return naming.rows_of(self.app, name, self._topics)

    def can_unite(self, places: Sequence[Place]) -> bool:
        """Whether the places can be in one subtopology without any topic between."""
        units = units_of(places)
        if len(units) == 1:
            return True
        return not any(unit.columns for unit in units) and len({self.count_of(place) for place in places}) == 1

    def unite(self, places: Sequence[Place], name: str) -> None:
        """Make one subtopology of those that the places are in. Column steps get one of their own."""
        units = units_of(places)
        if len(units) < 2:
            return
        for unit in units:
            if unit.columns:
                self._detach_columns(unit, name)
        for unit in units[1:]:
            units[0].join(unit)

    def _detach_columns(self, unit: Draft, name: str) -> None:
        """Give the Column steps of a subtopology one of their own: from now on it reads what they write."""
        ((source, place),) = unit.sources
        front = Draft(columns=unit.columns)
        root = Place(front)
        front.sources.append((source, root))
        self._drafts.insert(self._drafts.index(unit), front)
        sent = self.send([root], unit.columns[-1], self.name_rows_topic(name), partition_by=None)
        unit.sources, unit.columns = [(sent, place)], ()

    def count_of(self, place: Place) -> int | None:
        """How many partitions the place's rows are in; None if that is not known yet."""
        if self._counts is None:
            return None
        return max(self._count(topic) for topic in place.unit.topics)

    def _count(self, topic: str) -> int:
        assert self._counts is not None
        own = self._topics.get(topic)
        if own is None:
            return self._counts[topic]
        return own.partitions or max(self._count(each) for each in own.partitions_like)

    def finish(self) -> AppPlan:
        drafts = [draft for draft in self._drafts if not draft.is_empty]
        told = _find_topics_that_tell_times(drafts)
        taken: set[str] = set()
        subtopologies = []
        for draft, name in zip(drafts, naming.name_drafts(self.app, drafts), strict=True):
            group = self.app if taken.isdisjoint(draft.topics) else f"{self.app}-{name}"
            taken.update(draft.topics)
            subtopologies.append(draft.finish(name, group, told))
            for store in draft.stores.values():
                if not store.spec.is_source:
                    self._topics[store.changelog] = InternalTopic(store.changelog, draft.topics, is_compacted=True)
        topics = tuple(self._fix_partitions(topic) for topic in self._topics.values())
        return AppPlan(self.app, tuple(subtopologies), topics)

    def _fix_partitions(self, topic: InternalTopic) -> InternalTopic:
        if self._counts is None:
            return topic
        return replace(topic, partitions=self._count(topic.name))


def units_of(places: Sequence[Place]) -> list[Draft]:
    """The subtopologies that the places are in, each once."""
    return list({id(place.unit): place.unit for place in places}.values())


def topics_of(places: Sequence[Place]) -> tuple[str, ...]:
    """The topics that the subtopologies of these places read."""
    return tuple(dict.fromkeys(topic for place in places for topic in place.unit.topics))


def _find_topics_that_tell_times(drafts: Sequence[Draft]) -> set[str]:
    """The topics of ours whose readers, or the readers of what those write, close windows."""
    told: set[str] = set()
    while True:
        listening = [draft for draft in drafts if draft.needs_time or any(sink.topic in told for sink in draft.sinks)]
        found = {source.topic for draft in listening for source, _ in draft.sources if source.holds == PARCELS}
        if found <= told:
            return told
        told |= found
