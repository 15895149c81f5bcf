"""Made-up records to a topic, and the topic to a Delta Lake table, in a process that a test kills.

python -m tests.connect.crashing_delta <bootstrap> <directory>
"""

import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from ottla.connect.connector import Part, SourceOffset
from ottla.connect.connectors.datagen.datagen_source import DatagenSource
from ottla.connect.connectors.delta.delta_sink import DeltaLakeSink
from ottla.connect.running.contexts import create_context
from tests.connect.runs import RunningConnector
from tests.spark.settings import SETTINGS

TOPIC = "made-up-orders"
JSON = {"value.converter": "org.apache.kafka.connect.json.JsonConverter"}
BATCH = 100


class SlowDatagen(DatagenSource):
    """Makes a few records in each round, so that there are many."""

    def plan(self, offsets: Mapping[str, SourceOffset]) -> Sequence[Part]:
        return [Part(each.partition, {"count": min(each.work["count"], BATCH)}) for each in super().plan(offsets)]


def make_configs(directory: Path, iterations: int) -> tuple[dict[str, str], dict[str, str]]:
    """Of the source and the sink."""
    source = {"kafka.topic": TOPIC, "quickstart": "orders", "max.interval": "0", "iterations": str(iterations), **JSON}
    table = {"table.uri": str(directory / "table"), "flush.interval.ms": "100"}
    return source, {**table, "topics": TOPIC, **JSON}


def run_connectors(bootstrap: str, directory: Path) -> None:
    spark = create_context("crashing", "local[2]", {**SETTINGS})
    source, sink = make_configs(directory, int((directory / "iterations").read_text()))
    for each in (
        RunningConnector(spark, bootstrap, SlowDatagen, "crashing-datagen", source),
        RunningConnector(spark, bootstrap, DeltaLakeSink, "crashing-delta", sink),
    ):
        each.run.start()
    threading.Event().wait()


if __name__ == "__main__":
    run_connectors(sys.argv[1], Path(sys.argv[2]))
