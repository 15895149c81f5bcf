"""Apps on a broker and Spark: what is written is right, goes on after a restart, and says so when it cannot."""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ottla.streams.app import App
from ottla.streams.errors import FencedApp, StreamsError
from ottla.testing import LocalBroker
from tests.spark.topics import send
from tests.streams.apps import make_app, read_records, read_table, running, wait_for_lag_zero, wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_stateless_steps_keep_order_times_and_headers(
    spark: "SparkSession", broker: LocalBroker, tmp_path: Path
) -> None:
    """A Column step and a function on every record of two partitions, in order, with the record's time and headers."""
    from pyspark.sql import functions as F

    broker.create_topic("plain", partitions=2)
    broker.create_topic("shouted", partitions=2)
    records = [
        {"key": f"{n % 7}", "value": f"word {n}", "timestamp": 1_000 + n, "headers": [("n", str(n).encode())]}
        for n in range(300)
    ]
    send(broker, "plain", records)
    app = make_app(broker, tmp_path, "shout")
    lines = app.stream("plain", key="string", value="string")
    loud = lines.select("key", F.upper("value").alias("value")).filter(F.col("value") != "WORD 13")
    loud.map(lambda row: {**row, "value": row["value"] + "!"}, schema="value string").to("shouted")
    with running(app):
        wait_for_lag_zero(broker, app, ["plain"])
    found = read_records(broker, "shouted")
    for key in range(7):
        ours = [each for each in found if each["key"] == str(key).encode()]
        expected = [n for n in range(300) if n % 7 == key and n != 13]
        assert [each["value"].decode() for each in ours] == [f"WORD {n}!" for n in expected]
        assert [round(each["timestamp"].timestamp() * 1000) for each in ours] == [1_000 + n for n in expected]
        assert [each["headers"] for each in ours] == [[{"key": "n", "value": str(n).encode()}] for n in expected]


def test_words_are_counted_through_an_exchange(spark: "SparkSession", broker: LocalBroker, tmp_path: Path) -> None:
    """Word count, stopped and started again in the middle: the table is right, and the changelog holds the same."""
    from pyspark.sql import functions as F

    broker.create_topic("lines", partitions=2)
    broker.create_topic("word-totals", partitions=2)
    lines = [f"{a} {b} all" for a in ("one", "two", "three") for b in ("one", "four")] * 10
    for end in (25, 60):
        send(
            broker,
            "lines",
            [{"value": line, "partition": n % 2} for n, line in enumerate(lines[:end]) if n >= end - 35],
        )
        app = make_app(broker, tmp_path, "words")
        words = app.stream("lines", value="string").select(F.explode(F.split("value", " ")).alias("word"))
        words.group_by("word").count(name="word-counts").to("word-totals")
        expected = {word: {"count": count} for word, count in Counter(" ".join(lines[:end]).split()).items()}
        with running(app):
            wait_until(lambda: read_table(broker, "word-totals") == expected, app)
        kept = read_table(broker, "words-word-counts-changelog")
        assert {word: {"count": value["count"]} for word, value in kept.items()} == expected


def test_a_missing_topic_is_one_line(spark: "SparkSession", broker: LocalBroker, tmp_path: Path) -> None:
    """An app that reads a topic that does not exist says which one, and what to do."""
    app = make_app(broker, tmp_path, "lost")
    app.stream("no-such-topic", value="string").to("nowhere")
    with pytest.raises(StreamsError, match=r"no-such-topic.*ottla topic create") as refusal:
        app.start()
    assert "\n" not in str(refusal.value)


def test_a_second_copy_takes_over(spark: "SparkSession", broker: LocalBroker, tmp_path: Path) -> None:
    """The first copy of an app ends with FencedApp, the second goes on, and nothing is written twice."""
    broker.create_topic("numbers", partitions=2)
    broker.create_topic("copies", partitions=2)

    def make() -> App:
        app = make_app(broker, tmp_path, "copier")
        app.stream("numbers", key="string", value="string").to("copies")
        return app

    first, second = make(), make()
    send(broker, "numbers", [{"key": f"{n}", "value": f"{n}"} for n in range(100)])
    first.start()
    wait_for_lag_zero(broker, first, ["numbers"])
    second.start()
    send(broker, "numbers", [{"key": f"{n}", "value": f"{n}"} for n in range(100, 200)])
    wait_for_lag_zero(broker, second, ["numbers"])
    assert first.wait(300)
    with pytest.raises(FencedApp, match="taken over"):
        first.stop()
    send(broker, "numbers", [{"key": f"{n}", "value": f"{n}"} for n in range(200, 300)])
    wait_for_lag_zero(broker, second, ["numbers"])
    second.stop()
    assert sorted(int(each["value"]) for each in read_records(broker, "copies")) == list(range(300))
