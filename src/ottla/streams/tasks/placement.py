"""The partition of a key, as the Java client chooses it, and numbers for source partitions."""

from collections.abc import Sequence
from typing import Any, Final
from zlib import crc32

import numpy as np
import pyarrow as pa

from ottla.streams.planning.plan import PARCELS, AppPlan

PARTITION_BITS: Final = 11
PARTITIONS_MAX: Final = 1 << PARTITION_BITS
"""How many partitions a source topic may have: the rest of a source's number tells the topic."""

_TOPIC_NUMBERS = 1 << (31 - PARTITION_BITS)
_NO_BYTES = np.empty(0, np.uint8)
_NO_NUMBERS = np.empty(0, np.int32)
for _nothing in (_NO_BYTES, _NO_NUMBERS):
    _nothing.flags.writeable = False  # like Arrow's buffers, so that numba compiles the kernel for one signature only


def choose_partitions(keys: Sequence[bytes | None], count: int, without_key: int) -> Any:
    """A numpy array with the partition of each key among `count`. Rows without a key go to `without_key`."""
    from ottla.pipeline import packing

    column = pa.array(keys, pa.binary())
    validity, offsets, data = column.buffers()
    key = (
        np.frombuffer(offsets, np.int32) if offsets else _NO_NUMBERS,
        np.frombuffer(data, np.uint8) if data else _NO_BYTES,
        np.frombuffer(validity, np.uint8) if validity else _NO_BYTES,
        0,
    )
    targets = np.zeros(len(column), np.int64)
    if len(column):
        packing.choose_targets(
            _NO_NUMBERS,
            _NO_NUMBERS,
            _NO_BYTES,
            0,
            key,
            np.zeros(len(column), np.int64),
            np.zeros(1, np.int64),
            np.array([count], np.int64),
            np.array([without_key], np.int64),
            np.zeros(1, np.int64),
            1,
            targets,
        )
    return targets


def number_sources(plan: AppPlan) -> dict[str, int]:
    """The number of partition 0 of each source topic for the column SOURCE; the other partitions follow it.

    The numbers are made from the names of the topics, because kernels keep them in their stores: a topic that is added
    does not change those of the others. Rows of a repartition topic have the numbers of the topics they come from.
    """
    topics = sorted({each.topic for unit in plan.subtopologies for each in unit.sources if each.holds != PARCELS})
    taken: dict[int, str] = {}
    for topic in topics:
        number = crc32(topic.encode()) % _TOPIC_NUMBERS
        while number in taken:
            number = (number + 1) % _TOPIC_NUMBERS
        taken[number] = topic
    return {topic: number << PARTITION_BITS for number, topic in taken.items()}
