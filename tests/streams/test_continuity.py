"""What an app depends on disappears: it ends or does not start, in one line, instead of counting wrongly."""

import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ottla.client.client import Client
from ottla.client.groups import fetch_offsets
from ottla.streams.app import App
from ottla.streams.errors import FencedApp, IncompatibleTopology, StreamsError
from ottla.streams.queries import QueryFailed
from ottla.streams.running import loop
from ottla.streams.running.internal_topics import delete_topics
from ottla.streams.running.registration import find_registration
from ottla.testing import LocalBroker
from ottla.topic_partition import TopicPartition
from ottla.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.wire.messages.delete_groups import DeleteGroupsRequest
from tests.patience import PATIENCE_MS, PATIENCE_S
from tests.spark.topics import send
from tests.streams.apps import make_app, read_records, read_table, running, wait_for_lag_zero, wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def make_counter(broker: LocalBroker, directory: Path, name: str) -> App:
    """Counts records of the topic `name` by key."""
    app = make_app(broker, directory, name)
    app.stream(name, key="string", value="string").group_by("key").count(name="counts").to(f"{name}-out")
    return app


def count_some(broker: LocalBroker, directory: Path, name: str) -> None:
    """An app has counted one record each of two keys, and was stopped."""
    broker.create_topic(name, partitions=2)
    broker.create_topic(f"{name}-out", partitions=2)
    send(broker, name, [{"key": "a", "value": "1", "partition": 0}, {"key": "b", "value": "1", "partition": 1}])
    app = make_counter(broker, directory, name)
    with running(app):
        wait_until(lambda: read_table(broker, f"{name}-out") == {"a": {"count": 1}, "b": {"count": 1}}, app)


def refuse_start(broker: LocalBroker, directory: Path, name: str, reason: str) -> None:
    with pytest.raises(StreamsError, match=reason) as refusal:
        make_counter(broker, directory, name).start()
    assert f"ottla stream reset {name}" in str(refusal.value)
    assert "\n" not in str(refusal.value)


def delete(broker: LocalBroker, topics: Sequence[str]) -> None:
    client = Client({"bootstrap.servers": broker.bootstrap})
    assert delete_topics(client, topics) == [*topics]
    client.close()


def test_committed_offsets_that_are_gone_refuse_a_start(
    spark: "SparkSession", broker: LocalBroker, tmp_path: Path
) -> None:
    """The state is there and the offsets are not: from the beginning, every record would be counted twice."""
    count_some(broker, tmp_path, "forgotten")
    client = Client({"bootstrap.servers": broker.bootstrap})
    answer = client.ask_coordinator("group", "forgotten", DeleteGroupsRequest(groups_names=["forgotten"]))
    client.close()
    assert [each.error_code for each in answer.results] == [0]
    refuse_start(broker, tmp_path, "forgotten", r"forgotten-0 in group 'forgotten' is gone")


def test_a_changelog_that_is_gone_refuses_a_start(spark: "SparkSession", broker: LocalBroker, tmp_path: Path) -> None:
    """The offsets are there and the state is not: counts would begin at zero again."""
    count_some(broker, tmp_path, "emptied")
    delete(broker, ["emptied-counts-changelog"])
    refuse_start(broker, tmp_path, "emptied", "emptied-counts-changelog' was deleted")


def test_a_source_that_was_created_again_refuses_a_start(
    spark: "SparkSession", broker: LocalBroker, tmp_path: Path
) -> None:
    """With as many records as the old topic had, offsets look right, and the new records would be left out."""
    count_some(broker, tmp_path, "renewed")
    delete(broker, ["renewed"])
    broker.create_topic("renewed", partitions=2)
    send(broker, "renewed", [{"key": "a", "value": "1", "partition": number} for number in (0, 1)])
    refuse_start(broker, tmp_path, "renewed", "'renewed' was deleted and created again")


@pytest.mark.parametrize(("topic", "records"), [("short", 5), ("empty", 0)])
def test_a_source_that_is_created_again_ends_the_app(
    spark: "SparkSession", broker: LocalBroker, tmp_path: Path, topic: str, records: int
) -> None:
    """A running app does not wait in silence until the new topic has as many records as the old one had, and does not
    take the new topic for the old one if positions look right."""
    broker.create_topic(topic, partitions=1)
    broker.create_topic(f"{topic}-out", partitions=1)
    if records:
        send(broker, topic, [{"key": "a", "value": "1"}] * records)
    app = make_counter(broker, tmp_path, topic)
    app.start()
    wait_until(lambda: app.progress()["subtopologies"][0]["state"] == "running", app)
    wait_for_lag_zero(broker, app, [topic])
    delete(broker, [topic])
    broker.create_topic(topic, partitions=1)
    assert app.wait(PATIENCE_S)
    removed = f"{topic}-0: .* removed while the app ran|" if records else ""
    with pytest.raises(StreamsError, match=f"{removed}'{topic}' was deleted and created again"):
        app.stop()


def test_positions_of_idle_tasks_outlive_the_retention_of_offsets(
    spark: "SparkSession", ottla_broker: LocalBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brokers remove an offset that was not committed for a week, also while the app runs. Idle tasks commit again."""
    monkeypatch.setattr(loop, "COMMIT_AGAIN_SECONDS", 0.2)
    monkeypatch.setattr(loop, "FIRST_COMMIT_SECONDS", 0.2)
    count_some(ottla_broker, tmp_path, "idle")
    app = make_counter(ottla_broker, tmp_path, "idle")
    client = Client({"bootstrap.servers": ottla_broker.bootstrap})
    source = [TopicPartition("idle", number) for number in (0, 1)]
    with running(app):
        for _ in range(4):
            before = app.progress()["subtopologies"][0]["batches"]
            wait_until(partial(_has_run, app, before + 2), app)
            ottla_broker.advance(days=3)
    assert len(fetch_offsets(client, "idle", source)) == 2
    client.close()


def _has_run(app: App, batches: int) -> bool:
    found: int = app.progress()["subtopologies"][0]["batches"]
    return found >= batches


def test_an_idle_copy_gives_up_its_state_to_another(
    spark: "SparkSession", broker: LocalBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two copies with the same state_dir: the first has nothing to do, so nothing fails for it, and ends nevertheless.
    The second then opens the state and goes on counting."""
    monkeypatch.setattr(loop, "LOOK_SECONDS", 0.2)
    count_some(broker, tmp_path, "twice")
    first, second = make_counter(broker, tmp_path, "twice"), make_counter(broker, tmp_path, "twice")
    first.start()
    wait_until(lambda: _answers(first), first)
    with running(second):
        assert first.wait(PATIENCE_S)
        with pytest.raises(FencedApp, match="taken over"):
            first.stop()
        send(broker, "twice", [{"key": "a", "value": "1", "partition": 0}])
        wait_until(lambda: read_table(broker, "twice-out") == {"a": {"count": 2}, "b": {"count": 1}}, second)


def _answers(app: App) -> bool:
    """Whether the state is there. While it is read back, which may take any time, the app says so instead."""
    try:
        return app.query("counts").get("a") == {"key": "a", "count": 1}
    except QueryFailed:
        return False


def test_state_that_is_gone_is_restored_and_old_state_removed(
    spark: "SparkSession", broker: LocalBroker, tmp_path: Path
) -> None:
    """The state directory is deleted while the app is stopped; that of a store which the app has no more disappears."""
    count_some(broker, tmp_path, "wiped")
    server = tmp_path / "wiped" / "server-0"
    assert (server / "counts").is_dir()
    shutil.rmtree(tmp_path / "wiped")
    (server / "former" / "0").mkdir(parents=True)
    send(broker, "wiped", [{"key": "a", "value": "1", "partition": 0}])
    app = make_counter(broker, tmp_path, "wiped")
    with running(app):
        wait_until(lambda: read_table(broker, "wiped-out") == {"a": {"count": 2}, "b": {"count": 1}}, app)
    assert (server / "counts").is_dir()
    assert not (server / "former").exists()


def test_partitions_that_a_source_gets_are_read(
    spark: "SparkSession", broker: LocalBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without state they are read from their first record, in the running app and after the next start. With state the
    app ends with one line, and so does the next start."""
    monkeypatch.setattr(loop, "LOOK_SECONDS", 0.2)
    for topic in ("grown", "grown-out"):
        broker.create_topic(topic, partitions=1)

    def make_copier() -> App:
        app = make_app(broker, tmp_path, "copier-of-grown")
        app.stream("grown", key="string", value="string", start="latest").to("grown-out")
        return app

    def add_partition(count: int) -> None:
        client = Client({"bootstrap.servers": broker.bootstrap})
        topic = CreatePartitionsTopic(name="grown", count=count, assignments=None)
        answer = client.ask_any(CreatePartitionsRequest(topics=[topic], timeout_ms=PATIENCE_MS))
        client.close()
        assert [each.error_code for each in answer.results] == [0]
        send(broker, "grown", [{"key": "k", "value": f"{count}", "partition": count - 1}])

    app, counter = make_copier(), make_counter(broker, tmp_path, "grown")
    counter.start()
    with running(app):
        wait_for_lag_zero(broker, app, ["grown"])
        add_partition(2)
        wait_until(lambda: [each["value"] for each in read_records(broker, "grown-out")][-1:] == [b"2"], app)
    add_partition(3)
    app = make_copier()
    with running(app):
        wait_until(lambda: [each["value"] for each in read_records(broker, "grown-out")][-1:] == [b"3"], app)
    assert counter.wait(PATIENCE_S)
    with pytest.raises(IncompatibleTopology, match=r"'grown' had 1 partitions and has .*ottla stream reset grown"):
        counter.stop()
    refuse_start(broker, tmp_path, "grown", "'grown' had 1 partitions and has 3")


def test_rows_in_an_exchange_that_is_removed_refuse_a_start(
    spark: "SparkSession", broker: LocalBroker, tmp_path: Path
) -> None:
    """They were read from the source, and nobody would read them from the exchange any more."""
    for topic in ("moved", "moved-out"):
        broker.create_topic(topic, partitions=1)

    def make(*, with_exchange: bool) -> App:
        app = make_app(broker, tmp_path, "mover")
        rows = app.stream("moved", key="string", value="string")
        (rows.repartition(name="by-key") if with_exchange else rows).to("moved-out")
        return app

    app = make(with_exchange=True)
    send(broker, "moved", [{"key": "k", "value": "v"}])
    with running(app):
        wait_until(lambda: len(read_records(broker, "moved-out")) == 1, app)
        wait_for_lag_zero(broker, app, ["moved", "mover-by-key-repartition"])
    send(broker, "mover-by-key-repartition", [{"value": "a parcel", "partition": 0}])
    with pytest.raises(StreamsError, match="mover-by-key-repartition-0 has rows that were not read") as refusal:
        make(with_exchange=False).start()
    assert "ottla stream reset mover" in str(refusal.value)


def test_a_topic_that_is_read_again_goes_on_with_its_state_or_not_at_all(
    spark: "SparkSession", broker: LocalBroker, tmp_path: Path
) -> None:
    """A topology in between does not read the topic, and its old position stays. The store that belongs to it goes on
    counting; another one would miss what was read before, so it is refused."""
    count_some(broker, tmp_path, "apart")

    def make(topic: str, store: str) -> App:
        app = make_app(broker, tmp_path, "apart")
        rows = app.stream(topic, key="string", value="string")
        if store:
            rows.group_by("key").count(name=store).to("apart-out")
        else:
            rows.to("apart-copy")
        return app

    for topic in ("apart-copy", "apart-other"):
        broker.create_topic(topic, partitions=2)
    app = make("apart-other", "")
    with running(app):
        send(broker, "apart-other", [{"key": "o", "value": "1", "partition": 0}])
        wait_for_lag_zero(broker, app, ["apart-other"])
    send(broker, "apart", [{"key": "a", "value": "1", "partition": 0}])
    with pytest.raises(IncompatibleTopology, match="'recount' is new, but records of 'apart' have been read already"):
        make("apart", "recount").start()
    client = Client({"bootstrap.servers": broker.bootstrap})
    found = find_registration(client, "apart")
    client.close()
    assert found is not None
    assert "apart-counts-changelog" in found.internal_topics, "a reset would leave it behind"
    app = make("apart", "counts")
    with running(app):
        wait_until(lambda: read_table(broker, "apart-out") == {"a": {"count": 2}, "b": {"count": 1}}, app)
