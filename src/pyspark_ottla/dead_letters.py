"""Writes records that could not be decoded to a dead-letter topic, unchanged, with the reason in their headers.

The headers are those of Kafka Connect's dead letters, so tools for these understand them. A bad record is in the
dead-letter topic before the good rows of its batch leave the task. A task that runs again writes its bad records again.
"""

from typing import TYPE_CHECKING

import pyarrow as pa

from ottla.client.client import Client
from ottla.pipeline.decoding import TYPES
from ottla.pipeline.formats import REASON
from pyspark_ottla.options import KAFKA_PREFIX, parse_write_options
from pyspark_ottla.writing import write_rows

if TYPE_CHECKING:
    from collections.abc import Mapping

NEEDED = ("key", "value", "headers", "topic", "partition", "offset")
"""The columns of a record that `make_dead_letters` needs."""

PREFIX = "__connect.errors."
REASON_SIZE_MAX = 1000


class DeadLetters:
    """The writer of one task. It has its own client, because answers of fetches are in flight on the reader's."""

    def __init__(self, kafka: "Mapping[str, str]", topic: str) -> None:
        self._options = parse_write_options(
            {KAFKA_PREFIX + name: value for name, value in kafka.items()} | {"topic": topic}
        )
        self._client = Client(kafka)

    def send(self, bad: pa.RecordBatch) -> None:
        """Returns when all are acknowledged. Raises KafkaError or Unreachable if one is not."""
        write_rows(self._client, self._options, iter([make_dead_letters(bad)]))

    def close(self) -> None:
        self._client.close()


def make_dead_letters(bad: pa.RecordBatch) -> pa.RecordBatch:
    """The rows to write, from rows with the columns NEEDED and REASON."""
    headers = []
    for row in bad.select(["headers", "topic", "partition", "offset", REASON]).to_pylist():
        facts = {
            "topic": row["topic"],
            "partition": row["partition"],
            "offset": row["offset"],
            "exception.message": row[REASON][:REASON_SIZE_MAX],
        }
        added = [{"key": PREFIX + name, "value": str(value).encode()} for name, value in facts.items()]
        headers.append([*(row["headers"] or ()), *added])
    columns = [bad.column("key"), bad.column("value"), pa.array(headers, TYPES["headers"])]
    return pa.record_batch(columns, names=["key", "value", "headers"])
