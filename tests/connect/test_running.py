"""Runs of connectors on a broker and Spark: what they write, and what becomes of failures."""

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ottla.client.client import Client
from ottla.connect.connectors.datagen.datagen_source import DatagenSource
from ottla.connect.connectors.files.file_sink import FileStreamSink
from ottla.connect.worker.runs import State
from ottla.streams.running.internal_topics import purge
from ottla.testing import LocalBroker
from ottla.topic_partition import TopicPartition
from tests.connect.fakes import Collecting, Counting, Shouting, read_collected
from tests.connect.runs import (
    RunningConnector,
    count_records,
    read_group,
    read_offsets,
    read_records,
    running,
    wait_until,
)
from tests.patience import PATIENCE_S
from tests.spark.topics import send

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_source_keeps_partitions_times_and_headers(spark: "SparkSession", broker: LocalBroker) -> None:
    """Three source partitions in two tasks; the topic is created as topic.creation.* says."""
    config = {"topic": "counted", "parts": 3, "tasks_max": 2}
    creation = {"topic_creation_default_partitions": 3, "topic_creation_default_replication_factor": 1}
    with running(spark, broker, Counting, "count", **config, **creation) as run:
        wait_until(lambda: count_records(broker, "counted") == 30, lambda: run.status)
        wait_until(lambda: run.count("source-record-write-total") == 30)
        assert run.status is not None
        assert [each.state for each in run.status.tasks] == [State.RUNNING, State.RUNNING]
        wait_until(lambda: run.statuses[-1].connector.trace is None, lambda: run.statuses)
        waited_for = dict.fromkeys(each.connector.trace for each in run.statuses if each.connector.trace)
        assert [each.split(":")[0] for each in waited_for] == [
            "waiting for Spark to start, as a new worker has to once",
            "waiting for its first batch",
        ]
    rows = read_records(broker, "counted")
    for number in range(3):
        mine = [each for each in rows if each["partition"] == number]
        assert [each["value"].decode() for each in mine] == [f"{number}:{n}" for n in range(10)]
        assert [round(each["timestamp"].timestamp() * 1000) for each in mine] == [1_000 + n for n in range(10)]
        assert [each["headers"] for each in mine] == [[{"key": "n", "value": str(n).encode()}] for n in range(10)]
    expected = [({"part": number}, {"next": 10}) for number in range(3)]
    assert sorted(read_offsets(broker, "count"), key=str) == expected


def test_a_task_tries_again_or_fails_alone(spark: "SparkSession", broker: LocalBroker, tmp_path: Path) -> None:
    """What a failed batch had sent is not seen. A task that cannot go on is FAILED without secrets; others go on."""
    trouble = tmp_path / "trouble"
    trouble.write_text("away")
    broker.create_topic("halting", partitions=2)
    config = {"topic": "halting", "parts": 2, "tasks_max": 2, "trouble": trouble}
    with running(spark, broker, Counting, "halt", **config) as run:
        wait_until(lambda: run.status is not None and any(each.trace for each in run.status.tasks))
        assert run.status is not None
        assert {each.state for each in run.status.tasks} == {State.RUNNING}
        assert count_records(broker, "halting") == 0
        trouble.write_text("bad")
        wait_until(lambda: run.status is not None and run.status.tasks[1].state is State.FAILED)
        trouble.unlink()
        wait_until(lambda: count_records(broker, "halting") == 10, lambda: run.status)
        wait_until(lambda: run.status is not None and run.status.tasks[0].trace is None, lambda: run.status)
        assert run.status.tasks[1].trace == "part 1 has trouble with [hidden]"
    assert [each["value"].decode() for each in read_records(broker, "halting")] == [f"0:{n}" for n in range(10)]


def test_bad_records_become_dead_letters(spark: "SparkSession", broker: LocalBroker, tmp_path: Path) -> None:
    """Records that a converter, a transformation or the target refuses; Kafka Connect's headers say why."""
    broker.create_topic("mixed", partitions=1)
    values = [b'"good"', b"{broken", b'"drop"', b'"fail"', b'"refused"', b'"last"']
    headers = [("from", b"me")]
    send(broker, "mixed", [{"value": value, "timestamp": 5_000, "headers": headers} for value in values])
    config = {
        "topics": "mixed",
        "out": tmp_path / "out",
        "value_converter": "org.apache.kafka.connect.json.JsonConverter",
        "value_converter_schemas_enable": "false",
        "errors_tolerance": "all",
        "errors_log_enable": "true",
        "errors_deadletterqueue_topic_name": "letters",
        "errors_deadletterqueue_topic_replication_factor": 1,
        "errors_deadletterqueue_context_headers_enable": "true",
    }
    with running(spark, broker, Collecting, "sort", transforms=Quiet(), **config) as run:
        wait_until(lambda: read_group(broker, "sort") == {TopicPartition("mixed", 0): 6}, lambda: run.status)
        wait_until(lambda: run.count("total-records-skipped") == 3)
        assert (
            run.run.task_metrics[0].items() >= {"lag": 0, "sink-record-lag-max": 0, "sink-record-read-total": 6}.items()
        )
    assert [each[4] for each in read_collected(tmp_path / "out")] == ["GOOD", "LAST"]
    letters = read_records(broker, "letters")
    assert [each["value"] for each in letters] == [values[1], values[3], values[4]]
    found = [{each["key"]: each["value"].decode() for each in letter["headers"]} for letter in letters]
    prefix = "__connect.errors."
    stages = ["VALUE_CONVERTER", "TRANSFORMATION", "TASK_PUT"]
    assert [each[f"{prefix}stage"] for each in found] == stages
    assert [each[f"{prefix}offset"] for each in found] == ["1", "3", "4"]
    assert {each["from"] for each in found} == {"me"}
    assert {each[f"{prefix}topic"] for each in found} == {"mixed"}
    assert {each[f"{prefix}connector.name"] for each in found} == {"sort"}
    assert found[1][f"{prefix}exception.message"] == "this value cannot be shouted"
    assert {round(each["timestamp"].timestamp() * 1000) for each in letters} == {5_000}


class Quiet(Shouting):
    """Lets the word pass that the target refuses."""

    def apply(self, record):  # type: ignore[no-untyped-def]
        return record if record.value == "refused" else super().apply(record)


def test_a_sink_without_tolerance_stops_at_a_bad_record(
    spark: "SparkSession", broker: LocalBroker, tmp_path: Path
) -> None:
    """The task is FAILED, the first line of its trace names the record, and no offset is committed."""
    broker.create_topic("strict", partitions=1)
    send(broker, "strict", [{"value": value} for value in ("good", "fail")])
    with running(
        spark, broker, Collecting, "strict", transforms=Shouting(), topics="strict", out=tmp_path / "o"
    ) as run:
        wait_until(lambda: run.status is not None and any(each.state is State.FAILED for each in run.status.tasks))
        assert run.status is not None
        assert run.status.connector.state is State.RUNNING
        assert (run.status.tasks[0].trace or "").startswith("a record of strict-0 at offset 1 failed at stage TRANSFOR")
    assert read_group(broker, "strict") == {}
    assert not (tmp_path / "o").exists()


def test_a_sink_waits_for_its_target_and_finds_new_topics(
    spark: "SparkSession", broker: LocalBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A target that is away is tried again; a paused sink writes nothing; topics.regex finds a topic made later."""
    monkeypatch.setattr("ottla.connect.running.sink_loop.REFRESH_S", 0.2)
    trouble, out = tmp_path / "trouble", tmp_path / "out"
    trouble.touch()
    broker.create_topic("found.a", partitions=1)
    send(broker, "found.a", [{"value": "1", "key": "k", "timestamp": 7}])
    config = {"topics_regex": r"found\..*", "out": out, "trouble": trouble}
    with running(spark, broker, Collecting, "find", **config) as run:
        wait_until(lambda: run.status is not None and any(each.trace for each in run.status.tasks))
        trouble.unlink()
        wait_until(lambda: len(read_collected(out)) == 1, lambda: run.status)
        broker.create_topic("found.b", partitions=2)
        send(broker, "found.b", [{"value": "2", "partition": 1, "timestamp": 8}])
        wait_until(lambda: len(read_collected(out)) == 2, lambda: run.status)
        run.run.pause()
        wait_until(lambda: run.status is not None and run.status.connector.state is State.PAUSED)
        send(broker, "found.b", [{"value": "3", "partition": 0, "timestamp": 9}])
        run.run.resume()
        wait_until(lambda: len(read_collected(out)) == 3, lambda: run.status)
    rows = [["found.a", 0, 0, "k", "1", 7], ["found.b", 1, 0, None, "2", 8], ["found.b", 0, 0, None, "3", 9]]
    assert read_collected(out) == rows


def test_records_that_are_gone(spark: "SparkSession", broker: LocalBroker, tmp_path: Path) -> None:
    """auto.offset.reset decides where to go on; a target that keeps its own positions is not written to wrongly."""
    broker.create_topic("shrinking", partitions=1)
    where = TopicPartition("shrinking", 0)
    send(broker, "shrinking", [{"value": f"{n}"} for n in range(2)])
    config = {"topics": "shrinking", "out": tmp_path / "out"}
    with running(spark, broker, Collecting, "shrink", **config) as run:
        wait_until(lambda: read_group(broker, "shrink") == {where: 2}, lambda: run.status)
    send(broker, "shrinking", [{"value": f"{n}"} for n in range(2, 6)])
    client = Client({"bootstrap.servers": broker.bootstrap})
    purge(client, {where: 4})
    client.close()
    with running(spark, broker, Collecting, "shrink", **config) as run:
        wait_until(lambda: read_group(broker, "shrink") == {where: 6}, lambda: run.status)
    assert [each[4] for each in read_collected(tmp_path / "out")] == ["0", "1", "4", "5"]
    ledger = tmp_path / ".lines.keeps.ledger"
    ledger.write_text(json.dumps({"epoch": 1, "positions": {"shrinking-0": 99}, "intent": None}))
    with running(spark, broker, FileStreamSink, "keeps", topics="shrinking", file=tmp_path / "lines") as run:
        wait_until(lambda: run.status is not None and run.status.connector.state is State.FAILED)
        assert run.status is not None
        assert (run.status.connector.trace or "").startswith(
            "shrinking-0: the target says that it has everything up to offset 99"
        )


def test_an_older_run_is_fenced(spark: "SparkSession", broker: LocalBroker, tmp_path: Path) -> None:
    """Two runs of a source at once: the older one ends by itself, and every number is there once."""
    trouble = tmp_path / "trouble"
    trouble.write_text("away")
    broker.create_topic("fought-over", partitions=1)
    config = {"topic": "fought-over", "limit": "60", "trouble": str(trouble)}
    older = RunningConnector(spark, broker.bootstrap, Counting, "fight", config)
    older.run.start()
    wait_until(lambda: older.status is not None and any(each.trace for each in older.status.tasks))
    with running(spark, broker, Counting, "fight", **config) as newer:
        wait_until(lambda: newer.status is not None and any(each.trace for each in newer.status.tasks))
        trouble.unlink()
        wait_until(lambda: count_records(broker, "fought-over") == 60, lambda: newer.status)
        assert older.run.join(PATIENCE_S)
    values = [each["value"].decode() for each in read_records(broker, "fought-over")]
    assert values == [f"0:{n}" for n in range(60)]
    assert json.dumps(read_offsets(broker, "fight")) == '[[{"part": 0}, {"next": 60}]]'


def test_made_up_records_go_on_after_a_restart(spark: "SparkSession", broker: LocalBroker) -> None:
    """Stopped somewhere and started again: the records of both tasks are those of one run, each once."""
    settings = {
        "kafka_topic": "made-up",
        "quickstart": "pageviews",
        "max_interval": 0,
        "iterations": 12_000,
        "tasks_max": 2,
        "value_converter": "org.apache.kafka.connect.json.JsonConverter",
        "value_converter_schemas_enable": "false",
    }
    with running(spark, broker, DatagenSource, "made-up", **settings) as source:
        wait_until(lambda: count_records(broker, "made-up") > 0, lambda: source.status)
    with running(spark, broker, DatagenSource, "made-up", **settings) as again:
        wait_until(lambda: count_records(broker, "made-up") >= 24_000, lambda: again.status)
    times = Counter(json.loads(each["value"])["viewtime"] for each in read_records(broker, "made-up"))
    assert times == Counter({1 + 10 * n: 2 for n in range(12_000)})
