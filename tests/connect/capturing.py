"""A capture that a test kills. Its settings are in config.json of the directory.

python -m tests.connect.capturing <bootstrap> <directory>
"""

import json
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from ottla.connect.connector import Part, SourceBatch, SourceOffset
from ottla.connect.connectors.postgresql import changes, snapshots
from ottla.connect.connectors.postgresql.source import PostgresConnector
from ottla.connect.running import source_tasks
from ottla.connect.running.contexts import create_context
from tests.connect.runs import RunningConnector
from tests.patience import PATIENCE_S
from tests.spark.settings import SETTINGS

NAME = "capturing"
SIZES = (
    (snapshots, {"FETCH_ROWS": 30, "MAX_ROWS": 60}),
    (changes, {"BATCH_ROWS": 4, "MAX_ROWS": 20}),
    (source_tasks, {"MAX_ROWS": 8, "ROUND_S": 0.0}),
)


class SmallSteps(PostgresConnector):
    """Reads little in each transaction, so that there are many."""

    def read(self, part: Part, offset: SourceOffset | None) -> Iterator[SourceBatch]:
        for module, sizes in SIZES:
            for name, size in sizes.items():
                setattr(module, name, size)
        yield from super().read(part, offset)


def run_capture(bootstrap: str, directory: Path) -> None:
    spark = create_context("capturing", "local[2]", {**SETTINGS})
    config = json.loads((directory / "config.json").read_text())
    running = RunningConnector(spark, bootstrap, SmallSteps, NAME, config)
    is_stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: is_stopping.set())
    running.run.start()
    is_stopping.wait()
    running.run.stop()
    running.run.join(PATIENCE_S)
    spark.stop()


if __name__ == "__main__":
    run_capture(sys.argv[1], Path(sys.argv[2]))
