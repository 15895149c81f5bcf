"""Subtopologies while the planner makes them: they can still be joined or cut, so nothing has a number yet."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pyarrow as pa

from ottla.streams.errors import TopologyError
from ottla.streams.graph import ColumnStep
from ottla.streams.kernels.kernel import Kernel
from ottla.streams.planning.plan import RECORDS, SinkPlan, SourcePlan, StepPlan, StorePlan, SubtopologyPlan
from ottla.streams.rows import stream_schema, table_schema


@dataclass(eq=False)
class Place:
    """Where rows are: the output of a source or a step of a draft."""

    draft: "Draft"
    origin: tuple[SourcePlan, tuple[ColumnStep, ...]] | None = None
    """The source and the Column steps after it, if no other step came between."""

    @property
    def unit(self) -> "Draft":
        """The draft that the rows are in by now."""
        return self.draft.whole()


@dataclass(eq=False)
class DraftStep:
    sequence: int
    label: str
    kernel: Kernel
    inputs: list[Place]
    outputs: list[Place]
    late_topic: str | None = None
    late_columns: tuple[str, ...] | None = None
    key: tuple[str, ...] = ()
    needs_time: bool = False
    """The step closes windows, so it must hear the stream times of all sources."""


@dataclass(eq=False)
class DraftSink:
    input: Place
    plan: Callable[[int], SinkPlan]
    """Makes the sink's plan of its input's number."""
    topic: str | None


@dataclass(eq=False)
class Draft:
    """A subtopology that is being made: the sources with the places of their rows, and what happens to them."""

    sources: list[tuple[SourcePlan, Place]] = field(default_factory=list)
    columns: tuple[ColumnStep, ...] = ()
    steps: list[DraftStep] = field(default_factory=list)
    sinks: list[DraftSink] = field(default_factory=list)
    stores: dict[str, StorePlan] = field(default_factory=dict)
    joined_to: "Draft | None" = None

    def whole(self) -> "Draft":
        draft = self
        while draft.joined_to is not None:
            draft = draft.joined_to
        return draft

    @property
    def is_empty(self) -> bool:
        """Nothing is left of the draft, or nothing was ever made of its rows."""
        return self.joined_to is not None or not (self.steps or self.sinks or self.stores)

    @property
    def topics(self) -> tuple[str, ...]:
        return tuple(source.topic for source, _ in self.sources)

    @property
    def needs_time(self) -> bool:
        return any(step.needs_time for step in self.steps)

    def join(self, other: "Draft") -> None:
        """Take over everything of another draft. Neither may have Column steps."""
        assert not self.columns and not other.columns
        mine = {source.topic: source for source, _ in self.sources}
        for source, place in other.sources:
            if source.topic in mine:
                raise TopologyError(
                    f"topic {source.topic!r} is read twice by steps that need each other: make one stream or table of"
                    " it and use that twice"
                )
            self.sources.append((source, place))
        self.steps += other.steps
        self.sinks += other.sinks
        self.stores |= other.stores
        other.joined_to = self

    def _is_newest_enough(self) -> bool:
        """Whether all readers of the only source's rows take the newest one of each key, and Spark comes before. Rows
        of a topic of ours come from several source partitions, and each of them may tell a time: they all matter."""
        if not self.columns:
            return False
        ((source, place),) = self.sources
        readers = [step for step in self.steps if place in step.inputs]
        is_sent = any(sink.input is place for sink in self.sinks)
        are_collectors = all(getattr(step.kernel, "only_newest", False) for step in readers)
        is_one_partition = source.holds == RECORDS
        return source.is_table and is_one_partition and bool(readers) and are_collectors and not is_sent

    def finish(self, name: str, group: str, told: set[str]) -> SubtopologyPlan:
        """The plan, with numbers. `told` has the repartition topics whose readers must hear of times."""
        numbers: dict[int, int] = {}
        for _, place in self.sources:
            numbers[id(place)] = len(numbers)
        steps = []
        for step in sorted(self.steps, key=lambda each: each.sequence):
            inputs = tuple(numbers[id(place)] for place in step.inputs)
            for place in step.outputs:
                numbers[id(place)] = len(numbers)
            late = step.late_topic, step.late_columns, step.key
            steps.append(StepPlan(step.label, step.kernel, inputs, len(step.outputs), *late))
        sinks = [replace(sink.plan(numbers[id(sink.input)]), tells_times=sink.topic in told) for sink in self.sinks]
        return SubtopologyPlan(
            name=name,
            sources=tuple(source for source, _ in self.sources),
            column_steps=tuple(step.apply for step in self.columns),
            column_labels=tuple(step.label for step in self.columns),
            columns_after=_columns_after(self.columns),
            steps=tuple(steps),
            sinks=tuple(sinks),
            stores=tuple(self.stores.values()),
            group=group,
            closes_windows=self.needs_time,
            only_newest=self._is_newest_enough(),
        )


def _columns_after(columns: tuple[ColumnStep, ...]) -> pa.Schema | None:
    if not columns:
        return None
    last = columns[-1]
    return table_schema(last.columns, last.key) if last.is_table else stream_schema(last.columns)
