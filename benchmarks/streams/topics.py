"""Topics of the comparison: the input, the same for both sides, and what came out of an app."""

import json
import time
from collections.abc import Iterable, Iterator

from confluent_kafka import Producer

import ottla
from benchmarks.loads.bulk import build_producer_settings, flush
from benchmarks.loads.topics import create_topic

KEYS = 1_000
BEGIN_MS = (round(time.time()) // 60 - 6 * 60) * 60_000
"""The time of the first row: the beginning of a minute, long ago enough for all rows, and too recent for retention."""
STEP_MS = 10
ROWS_PER_MINUTE = 60_000 // STEP_MS
FILLER = " and so on, as it was before" * 3
"""Makes values of about 100 bytes."""


def fill_input(bootstrap: str, topic: str, rows: int, keys: int, partitions: int) -> None:
    """Rows in the order of their time. Each value ends with the row's number."""
    create_topic(bootstrap, topic, partitions)
    add_rows(bootstrap, topic, range(rows), keys)


def add_rows(bootstrap: str, topic: str, numbers: Iterable[int], keys: int) -> None:
    records = (
        (b"key-%07d" % (number % keys), f"{FILLER} {number}".encode(), BEGIN_MS + STEP_MS * number)
        for number in numbers
    )
    _fill(bootstrap, topic, records)


def fill_table(bootstrap: str, topic: str, partitions: int) -> None:
    """A name for each key, older than the first row of the input."""
    records = ((b"key-%07d" % key, json.dumps({"name": f"name {key}"}).encode(), BEGIN_MS - 1) for key in range(KEYS))
    create_topic(bootstrap, topic, partitions)
    _fill(bootstrap, topic, records)


def _fill(bootstrap: str, topic: str, records: Iterator[tuple[bytes, bytes, int]]) -> None:
    settings = build_producer_settings(bootstrap, "1", linger_ms=20) | {"partitioner": "murmur2_random"}
    producer = Producer(settings)
    for key, value, timestamp in records:
        while True:
            try:
                producer.produce(topic, key=key, value=value, timestamp=timestamp)
                break
            except BufferError:
                producer.poll(0.05)
    flush(producer)


def count_records(bootstrap: str, topic: str) -> int:
    """How many records of the topic are committed."""
    reading = ottla.read(topic, bootstrap=bootstrap, isolation="read_committed", columns=("offset",))
    return int(reading.to_arrow().num_rows)


def sum_newest_counts(bootstrap: str, topic: str) -> tuple[int, int]:
    """How many keys a topic of counts has, and the sum of the newest count of each. How often a count is written on its
    way there is up to each side: both write the newest count of a batch only."""
    newest = _read_newest(bootstrap, topic)
    return len(newest), sum(json.loads(value)["count"] for value in newest.values())


def sum_newest_numbers(bootstrap: str, topic: str) -> tuple[int, int]:
    """How many keys a topic of joined rows has, and the sum of the numbers at the end of the newest values."""
    newest = _read_newest(bootstrap, topic)
    return len(newest), sum(int(json.loads(value)["value"].rsplit(" ", 1)[1]) for value in newest.values())


def _read_newest(bootstrap: str, topic: str) -> dict[bytes, bytes]:
    reading = ottla.read(topic, bootstrap=bootstrap, isolation="read_committed", columns=("key", "value"))
    newest: dict[bytes, bytes] = {}
    for batch in reading.batches():
        newest.update(zip(batch["key"].to_pylist(), batch["value"].to_pylist(), strict=True))
    return newest
