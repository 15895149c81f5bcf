"""Apps on a broker and Spark: what is written is right, goes on after a restart, and says so when it cannot."""

import json
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ottla.streams.app import App
from ottla.streams.errors import FencedApp, StreamsError
from ottla.streams.running import sifting
from ottla.streams.windows import tumbling
from ottla.testing import LocalBroker
from tests.patience import PATIENCE_S
from tests.spark.topics import send
from tests.streams.apps import make_app, read_records, read_table, running, wait_for_lag_zero, wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_stateless_steps_keep_order_times_and_headers(
    spark: "SparkSession", broker: LocalBroker, tmp_path: Path
) -> None:
    """A Column step and a function on every record of two partitions, in order, with the record's time and headers."""
    from pyspark.sql import functions as F

    broker.create_topic("plain", partitions=2, retention_ms=-1)
    broker.create_topic("shouted", partitions=2, retention_ms=-1)
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
            wait_until(partial(_equals, broker, "word-totals", expected), app)
        kept = read_table(broker, "words-word-counts-changelog")
        assert {word: {"count": value["count"]} for word, value in kept.items()} == expected


def _equals(broker: LocalBroker, topic: str, expected: object) -> bool:
    return read_table(broker, topic) == expected


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


def test_records_and_rows_that_fail_become_dead_letters(
    spark: "SparkSession", broker: LocalBroker, tmp_path: Path
) -> None:
    """A record that is not JSON and a row whose function fails are in the dead-letter topic with place and reason; with
    "fail" the app ends with one line that names the place."""
    broker.create_topic("payments", partitions=1)
    broker.create_topic("doubled", partitions=1)
    for value in ('{"amount": 1}', "not JSON", '{"amount": 0}', '{"amount": 4}'):
        send(broker, "payments", [{"key": "k", "value": value, "headers": [("trace", b"7")]}])

    def make(**options: str) -> App:
        app = make_app(broker, tmp_path, "payer", **options)
        payments = app.stream("payments", key="string", value="amount long")
        payments.map(lambda row: {**row, "amount": 100 // row["amount"]}, schema="amount long").to("doubled")
        return app

    strict = make()
    strict.start()
    assert strict.wait(300)
    with pytest.raises(StreamsError, match=r"payments-0@1: .*JSON"):
        strict.stop()
    assert read_records(broker, "doubled") == []
    lenient = make(on_bad_record="dead-letter", on_error="dead-letter")
    with running(lenient):
        wait_for_lag_zero(broker, lenient, ["payments"])
        wait_until(lambda: lenient.progress()["subtopologies"][0]["rows_read"] > 0, lenient)
        (unit,) = lenient.progress()["subtopologies"]
    assert (unit["bad_records"], unit["failed_rows"]) == (1, 1)
    assert [each["value"] for each in read_records(broker, "doubled")] == [b'{"amount":100}', b'{"amount":25}']
    letters = read_records(broker, "payer-dead-letters")
    assert sorted(each["value"] for each in letters) == [b"not JSON", b'{"key":"k","amount":0}']
    for letter in letters:
        headers = {each["key"]: each["value"] for each in letter["headers"]}
        assert headers["trace"] == b"7"
        assert headers["__connect.errors.topic"] == b"payments"
        assert headers["__connect.errors.offset"] == (b"1" if letter["value"] == b"not JSON" else b"2")
        assert headers["__connect.errors.exception.message"]


def make_caster(broker: LocalBroker, directory: Path, **options: str) -> App:
    """Casts texts to numbers, which fails for one that is none."""
    from pyspark.sql import functions as F

    app = make_app(broker, directory, "caster", **options)
    app.stream("texts", value="string").select(F.col("value").cast("long").alias("amount")).to("amounts")
    return app


def check_casts(broker: LocalBroker, texts: Sequence[str]) -> None:
    """All numbers were written, and all other texts are dead letters."""
    found = [int(json.loads(each["value"])["amount"]) for each in read_records(broker, "amounts")]
    assert sorted(found) == sorted(int(text) for text in texts if text != "x")
    letters = read_records(broker, "caster-dead-letters")
    assert [json.loads(each["value"])["value"] for each in letters] == ["x"] * texts.count("x")
    for letter in letters:
        headers = {each["key"]: each["value"] for each in letter["headers"]}
        assert texts[int(headers["__connect.errors.offset"])] == "x"
        assert b"CAST_INVALID_INPUT" in headers["__connect.errors.exception.message"]


def test_rows_for_which_a_column_fails_become_dead_letters(
    spark: "SparkSession", ottla_broker: LocalBroker, tmp_path: Path
) -> None:
    """A cast of a text that is no number: the other rows go on."""
    for topic in ("texts", "amounts"):
        ottla_broker.create_topic(topic)
    send(ottla_broker, "texts", [{"value": text} for text in ("1", "x")])
    app = make_caster(ottla_broker, tmp_path, on_error="dead-letter")
    with running(app):
        wait_for_lag_zero(ottla_broker, app, ["texts"])
    check_casts(ottla_broker, ("1", "x"))


@pytest.mark.long
def test_nothing_is_lost_beside_rows_for_which_a_column_fails(
    spark: "SparkSession", ottla_broker: LocalBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch is larger than what Spark hands over at once, so the second Python worker has got a part of it when the
    Column fails. With "fail" the app ends with one line that names the offset."""
    for topic in ("texts", "amounts"):
        ottla_broker.create_topic(topic)
    texts = [*(str(10**17 + n) for n in range(2999)), "x"]
    monkeypatch.setattr(sifting, "RECORDS_MAX", 2999)
    send(ottla_broker, "texts", [{"value": text} for text in texts])
    size = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = spark.conf.get(size)
    spark.conf.set(size, 100)
    try:
        strict = make_caster(ottla_broker, tmp_path)
        strict.start()
        assert strict.wait(PATIENCE_S)
        with pytest.raises(
            StreamsError, match=r"offset 2999 of texts-0: \[CAST_INVALID_INPUT\] The value 'x'"
        ) as refusal:
            strict.stop()
        assert "\n" not in str(refusal.value)
        assert len(read_records(ottla_broker, "amounts")) == 2999  # the batch before the one that fails
        lenient = make_caster(ottla_broker, tmp_path, on_error="dead-letter")
        with running(lenient):
            wait_for_lag_zero(ottla_broker, lenient, ["texts"])
    finally:
        spark.conf.set(size, str(before))
    check_casts(ottla_broker, texts)


def test_a_table_enriches_a_stream_and_answers_queries(
    spark: "SparkSession", broker: LocalBroker, tmp_path: Path
) -> None:
    """A stream joined with a table that changes: each row gets the value of its time. The table answers over HTTP."""
    broker.create_topic("users", partitions=2)
    broker.create_topic("views", partitions=2)
    broker.create_topic("enriched", partitions=2)
    app = make_app(broker, tmp_path, "enricher")
    users = app.table("users", key="string", value="name string")
    views = app.stream("views", key="string", value="page string")
    views.join(users, name="view-user").to("enriched")
    with running(app):
        for name in ("Ada", "Grace"):
            send(broker, "users", [{"key": f"u{n}", "value": f'{{"name": "{name} {n}"}}'} for n in range(5)])
            wait_for_lag_zero(broker, app, ["users"])
            send(broker, "views", [{"key": f"u{n}", "value": '{"page": "home"}'} for n in range(5)])
            wait_for_lag_zero(broker, app, ["views"])
        wait_until(lambda: app.query("users").get("u3") == {"key": "u3", "name": "Grace 3"}, app)
    found = sorted(json.loads(each["value"])["name"] for each in read_records(broker, "enriched"))
    assert found == sorted(f"{name} {n}" for name in ("Ada", "Grace") for n in range(5))


def test_a_window_closes_when_its_source_is_idle(spark: "SparkSession", broker: LocalBroker, tmp_path: Path) -> None:
    """With close_idle a final window is written although no later record comes, also behind an exchange."""
    from pyspark.sql import functions as F

    broker.create_topic("sales", partitions=2)
    broker.create_topic("per-minute", partitions=2)
    rows = [("a", 3, 1_000), ("b", 4, 2_000), ("a", 5, 59_000)]
    send(
        broker,
        "sales",
        [
            {"value": json.dumps({"shop": shop, "amount": amount}), "timestamp": at, "partition": 0}
            for shop, amount, at in rows
        ],
    )
    app = make_app(broker, tmp_path, "revenue")
    sales = app.stream("sales", value="shop string, amount long")
    window = tumbling("2 seconds", close_idle="100 milliseconds")
    grouped = sales.group_by("shop").window(window)
    grouped.agg(F.sum("amount").alias("revenue"), name="revenue", emit="final").to("per-minute")
    with running(app):
        wait_until(lambda: len(read_records(broker, "per-minute")) == len(rows), app)
    assert sorted(json.loads(each["value"])["revenue"] for each in read_records(broker, "per-minute")) == [3, 4, 5]


def test_a_stream_waits_for_a_table_that_is_larger_than_a_batch(
    spark: "SparkSession", broker: LocalBroker, tmp_path: Path
) -> None:
    """Rows that are later than all of a table are joined with all of it, however few records a batch reads."""
    broker.create_topic("many-users", partitions=1)
    broker.create_topic("late-views", partitions=1)
    broker.create_topic("late-enriched", partitions=1)
    users = [{"key": f"u{n}", "value": f'{{"name": "{n}"}}', "timestamp": 1_000 + n} for n in range(20)]
    send(broker, "many-users", users)
    send(broker, "late-views", [{"key": "u19", "value": f'{{"page": "{n}"}}', "timestamp": 2_000} for n in range(3)])
    app = make_app(broker, tmp_path, "late-enricher", batch_rows=8)
    table = app.table("many-users", key="string", value="name string")
    app.stream("late-views", key="string", value="page string").join(table, name="view-user").to("late-enriched")
    with running(app):
        wait_for_lag_zero(broker, app, ["many-users", "late-views"])
    assert [json.loads(each["value"])["name"] for each in read_records(broker, "late-enriched")] == ["19"] * 3
