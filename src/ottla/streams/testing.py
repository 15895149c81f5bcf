"""The test driver: an app's topology with topics and state in memory, without a broker and without Spark jobs.

Planner, tasks and kernels are those of a running app. Topics have several partitions. With `split=seed` the driver cuts
the input into random batches, processes tasks in random order, and gives up some batches before they are committed, as
a failing machine would: final tables must be the same for every seed.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from ottla.streams import formats
from ottla.streams.computed_columns import ComputedColumns, Unread
from ottla.streams.errors import StreamsError
from ottla.streams.formats import RecordFormat
from ottla.streams.graph import Node
from ottla.streams.kernels.kernel import FailedRows, KernelContext
from ottla.streams.kernels.versions import table_codec
from ottla.streams.memory_topics import MemoryTopic, Record
from ottla.streams.options import AppOptions
from ottla.streams.planning.origins import find_origins
from ottla.streams.planning.plan import PARCELS, SinkPlan, SourcePlan, SubtopologyPlan
from ottla.streams.planning.planner import make_plan
from ottla.streams.rows import DELETED
from ottla.streams.running.bad_rows import refuse_bad_records, set_aside
from ottla.streams.state.keys import encode_keys
from ottla.streams.state.store import MemoryReader, Store
from ottla.streams.state.views import StoreView, Time
from ottla.streams.tasks.ordering import merge_order
from ottla.streams.tasks.placement import number_sources
from ottla.streams.tasks.reading import NO_TIME, SourceRows, read_rows
from ottla.streams.tasks.running import Outgoing, run_steps
from ottla.streams.tasks.times import find_source_times
from ottla.streams.tasks.writing import OUTGOING, Records, to_records
from ottla.streams.windows import Duration, parse_duration_ms

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ROWS_MAX = 1_000_000
_GIVEN_UP = 0.1
"""How many of the batches are given up before they are committed, with `split`."""


@dataclass
class _Position:
    """How far a task has read one of its sources."""

    offset: int = 0
    stream_time: int = NO_TIME


@dataclass
class _Task:
    plan: SubtopologyPlan
    partition: int
    positions: list[_Position]


class TestDriver:
    """Use it as `with app.test() as test`. What was fed is processed until nothing is left."""

    __test__ = False  # pytest would take it for a test

    def __init__(
        self,
        app: str,
        nodes: Sequence[Node],
        *,
        partitions: int | Mapping[str, int] = 3,
        split: int | None = None,
        spark: "Callable[[], SparkSession] | None" = None,
        options: AppOptions | None = None,
        start_ms: int = 0,
    ) -> None:
        """`partitions` is the number of partitions of every topic of the user, or of each by name. `spark` makes the
        session that computes Column steps. The options say what becomes of bad records, failing and late rows."""
        self._partitions = partitions
        self._random = None if split is None else Random(split)
        self._options = options or AppOptions(app)
        self._now_ms = start_ms
        sources = [each.topic for each in _sources_of(nodes)]
        self.plan = make_plan(app, nodes, {topic: self._count(topic) for topic in sources})
        self._topics = {topic: MemoryTopic(topic, self._count(topic)) for topic in sources}
        for internal in self.plan.internal_topics:
            assert internal.partitions is not None
            self._topics[internal.name] = MemoryTopic(internal.name, internal.partitions)
        self._numbers = number_sources(self.plan)
        self._origins = find_origins(self.plan)
        self._columns = {
            each.name: ComputedColumns(each, spark or _refuse_spark, self._options.on_error)
            for each in self.plan.subtopologies
            if each.column_steps
        }
        self._heard_ms: dict[int, int] = {}
        self._read: dict[str, int] = {}
        self._state: dict[tuple[str, int], MemoryReader] = {}
        self._tasks = [task for plan in self.plan.subtopologies for task in self._make_tasks(plan)]
        self.bad: list[dict[str, Any]] = []
        """Records that could not be decoded, if the app is not set to fail."""
        self.late: list[tuple[str, pa.Table]] = []
        """Late rows with the label of their step."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        pass

    # What a test does

    def feed(
        self, topic: str, rows: Iterable[Mapping[str, Any]], *, partition: int | None = None, timestamp: Any = None
    ) -> None:
        """Write rows, dictionaries with the columns of the source, to its topic. A row without any column of the value
        is a record without a value. `_timestamp` (milliseconds) and `_headers` (pairs) of a row are those of its
        record; the default is `timestamp`, and that of it the driver's clock."""
        source = self._source(topic)
        found = list(rows)
        values = [each.name for each in source.columns if each.name not in source.key]
        times = [int(row.get("_timestamp", self._now_ms if timestamp is None else timestamp)) for row in found]
        is_null = [not any(name in row for name in values) for row in found]
        table = pa.Table.from_pylist(
            [{name: row.get(name) for name in source.columns.names} for row in found], schema=source.columns
        )
        self._append(
            topic,
            to_records(
                _encode(source.key_format, table, source.key),
                _encode(source.value_format, table, values, is_null),
                pa.array([_to_structs(row.get("_headers")) for row in found], OUTGOING.field("headers").type),
                pa.array(times, pa.int64()),
                pa.array([partition] * len(found), pa.int32()),
            ),
        )

    def feed_records(
        self, topic: str, records: Iterable[tuple[bytes | None, bytes | None]], *, timestamp: int | None = None
    ) -> None:
        """Write records with these keys and values as they are."""
        pairs = list(records)
        times = [self._now_ms if timestamp is None else timestamp] * len(pairs)
        keys, values = (pa.array([pair[part] for pair in pairs], pa.binary()) for part in (0, 1))
        nothing = pa.nulls(len(pairs))
        self._append(topic, to_records(keys, values, nothing, pa.array(times, pa.int64()), nothing))

    def advance(self, duration: Duration) -> None:
        """Let time pass, for topics that have nothing to read."""
        self._run()
        self._now_ms += parse_duration_ms(duration, "advance")
        for task in self._in_any_order(self._tasks):
            # A source counts as idle for a task only if nothing is on its way, so what others wrote comes first.
            while not self._process(task, [position.offset for position in task.positions]):
                pass
            self._run()

    def read(self, topic: str) -> list[dict[str, Any]]:
        """What was written to a topic since it was read last: key, value, timestamp (milliseconds) and headers."""
        self._run()
        if topic not in self._topics:
            return []
        found = self._topics[topic]
        records = found.records_from(self._read.get(topic, 0))
        self._read[topic] = found.end
        return self._decode(topic, records)

    def table(self, topic: str) -> dict[Any, Any]:
        """The newest value of each key in a topic; a key of several columns is a tuple."""
        self._run()
        newest: dict[Any, Any] = {}
        for record in self._decode(topic, self._topics[topic].records_from(0) if topic in self._topics else []):
            key = tuple(record["key"].values()) if isinstance(record["key"], dict) else record["key"]
            newest.pop(key, None)
            if record["value"] is not None:
                newest[key] = record["value"]
        return newest

    def query(self, store: str) -> "TestQuery":
        """What a store has by now."""
        self._run()
        plan = self.plan.stores.get(store)
        if plan is None:
            raise StreamsError(f"there is no store {store!r}; there are {', '.join(self.plan.stores)}")
        count = sum(name == store for name, _ in self._state)
        return TestQuery(StoreView(plan, count, lambda partition: self._state[store, partition]))

    def topic(self, name: str) -> MemoryTopic:
        """A topic with all of its records, partition by partition."""
        self._run()
        return self._topics[name]

    # How batches are made

    def _append(self, topic: str, records: pa.Table) -> None:
        if topic not in self._topics:
            self._topics[topic] = MemoryTopic(topic, self._count(topic))
        self._topics[topic].append(records)
        if self._random is None:
            self._run()

    def _run(self) -> None:
        """Process until nothing is left."""
        while ready := [task for task in self._tasks if self._unread(task)]:
            for task in self._in_any_order(ready):
                self._process(task, self._choose_ends(task))

    def _process(self, task: _Task, ends: Sequence[int]) -> bool:
        """Whether the batch was committed; with `split`, some are given up."""
        found = self._fetch(task, ends)
        refuse_bad_records(self._options, [rows.bad for rows, _ in found])
        outgoing = self._compute(task, ends, [rows for rows, _ in found])
        if self._random is not None and self._random.random() < _GIVEN_UP:
            return False
        self._commit(task, ends, found, outgoing)
        return True

    def _fetch(self, task: _Task, ends: Sequence[int]) -> list[tuple[SourceRows, pa.Table]]:
        found = []
        for source, position, end in zip(task.plan.sources, task.positions, ends, strict=True):
            topic = self._topics[source.topic]
            has_partition = task.partition < len(topic.partitions)
            records = topic.fetch(task.partition if has_partition else 0, position.offset, end)
            number = self._numbers.get(source.topic, 0) + task.partition
            found.append((read_rows(source, records, stream_time=position.stream_time, number=number), records))
        return found

    def _compute(self, task: _Task, ends: Sequence[int], sources: Sequence[SourceRows]) -> Outgoing:
        inputs, failed = merge_order([each.rows for each in sources]), list[FailedRows]()
        if task.plan.column_steps:
            (position,) = task.positions
            columns = self._columns[task.plan.name]
            rows, failed = columns.take(task.partition, position.offset, ends[0], lambda: self._find_unread(task.plan))
            inputs = [rows]
        stores = {store.spec.name: Store(self._state[store.spec.name, task.partition]) for store in task.plan.stores}
        filled = [
            (name, number)
            for name in self._numbers
            for number, records in enumerate(self._topics[name].partitions)
            if records
        ]
        times = find_source_times(sources, self._origins[task.plan.name], task.partition, filled, self._numbers)
        idle = {number: self._now_ms - heard for number, heard in self._heard_ms.items()}
        context = KernelContext(task.partition, self._now_ms, stores, times, {} if self._has_work() else idle)
        context.on_error = self._options.on_error
        context.failed.extend(failed)
        counts = {name: len(each.partitions) for name, each in self._topics.items()}
        outgoing = run_steps(task.plan, inputs, context, counts)
        outgoing.records.extend(self._write_dead_letters(task.plan, sources, context))
        return outgoing

    def _write_dead_letters(
        self, plan: SubtopologyPlan, sources: Sequence[SourceRows], context: KernelContext
    ) -> Iterator[Records]:
        for letters in set_aside(plan, self._options, [each.bad for each in sources], context).letters:
            nothing = pa.nulls(letters.num_rows)
            times = pa.repeat(pa.scalar(self._now_ms, pa.int64()), letters.num_rows)
            keys, values, headers = letters.columns
            yield self._options.dead_letters, to_records(keys, values, headers, times, nothing)

    def _find_unread(self, plan: SubtopologyPlan) -> dict[int, Unread]:
        """What all tasks of a subtopology with one source have left to read."""
        (source,) = plan.sources
        topic, found = self._topics[source.topic], {}
        for task in self._tasks:
            if task.plan is plan:
                (position,) = task.positions
                records = topic.fetch(task.partition, position.offset, len(topic.partitions[task.partition]))
                number = self._numbers.get(source.topic, 0) + task.partition
                found[task.partition] = Unread(position.offset, records, position.stream_time, number)
        return found

    def _commit(
        self, task: _Task, ends: Sequence[int], found: Sequence[tuple[SourceRows, pa.Table]], outgoing: Outgoing
    ) -> None:
        for source, position, end, (rows, records) in zip(task.plan.sources, task.positions, ends, found, strict=True):
            position.offset, position.stream_time = end, rows.stream_time
            self.bad += rows.bad.to_pylist()
            if records.num_rows and source.holds != PARCELS:
                self._heard_ms[self._numbers[source.topic] + task.partition] = self._now_ms
            for store in task.plan.stores:
                if store.spec.is_source and store.changelog == source.topic:
                    self._state[store.spec.name, task.partition].apply(_table_changes(source, rows.rows))
        for name, changed in outgoing.changes.items():
            self._state[name, task.partition].apply(changed)
        for topic, written in outgoing.records:
            if topic not in self._topics:
                self._topics[topic] = MemoryTopic(topic, self._count(topic))
            self._topics[topic].append(written)
        self.late += outgoing.late

    # Tasks

    def _make_tasks(self, plan: SubtopologyPlan) -> Iterator[_Task]:
        for partition in range(max(len(self._topics[source.topic].partitions) for source in plan.sources)):
            for store in plan.stores:
                self._state[store.spec.name, partition] = MemoryReader()
            yield _Task(plan, partition, [_Position() for _ in plan.sources])

    def _unread(self, task: _Task) -> list[int]:
        """How many records of each source are left to read; nothing if there are none."""
        counts = []
        for source, position in zip(task.plan.sources, task.positions, strict=True):
            partitions = self._topics[source.topic].partitions
            end = len(partitions[task.partition]) if task.partition < len(partitions) else 0
            counts.append(max(end - position.offset, 0))
        return counts if any(counts) else []

    def _has_work(self) -> bool:
        return any(self._unread(task) for task in self._tasks)

    def _choose_ends(self, task: _Task) -> list[int]:
        """Up to where a batch reads: everything, or at random."""
        unread = self._unread(task)
        if self._random is not None:
            unread = [self._random.randint(0, count) for count in unread]
        return [position.offset + count for position, count in zip(task.positions, unread, strict=True)]

    def _in_any_order(self, tasks: Sequence[_Task]) -> list[_Task]:
        return list(tasks) if self._random is None else self._random.sample(tasks, len(tasks))

    def _count(self, topic: str) -> int:
        if isinstance(self._partitions, int):
            return self._partitions
        return self._partitions.get(topic, 1) if topic == self._options.dead_letters else self._partitions[topic]

    # Formats

    def _source(self, topic: str) -> SourcePlan:
        for plan in self.plan.subtopologies:
            for source in plan.sources:
                if source.topic == topic and source.holds != PARCELS:
                    return source
        known = sorted({source.topic for plan in self.plan.subtopologies for source in plan.sources})
        raise StreamsError(f"the app does not read the topic {topic!r}; it reads {', '.join(known)}")

    def _decode(self, topic: str, records: Sequence[Record]) -> list[dict[str, Any]]:
        key_format, value_format = self._formats_of(topic)
        keys = _decode(key_format, [each.key for each in records])
        values = _decode(value_format, [each.value for each in records])
        return [
            {"key": key, "value": value, "timestamp": each.timestamp_ms, "headers": each.headers}
            for key, value, each in zip(keys, values, records, strict=True)
        ]

    def _formats_of(self, topic: str) -> tuple[RecordFormat, RecordFormat]:
        """Those of the sink that writes the topic, or else of the source that reads it, or bytes."""
        binary = RecordFormat("binary", type=pa.binary())
        if topic == self._options.dead_letters:
            return binary, binary
        ends: list[SinkPlan | SourcePlan] = [
            *(sink for plan in self.plan.subtopologies for sink in plan.sinks if sink.topic in (topic, None)),
            *(source for plan in self.plan.subtopologies for source in plan.sources if source.topic == topic),
        ]
        own = [each for each in ends if each.topic == topic] or ends
        return (own[0].key_format, own[0].value_format) if own and own[0].holds != PARCELS else (binary, binary)


class TestQuery:
    """What a store has, as `app.query(name)` of a running app answers: rows with the columns of key and value."""

    __test__ = False  # pytest would take it for a test

    def __init__(self, view: StoreView) -> None:
        self._view = view

    def get(self, *key: Any, window: Time | None = None) -> dict[str, Any] | None:
        """The row of a key, given by the values of its columns; of a store with windows, that of the window which
        begins at the given time."""
        return self._view.get(key, window)

    def window(self, *key: Any, start: Time | None = None, end: Time | None = None) -> list[dict[str, Any]]:
        """The windows of a key that begin between two times, both included."""
        return self._view.windows(key, start, end)

    def range(self, start: Any = None, end: Any = None) -> list[dict[str, Any]]:
        """Rows with keys from `start` to `end`, both included, in the order of keys."""
        first, last = (None if each is None else (each,) for each in (start, end))
        return self._view.range(first, last, _ROWS_MAX).rows

    def all(self, *, start: Time | None = None, end: Time | None = None) -> list[dict[str, Any]]:
        """All rows; of a store with windows, those that begin between two times."""
        return self._view.all(start, end, limit=_ROWS_MAX).rows


def _refuse_spark() -> "SparkSession":
    raise StreamsError("this topology has Column steps, which need Spark: use app.test()")


def _sources_of(nodes: Sequence[Node]) -> list[Any]:
    from ottla.streams.graph import Source, walk

    return [node for node in walk(nodes) if isinstance(node, Source)]


def _table_changes(source: SourcePlan, rows: pa.Table) -> dict[bytes, bytes | None]:
    """What the rows of a table's topic do to its store."""
    keys, values = encode_keys(rows, source.key), table_codec(source.columns, source.key).encode(rows)
    changes = zip(keys, values, rows[DELETED].to_pylist(), strict=True)
    return {key: None if is_deleted else value for key, value, is_deleted in changes if key is not None}


def _encode(
    form: RecordFormat, rows: pa.Table, names: Sequence[str], is_null: Sequence[bool] | None = None
) -> pa.Array:
    if is_null is None:
        is_null = [all(row[name] is None for name in names) for row in rows.select(names).to_pylist()]
    encoded = formats.encode_columns(form, rows, names).to_pylist()
    return pa.array([None if null else each for each, null in zip(encoded, is_null, strict=True)], pa.binary())


def _decode(form: RecordFormat, values: Sequence[bytes | None]) -> list[Any]:
    column, bad = formats.decode_column(form, pa.array(values, pa.binary()))
    if bad:
        raise StreamsError(f"a record that was written cannot be read: {next(iter(bad.values()))}")
    return list(column.to_pylist())


def _to_structs(headers: Iterable[tuple[str, bytes | None]] | None) -> list[dict[str, Any]] | None:
    return None if headers is None else [{"key": name, "value": value} for name, value in headers]
