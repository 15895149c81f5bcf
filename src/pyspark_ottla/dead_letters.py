"""Records that could not be decoded, sent on to a topic of their own: as they were, with the reason in their headers.

The headers are those that Kafka Connect writes for its dead letters, so the tools for these know them. A record is in
the dead-letter topic before the rows that came with it leave the task; a task or query that is run again sends its
bad records again.
"""

from typing import TYPE_CHECKING

import pyarrow as pa

from ottla.client.client import Client
from ottla.pipeline.decoding import TYPES
from ottla.pipeline.formats import REASON
from pyspark_ottla.options import KAFKA_PREFIX, write_options
from pyspark_ottla.writing import write_rows

if TYPE_CHECKING:
    from collections.abc import Mapping

NEEDED = ("key", "value", "headers", "topic", "partition", "offset")
"""The columns of a bad record."""

PREFIX = "__connect.errors."
REASON_SIZE_MAX = 1000


class DeadLetters:
    """Of one task. It has connections of its own: on those of the reader answers are still on their way."""

    def __init__(self, kafka: "Mapping[str, str]", topic: str) -> None:
        self._options = write_options({KAFKA_PREFIX + name: value for name, value in kafka.items()} | {"topic": topic})
        self._client = Client(kafka)

    def send(self, bad: pa.RecordBatch) -> None:
        """Acknowledged when this returns. KafkaError or Unreachable if they are not."""
        write_rows(self._client, self._options, iter([letters(bad)]))

    def close(self) -> None:
        self._client.close()


def letters(bad: pa.RecordBatch) -> pa.RecordBatch:
    """What is written for rows with the columns NEEDED and REASON."""
    headers = []
    for row in bad.select(["headers", "topic", "partition", "offset", REASON]).to_pylist():
        told = {
            "topic": row["topic"],
            "partition": row["partition"],
            "offset": row["offset"],
            "exception.message": row[REASON][:REASON_SIZE_MAX],
        }
        added = [{"key": PREFIX + name, "value": str(value).encode()} for name, value in told.items()]
        headers.append([*(row["headers"] or ()), *added])
    columns = [bad.column("key"), bad.column("value"), pa.array(headers, TYPES["headers"])]
    return pa.record_batch(columns, names=["key", "value", "headers"])
