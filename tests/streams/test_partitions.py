"""Many partitions, most of them empty."""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ottla.testing import LocalBroker
from tests.spark.topics import send
from tests.streams.apps import make_app, read_table, running, wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTITIONS = 100
FILLED = (3, 42, 99)
WORDS = [f"w{n % 37}" for n in range(900)]


@pytest.mark.long
def test_a_hundred_partitions_of_which_most_are_empty(
    spark: "SparkSession", ottla_broker: LocalBroker, tmp_path: Path
) -> None:
    """A count behind an exchange, in as many tasks as there are partitions, before and after a restart."""
    for topic in ("many", "many-totals"):
        ottla_broker.create_topic(topic, partitions=PARTITIONS, retention_ms=-1)
    for start in (0, 450):
        send(
            ottla_broker,
            "many",
            [
                {"key": f"{n}", "value": WORDS[n], "partition": FILLED[n % 3], "timestamp": 1_000 + n + 10 * start}
                for n in range(start, start + 450)
            ],
        )
        app = make_app(ottla_broker, tmp_path, "many-parts")
        words = app.stream("many", key="string", value="string", key_column="number").map(
            lambda row: {"word": row["value"]}, schema="word string"
        )
        words.group_by("word").count(name="totals").to("many-totals")
        seen = Counter(WORDS[: start + 450])
        with running(app):
            wait_until(
                lambda seen=seen: (  # type: ignore[misc]
                    read_table(ottla_broker, "many-totals") == {word: {"count": n} for word, n in seen.items()}
                ),
                app,
            )
