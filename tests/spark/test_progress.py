"""Progress of queries in consumer groups, as Spark reports it to a listener."""

import time
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

import ottla.spark
from ottla.cli import main
from ottla.client.client import Client
from ottla.spark.progress import GroupCommitter, parse_topic_offsets
from ottla.testing import LocalBroker
from tests.patience import PATIENCE_S
from tests.spark.topics import committed, send, stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def progress(query_id: str, *ends: str) -> Any:
    sources = [SimpleNamespace(endOffset=end) for end in ends]
    return SimpleNamespace(progress=SimpleNamespace(id=query_id, sources=sources))


def test_the_end_of_a_batch_is_committed(broker: LocalBroker) -> None:
    """Only for the chosen query and topics, and only for offsets of topics."""
    broker.create_topic("seen", partitions=2)
    broker.create_topic("other")
    client = Client({"bootstrap.servers": broker.bootstrap})
    listener = GroupCommitter(client, "watchers", "mine", frozenset({"seen"}))
    listener.onQueryProgress(progress("another", '{"seen": {"0": 9, "1": 9}}'))
    listener.onQueryProgress(progress("mine", '{"seen": {"0": 3, "1": 5}}', '{"other": {"0": 1}}', "17", '{"path": 3}'))
    assert committed(broker, "watchers", "seen", 2) == [3, 5]
    assert committed(broker, "watchers", "other", 1) == [-1001]
    listener.onQueryTerminated(SimpleNamespace(id="mine"))  # type: ignore[arg-type]


def test_a_failed_commit_does_not_stop_a_query(broker: LocalBroker) -> None:
    client = Client({"bootstrap.servers": "127.0.0.1:1", "default.api.timeout.ms": "50"})
    GroupCommitter(client, "watchers", "mine", None).onQueryProgress(progress("mine", '{"seen": {"0": 3}}'))


def test_a_session_has_its_listener_once(spark: "SparkSession") -> None:
    """Two of them would commit everything twice."""
    listeners: Any = spark
    before = len(listeners._jsparkSession.streams().listListeners())
    assert ottla.spark.session() is spark
    assert len(listeners._jsparkSession.streams().listListeners()) == before >= 1


@pytest.mark.parametrize("trigger", [{"processingTime": "1 day"}, {"once": True}])
def test_the_group_of_a_query_that_waits_is_exact(
    spark: "SparkSession", broker: LocalBroker, tmp_path: Path, trigger: dict[str, Any]
) -> None:
    """Spark plans no second batch, so the source never learns that the first one has ended. The session's listener
    commits for each source with a group: also for the second of two, beside a static one and one without a group."""
    topic, group = f"waiting-{next(iter(trigger))}", f"patient-{next(iter(trigger))}"
    for name in (topic, f"{topic}-other"):
        broker.create_topic(name, partitions=2)
        send(broker, name, [{"value": f"{each}", "partition": each % 2} for each in range(6)])
    rows = stream(spark, broker, topic, startingOffsets="earliest", **{"kafka.group.id": group}).load()
    others = stream(spark, broker, f"{topic}-other", startingOffsets="earliest").load()
    static = spark.createDataFrame([("0",), ("1",)], "value string").selectExpr("binary(value) as value")
    both = others.select("value").union(rows.select("value")).union(rows.select("value")).join(static, "value")
    query = both.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).trigger(**trigger).start()
    try:
        deadline = time.monotonic() + PATIENCE_S
        while committed(broker, group, topic, 2) != [3, 3]:
            assert time.monotonic() < deadline and query.exception() is None
            time.sleep(0.05)
        assert committed(broker, group, f"{topic}-other", 2) == [-1001, -1001]
    finally:
        query.stop()


def test_offsets_of_other_sources_are_ignored() -> None:
    for text in (None, "", "null", "12", '{"a": 1}', '{"a": {"x": 1}}', "[1]", '"text"', '{"a": {"0": {"b": 1}}}'):
        assert parse_topic_offsets(text) == {}


def test_every_tool_shows_how_far_a_running_query_is(
    spark: "SparkSession", broker: LocalBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The last batch counts too, without a next one, and what the query has not read is the group's lag."""
    broker.create_topic("watched", partitions=2)
    send(broker, "watched", [{"value": f"{each}", "partition": each % 2} for each in range(6)])
    rows = stream(spark, broker, "watched", startingOffsets="earliest").load()
    query = rows.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).start()
    listener = ottla.spark.commit_group_offsets(query, "live-watchers", {"bootstrap.servers": broker.bootstrap})
    try:
        send(broker, "watched", [{"value": "more", "partition": 0}])  # the first batch may have ended already
        deadline = time.monotonic() + PATIENCE_S
        while committed(broker, "live-watchers", "watched", 2) != [4, 3]:
            assert time.monotonic() < deadline and query.isActive
            time.sleep(0.05)
    finally:
        query.stop()
        spark.streams.removeListener(listener)
        listener.onQueryTerminated(SimpleNamespace(id=query.id))  # type: ignore[arg-type]  # it may not hear of it
    send(broker, "watched", [{"value": "behind", "partition": 1} for _ in range(3)])
    assert main(["group", "describe", "live-watchers", "-b", broker.bootstrap]) == 0
    assert "live-watchers: empty, classic, 0 members, lag 3" in capsys.readouterr().out
