"""Topics in memory, for the test driver: partitions with records, keys placed as a real producer places them."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import pyarrow as pa

from ottla.pipeline.decoding import TYPES
from ottla.streams.tasks.placement import choose_partitions

Headers = list[tuple[str, bytes | None]]


class Record(NamedTuple):
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: Headers
    sequence: int
    """The place among all records of the topic: the order in which they were written."""


class MemoryTopic:
    """A topic with its records, none of which is ever deleted."""

    def __init__(self, name: str, partition_count: int) -> None:
        self.name = name
        self.partitions: list[list[Record]] = [[] for _ in range(partition_count)]
        self._count = 0

    def append(self, records: pa.Table) -> None:
        """Add records with the columns of `tasks.writing.OUTGOING`. Those without a partition go where their key says,
        and those without a key to the partition whose turn it is."""
        keys = records["key"].to_pylist()
        chosen = choose_partitions(keys, len(self.partitions), self._count % len(self.partitions)).tolist()
        times = records["timestamp"].cast(pa.int64()).to_pylist()
        rows = zip(
            keys,
            records["value"].to_pylist(),
            times,
            records["headers"].to_pylist(),
            records["partition"].to_pylist(),
            chosen,
            strict=True,
        )
        for key, value, time_us, headers, given, by_key in rows:
            pairs = [(each["key"], each["value"]) for each in headers or ()]
            record = Record(key, value, time_us // 1000, pairs, self._count)
            self.partitions[by_key if given is None else given].append(record)
            self._count += 1

    def fetch(self, partition: int, start: int, end: int) -> pa.Table:
        """The records from one offset to before another, with the columns of `ottla.pipeline.decoding`."""
        found = self.partitions[partition][start:end]
        columns: dict[str, list[Any]] = {
            "key": [each.key for each in found],
            "value": [each.value for each in found],
            "topic": [self.name] * len(found),
            "partition": [partition] * len(found),
            "offset": list(range(start, start + len(found))),
            "timestamp": [to_datetime(each.timestamp_ms) for each in found],
            "timestampType": [0] * len(found),
            "headers": [_to_structs(each.headers) for each in found],
        }
        return pa.table(
            [pa.array(columns[name], kind) for name, kind in TYPES.items()], schema=pa.schema(TYPES.items())
        )

    def records_from(self, sequence: int) -> list[Record]:
        """The records from this place on, in the order in which they were written."""
        found = [each for partition in self.partitions for each in partition if each.sequence >= sequence]
        return sorted(found, key=lambda each: each.sequence)

    @property
    def end(self) -> int:
        """The place of the next record."""
        return self._count


def to_datetime(time_ms: int) -> datetime:
    seconds, milliseconds = divmod(time_ms, 1000)
    return datetime.fromtimestamp(seconds, UTC).replace(microsecond=milliseconds * 1000)


def _to_structs(headers: Sequence[tuple[str, bytes | None]]) -> list[dict[str, Any]] | None:
    return [{"key": name, "value": value} for name, value in headers] or None
