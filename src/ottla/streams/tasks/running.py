"""Runs the steps of a subtopology on the rows of one batch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from ottla.streams.kernels.kernel import KernelContext
from ottla.streams.planning.plan import PARCELS, SubtopologyPlan
from ottla.streams.rows import SOURCE, STREAM_TIME, TIMESTAMP
from ottla.streams.tasks.writing import Records, write_changes, write_rows

Changes = Mapping[bytes, bytes | None]
"""What a batch has written to a store: values by key, None for a deleted key."""


@dataclass(frozen=True)
class Outgoing:
    """What a batch writes in its transaction."""

    records: list[Records]
    """Of sinks and repartition topics, then of changelogs."""
    changes: Mapping[str, Changes]
    """The changes of each store by its name. The changelogs' records hold the same."""
    late: list[tuple[str, pa.Table]]
    """Late rows with the label of their step."""


def run_steps(
    plan: SubtopologyPlan,
    inputs: Sequence[pa.Table],
    context: KernelContext,
    partition_counts: Mapping[str, int],
) -> Outgoing:
    """Process the rows of one batch, one table for each source. `partition_counts` has those of repartition topics."""
    outputs = list(inputs)
    for step in plan.steps:
        produced = list(step.kernel.process([outputs[number] for number in step.inputs], context))
        if len(produced) != step.outputs:
            raise AssertionError(f"{step.label}: {len(produced)} outputs where the plan has {step.outputs}")
        outputs += produced
    times = reached_times(inputs, context.source_times)
    records: list[Records] = []
    for sink in plan.sinks:
        count = partition_counts[sink.topic] if sink.holds == PARCELS and sink.topic is not None else 0
        records += write_rows(
            sink, outputs[sink.input], partition=context.partition, partition_count=count, source_times=times
        )
    own = {each.spec.name: each.changelog for each in plan.stores if not each.spec.is_source}
    changes = {name: context.stores[name].changes for name in own if context.stores[name].changes}
    time_ms = _latest(inputs, context)
    for name, changed in changes.items():
        records.append((own[name], write_changes(changed, partition=context.partition, time_ms=time_ms)))
    return Outgoing(records, changes, context.late)


def reached_times(inputs: Sequence[pa.Table], told: Mapping[int, int]) -> dict[int, int]:
    """The stream time of each source partition that this batch knows of, by its number."""
    reached = dict(told)
    for rows in inputs:
        if rows.num_rows:
            latest = rows.select([SOURCE, STREAM_TIME]).group_by(SOURCE).aggregate([(STREAM_TIME, "max")])
            for source, time in zip(
                *(latest[name].to_pylist() for name in (SOURCE, f"{STREAM_TIME}_max")), strict=True
            ):
                if source is not None:
                    reached[source] = max(time, reached.get(source, time))
    return reached


def _latest(inputs: Sequence[pa.Table], context: KernelContext) -> int:
    """The time of changelog records: the latest one of the batch's rows, or of its sources if time alone has passed."""
    latest = [pc.max(rows[TIMESTAMP]).as_py() for rows in inputs if rows.num_rows]
    return max(latest or context.source_times.values(), default=context.now_ms)
