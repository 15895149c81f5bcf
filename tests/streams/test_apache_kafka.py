"""An app whose broker is Apache Kafka."""

from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from benchmarks.peers.apache_kafka import ApacheKafka
from ottla.client.client import Client
from ottla.streams.app import App
from ottla.streams.running.internal_topics import create_topic
from tests.spark.topics import send
from tests.streams.apps import read_table, running, wait_for_lag_zero, wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LINES = [f"{a} {b} all" for a in ("one", "two", "three") for b in ("one", "four")] * 10


@pytest.mark.long
def test_words_are_counted_on_apache_kafka(spark: "SparkSession", apache_kafka: ApacheKafka, tmp_path: Path) -> None:
    """Word count through an exchange, stopped and started again: totals, changelog and the group's lag are right."""
    from pyspark.sql import functions as F

    client = Client({"bootstrap.servers": apache_kafka.bootstrap})
    for topic in ("lines", "word-totals"):
        create_topic(client, topic, 2, {})
    client.close()
    for start, end in ((0, 25), (25, 60)):
        send(apache_kafka, "lines", [{"value": LINES[n], "partition": n % 2} for n in range(start, end)])
        app = App("words", bootstrap=apache_kafka.bootstrap, master="local[2]", state_dir=str(tmp_path), interval_ms=0)
        words = app.stream("lines", value="string").select(F.explode(F.split("value", " ")).alias("word"))
        words.group_by("word").count(name="word-counts").to("word-totals")
        expected = {word: {"count": count} for word, count in Counter(" ".join(LINES[:end]).split()).items()}
        with running(app):
            wait_until(partial(_equals, apache_kafka, "word-totals", expected), app)
            wait_for_lag_zero(apache_kafka, app, ["lines", "words-word-counts-repartition"])
        kept = read_table(apache_kafka, "words-word-counts-changelog")
        assert {word: {"count": value["count"]} for word, value in kept.items()} == expected


def _equals(broker: ApacheKafka, topic: str, expected: object) -> bool:
    return read_table(broker, topic) == expected
