"""Records that cannot be decoded and rows that are late: the app's settings say whether they fail, are skipped, or go
to a topic."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from ottla.pipeline.formats import REASON
from ottla.streams.errors import StreamsError
from ottla.streams.kernels.kernel import KernelContext
from ottla.streams.options import DEAD_LETTER, FAIL
from pyspark_ottla.dead_letters import make_dead_letters

if TYPE_CHECKING:
    from ottla.streams.running.tasks import TaskPlan


class BadRecord(StreamsError):
    """A record cannot be decoded, and the app is set to fail then."""


@dataclass(frozen=True)
class SetAside:
    """What is written for rows that were not processed, and how many there were of each kind."""

    records: Sequence[tuple[str, pa.Table]]
    counts: Mapping[str, int]


def sort_out(plan: "TaskPlan", bad: Sequence[pa.Table], context: KernelContext) -> SetAside:
    """Raises BadRecord for the first bad record if the app is set to fail."""
    options = plan.options
    records: list[tuple[str, pa.Table]] = []
    for found in bad:
        if not found.num_rows:
            continue
        if options.on_bad_record == FAIL:
            first = found.slice(0, 1).to_pylist()[0]
            place = f"{first['topic']}-{first['partition']}@{first['offset']}"
            raise BadRecord(f"{place}: {first[REASON]}. on_bad_record='skip' or 'dead-letter' lets the app go on")
        if options.on_bad_record == DEAD_LETTER:
            letters = make_dead_letters(found.combine_chunks().to_batches()[0])
            records.append((options.dead_letters, pa.Table.from_batches([letters])))
    late = sum(rows.num_rows for _, rows in context.late)
    return SetAside(records, {"bad": sum(found.num_rows for found in bad), "late": late})
