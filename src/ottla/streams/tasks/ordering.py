"""The order in which a task processes rows of several source topics.

As in Kafka Streams, the next row is that of the topic whose next row has the lowest time; rows of one topic keep the
order of their offsets. That is the same as sorting all rows by the highest time that their topic has reached, and rows
with equal times by topic.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ottla.streams.rows import HIDDEN, ORDER, TIMESTAMP

Places = tuple[Any, Any]
"""The times and the offsets of what was read from a source, in the order of offsets, as numpy arrays."""


def hold_back(sources: Sequence[Places], has_more: Sequence[bool]) -> list[int | None]:
    """The offset from which on each source has to wait for the next batch; None if it need not.

    A source of which only a part was read has more rows that may come before the later rows of the others: a stream
    must not be joined with half a table only because the table is larger than a batch.
    """
    limits = [times.max() for (times, _), more in zip(sources, has_more, strict=True) if more and len(times)]
    if not limits:
        return [None] * len(sources)
    found: list[int | None] = []
    for times, offsets in sources:
        later = np.flatnonzero(times > min(limits))
        found.append(int(offsets[later[0]]) if len(later) else None)
    return found


def merge_order(inputs: Sequence[pa.Table]) -> list[pa.Table]:
    """The rows of each source with their places among those of all sources in the column ORDER."""
    if len(inputs) < 2:
        return list(inputs)
    reached = [np.maximum.accumulate(rows[TIMESTAMP].to_numpy()) for rows in inputs]
    counts = [rows.num_rows for rows in inputs]
    topics = np.repeat(np.arange(len(inputs)), counts)
    sequence = np.lexsort((topics, np.concatenate(reached)))  # stable: rows of one topic keep their order
    places = np.empty(len(sequence), np.int64)
    places[sequence] = np.arange(len(sequence))
    ends = np.cumsum(counts)
    return [
        rows.set_column(rows.schema.get_field_index(ORDER), HIDDEN.field(ORDER), pa.array(places[end - count : end]))
        for rows, count, end in zip(inputs, counts, ends, strict=True)
    ]
