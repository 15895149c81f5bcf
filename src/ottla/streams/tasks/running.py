"""Runs the steps of a subtopology on the rows of one batch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from ottla.streams.kernels.kernel import KernelContext
from ottla.streams.planning.plan import PARCELS, SubtopologyPlan
from ottla.streams.rows import TIMESTAMP
from ottla.streams.tasks.reading import NO_TIME
from ottla.streams.tasks.times import reached_times
from ottla.streams.tasks.writing import Records, write_changes, write_late_rows, write_rows

Changes = Mapping[bytes, bytes | None]
"""What a batch has written to a store: values by key, None for a deleted key."""


@dataclass(frozen=True)
class Outgoing:
    """What a batch writes in its transaction."""

    records: list[Records]
    """Of sinks and repartition topics, of topics for late rows, and of changelogs."""
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
    records += _write_late(plan, context)
    own = {each.spec.name: each.changelog for each in plan.stores if not each.spec.is_source}
    changes = {name: context.stores[name].changes for name in own if context.stores[name].changes}
    time_ms = _latest(inputs, context)
    for name, changed in changes.items():
        own_times = context.stores[name].change_times
        records.append((own[name], write_changes(changed, own_times, partition=context.partition, time_ms=time_ms)))
    return Outgoing(records, changes, context.late)


def _write_late(plan: SubtopologyPlan, context: KernelContext) -> list[Records]:
    steps = {step.label: step for step in plan.steps}
    found = []
    for label, rows in context.late:
        topic = steps[label].late_topic
        if topic is not None and rows.num_rows:
            found.append((topic, write_late_rows(rows, steps[label].key, steps[label].late_columns)))
    return found


def _latest(inputs: Sequence[pa.Table], context: KernelContext) -> int:
    """The time of changes that have none of their own, such as those of indexes: the latest one of the batch's rows, or
    of its sources if time alone has passed."""
    latest = [pc.max(rows[TIMESTAMP]).as_py() for rows in inputs if rows.num_rows]
    told = [time for time in context.source_times.values() if time != NO_TIME]
    return max(latest or told, default=context.now_ms)
