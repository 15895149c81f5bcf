"""Connectors that a test kills: lines of a file to a topic, and the topic's records to a file, a directory, a database,
a bucket and an index.

python -m tests.connect.crashing <bootstrap> <directory>

`targets.json` in the directory names the sinks that run, and has the addresses of the bucket's server and the index's.
"""

import json
import signal
import sys
import threading
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Final

from ottla.connect.connector import Connector, Part, SourceBatch, SourceOffset
from ottla.connect.connectors.files.directory_sink import DirectorySink
from ottla.connect.connectors.files.file_sink import FileStreamSink
from ottla.connect.connectors.files.file_source import FileStreamSource
from ottla.connect.connectors.jdbc.sink import JdbcSink
from ottla.connect.connectors.s3.s3_sink import S3Sink
from ottla.connect.connectors.search.search_sink import ElasticsearchSink
from ottla.connect.data.record import Record
from ottla.connect.data.schema import Field, Schema, Type
from ottla.connect.running.contexts import create_context
from tests.connect.runs import RunningConnector
from tests.s3_server import ACCESS, REGION
from tests.spark.settings import SETTINGS

TOPIC, PARTITIONS = "numbered-lines", 2
BATCH_LINES = 20
BUCKET = "lines"
ROW: Final = Schema(Type.STRUCT, fields=(Field("line", Schema(Type.STRING)),))


class SlowFile(FileStreamSource):
    """Reads a few lines in each round, so that there are many."""

    def read(self, part: Part, offset: SourceOffset | None) -> Iterator[SourceBatch]:
        yield from islice(super().read(part, offset), 2)


class ToRow:
    """A transformation: the line becomes a row, as databases and indices need it."""

    def apply(self, record: Record) -> Record:
        record.value, record.value_schema = {"line": record.value}, ROW
        return record


def list_sinks(directory: Path) -> Iterator[tuple[type[Connector], dict[str, str]]]:
    targets: dict[str, Any] = json.loads((directory / "targets.json").read_text())
    rotation = {"flush.size": "7", "rotate.schedule.interval.ms": "100"}
    sinks: dict[str, tuple[type[Connector], dict[str, str]]] = {
        "file": (FileStreamSink, {"file": str(directory / "out.txt"), "tasks.max": "2"}),
        "directory": (DirectorySink, {"directory": str(directory / "files"), "format": "text", **rotation}),
        "table": (JdbcSink, {"connection.url": f"jdbc:sqlite:{directory / 'lines.db'}", "auto.create": "true"}),
        "bucket": (
            S3Sink,
            {
                "store.url": targets["bucket"],
                "s3.bucket.name": BUCKET,
                "s3.region": REGION,
                "format.class": "JsonFormat",
                "tasks.max": "2",
                **rotation,
                **ACCESS,
            },
        ),
        "index": (ElasticsearchSink, {"connection.url": targets["index"], "key.ignore": "true"}),
    }
    for name in targets["sinks"]:
        yield sinks[name]


def run_connectors(bootstrap: str, directory: Path) -> None:
    spark = create_context("crashing", "local[2]", {**SETTINGS})
    source = {"file": str(directory / "in.txt"), "topic": TOPIC, "batch.size": str(BATCH_LINES)}
    running = [RunningConnector(spark, bootstrap, SlowFile, "crashing-source", source)]
    for kind, config in list_sinks(directory):
        transforms = ToRow() if kind in (JdbcSink, ElasticsearchSink) else None
        config["topics"] = TOPIC
        running.append(RunningConnector(spark, bootstrap, kind, f"crashing-{kind.__name__}", config, transforms))
    is_stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: is_stopping.set())
    for each in running:
        each.run.start()
    is_stopping.wait()
    for each in running:
        each.run.stop()
    for each in running:
        each.run.join(60)
    spark.stop()


if __name__ == "__main__":
    run_connectors(sys.argv[1], Path(sys.argv[2]))
