"""The order in which a task processes rows of several source topics.

As in Kafka Streams, the next row is that of the topic whose next row has the lowest time; rows of one topic keep the
order of their offsets. That is the same as sorting all rows by the highest time that their topic has reached, and rows
with equal times by topic.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from ottla.streams.rows import HIDDEN, ORDER, TIMESTAMP


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
