"""What runs in Spark's Python workers: one batch of one task, from its offsets to its committed transaction.

A subtopology without Column steps is one function: `run_task`, or `run_arrow_task` if others of the app have such
steps. With Column steps, Spark computes them between `read_source` and `process_rows`, which run in two Python workers
of the same Spark task. What the first one has found out besides rows reaches the second one through a file
(`handover.py`).

A task never raises: it reports its failure, so that the other tasks of the job come to their end. Only the attempt of a
task that Spark itself repeats raises, because two attempts would write with the same producer id.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ottla.client.client import READ_COMMITTED, Client
from ottla.client.fetching import fetch
from ottla.pipeline.decoding import COLUMNS, arrow_schema, decode_up_to
from ottla.spark.jobs import get_task_context, take_order, to_json, to_report
from ottla.streams.kernels.versions import keep_newest
from ottla.streams.options import FAIL, AppOptions
from ottla.streams.planning.plan import PARCELS, SourcePlan, SubtopologyPlan
from ottla.streams.rows import OFFSET, ORDER, TIMESTAMP
from ottla.streams.running.explaining import explain_failure
from ottla.streams.running.handover import Handover, make_handover_path, receive_handover, send_handover
from ottla.streams.running.sifting import ROW_COUNT, put_aside, sift_rows
from ottla.streams.running.transactions import BatchInput, commit_batch, write_batch
from ottla.streams.running.work import Order, Position, Report, SourceRange, report_fields, to_order
from ottla.streams.state.keys import encode_keys
from ottla.streams.tasks.ordering import Places, hold_back, merge_order
from ottla.streams.tasks.reading import SourceRows, read_rows, schema_of

_RECORD_COLUMNS = (*COLUMNS, "headers")
_RECORDS = arrow_schema(_RECORD_COLUMNS)
BYTES_MAX: Final = 64 * 1024 * 1024
"""A batch reads no further from a topic once it has read so much: parcels have many rows in one record."""


@dataclass(frozen=True)
class TaskPlan:
    """What the tasks of a subtopology need. It is sent to Spark's Python workers with the function that runs."""

    subtopology: SubtopologyPlan
    """Without its Column steps, which only the driver can use."""
    options: AppOptions
    client: Client
    source_numbers: Mapping[str, int]
    """The number of partition 0 of each source topic, for the column SOURCE."""
    partition_counts: Mapping[str, int]
    state_token: str


def run_task(plan: TaskPlan, rows: Iterable[Any]) -> Iterator[str]:
    """The whole of a batch, as a task of an RDD without rows."""
    for _ in rows:
        pass
    order = _take_order()
    if order is not None:
        yield to_json(report_fields(_run(plan, order)))


def run_arrow_task(plan: TaskPlan, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The whole of a batch. The input is a row of `spark.range`, which only says how many tasks there are."""
    for _ in batches:
        pass
    order = _take_order()
    if order is not None:
        yield _to_row(_run(plan, order))


def read_source(
    plan: TaskPlan, unread: Sequence[str], passed: Sequence[str], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The rows of the subtopology's only source, for Spark to compute columns of. The columns `unread` do not go to
    Spark, and the columns `passed` do not come back from there."""
    for _ in batches:
        pass
    order = _take_order()
    if order is None:
        return
    place = _place_of_handover(plan)
    try:
        found, positions = _read_sources(plan, order)
        (read,) = found
        whole = _drop_superseded(plan, read.rows)
        rows, failed = sift_rows(whole, order.sifting)
    except Exception as error:
        plan.client.close()
        send_handover(place, Handover(failure=explain_failure(error)))
        return
    kept = whole.select([ORDER, *passed])
    send_handover(place, Handover(positions, read.bad, read.source_times, kept, failed, read.rows.num_rows))
    yield from rows.drop_columns([*unread]).to_batches()


def process_rows(plan: TaskPlan, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rest of the batch, with the rows that Spark has made of the source's, or with the first of them only if the
    job is failing: the transaction stays open."""
    rows = list(batches)
    order = _take_order()
    if order is not None:
        yield _to_row(_process(plan, order, rows))


def _run(plan: TaskPlan, order: Order) -> Report:
    try:
        found, positions = _read_sources(plan, order)
        inputs = merge_order([each.rows for each in found])
        times = {number: time for each in found for number, time in each.source_times.items()}
        count = sum(each.rows.num_rows for each in found)
        batch = BatchInput(inputs, [each.bad for each in found], times, positions, count)
        return commit_batch(plan, order, batch)
    except Exception as error:
        return _give_up(plan, order, error)


def _process(plan: TaskPlan, order: Order, batches: Sequence[pa.RecordBatch]) -> Report:
    try:
        read = receive_handover(_place_of_handover(plan))
        if read.failure is not None:
            return Report(order.partition, order.producer, failure=read.failure)
        if order.sifting is not None and order.sifting.is_trial:
            return Report(order.partition, order.producer, counts={ROW_COUNT: read.kept.num_rows})
        schema = plan.subtopology.columns_after
        assert schema is not None
        rows = add_columns(pa.Table.from_batches(batches), read.kept, schema) if batches else schema.empty_table()
        reasons = [] if order.sifting is None else [reason for _, reason in sorted(order.sifting.failed)]
        failed = put_aside(plan.subtopology, plan.options.on_error, read.failed, reasons)
        batch = BatchInput([rows], [read.bad], read.source_times, read.positions, read.row_count, failed)
        return write_batch(plan, order, batch)
    except Exception as error:
        return _give_up(plan, order, error)


def _drop_superseded(plan: TaskPlan, rows: pa.Table) -> pa.Table:
    """The rows without those that do not matter. If rows may fail and be left out, the one before matters again."""
    unit = plan.subtopology
    if not unit.only_newest or plan.options.on_error != FAIL:
        return rows
    return keep_newest(rows, encode_keys(rows, unit.sources[0].key))[0]


def add_columns(rows: pa.Table, kept: pa.Table, schema: pa.Schema) -> pa.Table:
    """The rows of `schema`: what Spark has made, with the columns that did not go through Spark. Each row has the place
    (ORDER) of the row it was made of; places increase, and those of bad records are missing."""
    places = np.searchsorted(kept[ORDER].to_numpy(), rows[ORDER].to_numpy())
    missing = [name for name in schema.names if name not in rows.column_names]
    added = kept.select(missing).take(pa.array(places))
    columns = [(rows if name in rows.column_names else added)[name] for name in schema.names]
    return pa.table(columns, schema.names).cast(schema)


def _give_up(plan: TaskPlan, order: Order, error: Exception) -> Report:
    plan.client.close()  # answers that nobody will read may be in flight
    return Report(order.partition, order.producer, failure=explain_failure(error))


def _read_sources(plan: TaskPlan, order: Order) -> tuple[list[SourceRows], list[Position]]:
    sources = plan.subtopology.sources

    def read(source: SourcePlan, records: pa.Table, stream_time: int) -> SourceRows:
        number = plan.source_numbers.get(source.topic, 0) + order.partition
        return read_rows(source, records, stream_time=stream_time, number=number, order=0)

    found, fetched = [], []
    for source, range_ in zip(sources, order.ranges, strict=True):
        records, following = _fetch_records(plan, source, order, range_)
        fetched.append((records, following))
        found.append(read(source, records, range_.stream_time))
    if len(sources) > 1:
        places = [_find_places(*each) for each in zip(sources, fetched, found, strict=True)]
        has_more = [end < range_.end for (_, end), range_ in zip(fetched, order.ranges, strict=True)]
        for at, end in enumerate(hold_back(places, has_more)):
            if end is not None:
                records = fetched[at][0]
                fetched[at] = records.filter(pc.less(records["offset"], end)), end
                found[at] = read(sources[at], fetched[at][0], order.ranges[at].stream_time)
    return found, [Position(end, rows.stream_time) for (_, end), rows in zip(fetched, found, strict=True)]


def _find_places(source: SourcePlan, fetched: tuple[pa.Table, int], found: SourceRows) -> Places:
    """A parcel is read as a whole, and its record has the time of its latest row."""
    if source.holds != PARCELS:
        return found.rows[TIMESTAMP].to_numpy(), found.rows[OFFSET].to_numpy()
    records = fetched[0]
    times = records["timestamp"].cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64())
    return times.to_numpy(), records["offset"].to_numpy()


def _fetch_records(plan: TaskPlan, source: SourcePlan, order: Order, range_: SourceRange) -> tuple[pa.Table, int]:
    """Committed records from the start of the range to its end, or fewer if there are many; and the next offset."""
    start, end, partition = range_.start, range_.end, order.partition
    if start >= end:
        return _RECORDS.empty_table(), start
    answers = fetch(plan.client, source.topic, partition, start, end, isolation=READ_COMMITTED)
    rows_max = order.records_max or plan.options.batch_rows
    batches, end = decode_up_to(rows_max, BYTES_MAX, answers, source.topic, partition, start, end, _RECORD_COLUMNS)
    return pa.Table.from_batches(batches, _RECORDS), end


def _take_order() -> Order | None:
    fields = take_order()
    return None if fields is None else to_order(fields)


def _place_of_handover(plan: TaskPlan) -> str:
    return make_handover_path(plan.options.name, get_task_context().taskAttemptId())


def _to_row(report: Report) -> pa.RecordBatch:
    return to_report(report_fields(report))


__all__ = ["TaskPlan", "process_rows", "read_source", "run_arrow_task", "run_task", "schema_of"]
