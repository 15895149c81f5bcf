"""Records and rows that are not processed: by the app's settings they fail, are skipped, or become dead letters.

A record that cannot be decoded goes to the dead-letter topic as it is. Of a row for which a function failed, or that
was late, the columns are written as JSON, because the row need not look like its record any more. The headers are those
of Kafka Connect's dead letters: where the record was, and the reason.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from ottla.pipeline.decoding import TYPES
from ottla.pipeline.formats import REASON
from ottla.streams.errors import StreamsError
from ottla.streams.kernels.kernel import KernelContext
from ottla.streams.options import DEAD_LETTER, FAIL, AppOptions
from ottla.streams.planning.plan import SubtopologyPlan
from ottla.streams.rows import HEADERS, OFFSET, PARTITION, RESERVED, TOPIC
from ottla.streams.state.values import RowCodec
from pyspark_ottla.dead_letters import make_dead_letters


class BadRecord(StreamsError):
    """A record cannot be decoded, and the app is set to fail then."""


@dataclass(frozen=True)
class SetAside:
    """The dead letters of a batch, and how many records and rows of each kind were not processed."""

    letters: Sequence[pa.RecordBatch]
    counts: Mapping[str, int]


def refuse_bad_records(options: AppOptions, bad: Sequence[pa.Table]) -> None:
    """Raises BadRecord for the first bad record if the app is set to fail."""
    if options.on_bad_record != FAIL:
        return
    for found in bad:
        if found.num_rows:
            first = found.slice(0, 1).to_pylist()[0]
            place = f"{first['topic']}-{first['partition']}@{first['offset']}"
            raise BadRecord(f"{place}: {first[REASON]}. on_bad_record='skip' or 'dead-letter' lets the app go on")


def set_aside(plan: SubtopologyPlan, options: AppOptions, bad: Sequence[pa.Table], context: KernelContext) -> SetAside:
    """Collect what was not processed. Rows that were late for a step with a topic for them are there already."""
    letters: list[pa.RecordBatch] = []
    if options.on_bad_record == DEAD_LETTER:
        letters += [make_dead_letters(each) for found in bad for each in found.combine_chunks().to_batches()]
    if options.on_error == DEAD_LETTER:
        letters += [_describe_rows(each.rows, each.reasons) for each in context.failed]
    if options.on_late == DEAD_LETTER:
        handled = {step.label for step in plan.steps if step.late_topic is not None}
        for label, rows in context.late:
            if label not in handled and rows.num_rows:
                letters.append(_describe_rows(rows, [f"{label}: the row came after its window had closed"] * len(rows)))
    counts = {
        "bad": sum(found.num_rows for found in bad),
        "failed": sum(each.rows.num_rows for each in context.failed),
        "late": sum(rows.num_rows for _, rows in context.late),
        "dropped": sum(context.dropped.values()),
    }
    return SetAside(letters, {name: count for name, count in counts.items() if count})


def _describe_rows(rows: pa.Table, reasons: Sequence[str]) -> pa.RecordBatch:
    """Dead letters with the user's columns as JSON."""
    own = rows.select([name for name in rows.column_names if name not in RESERVED])
    found = {
        "key": pa.nulls(rows.num_rows, pa.binary()),
        "value": pa.array(RowCodec(own.schema).encode(own), pa.binary()),
        "headers": rows[HEADERS].cast(TYPES["headers"]),
        "topic": rows[TOPIC],
        "partition": rows[PARTITION],
        "offset": rows[OFFSET],
        REASON: pa.array(reasons, pa.string()),
    }
    (batch,) = pa.table(found).combine_chunks().to_batches()
    return make_dead_letters(batch)
