"""Connectors that a test kills: lines of a file to a topic, and the topic's records to a file and a directory.

python -m tests.connect.crashing <bootstrap> <directory>
"""

import signal
import sys
import threading
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from ottla.connect.connector import Part, SourceBatch, SourceOffset
from ottla.connect.connectors.files.directory_sink import DirectorySink
from ottla.connect.connectors.files.file_sink import FileStreamSink
from ottla.connect.connectors.files.file_source import FileStreamSource
from ottla.connect.running.sessions import create_session
from tests.connect.runs import RunningConnector
from tests.spark_session import SETTINGS

TOPIC, PARTITIONS = "numbered-lines", 2
BATCH_LINES = 20


class SlowFile(FileStreamSource):
    """Reads a few lines in each round, so that there are many."""

    def read(self, part: Part, offset: SourceOffset | None) -> Iterator[SourceBatch]:
        yield from islice(super().read(part, offset), 2)


def run_connectors(bootstrap: str, directory: Path) -> None:
    spark = create_session("crashing", "local[2]", {**SETTINGS})
    source = {"file": str(directory / "in.txt"), "topic": TOPIC, "batch.size": str(BATCH_LINES)}
    sink = {"file": str(directory / "out.txt"), "topics": TOPIC, "tasks.max": "2"}
    files = {
        "directory": str(directory / "files"),
        "topics": TOPIC,
        "format": "text",
        "flush.size": "7",
        "rotate.schedule.interval.ms": "100",
    }
    running = [
        RunningConnector(spark, bootstrap, SlowFile, "crashing-source", source),
        RunningConnector(spark, bootstrap, FileStreamSink, "crashing-sink", sink),
        RunningConnector(spark, bootstrap, DirectorySink, "crashing-files", files),
    ]
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
