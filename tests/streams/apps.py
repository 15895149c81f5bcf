"""Apps that run in a test, and what they have written."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ottla
from ottla.client.client import LATEST, READ_COMMITTED, Client
from ottla.client.groups import fetch_offsets
from ottla.streams.app import App
from ottla.testing import LocalBroker
from ottla.topic_partition import TopicPartition
from tests.patience import ask_now_and_then
from tests.spark.topics import Broker


def make_app(broker: LocalBroker, directory: Path, name: str, **options: Any) -> App:
    given = {"master": "local[2]", "interval_ms": 0, **options}
    return App(name, bootstrap=broker.bootstrap, state_dir=str(directory), **given)


@contextmanager
def running(app: App) -> Iterator[App]:
    app.start()
    try:
        yield app
    finally:
        app.stop()


def wait_until(condition: Callable[[], bool], app: App | None = None) -> None:
    """Wait for a condition. If the app ends meanwhile, raises what has ended it."""
    for _ in ask_now_and_then(lambda: "the condition does not come true" if app is None else app.progress()):
        if condition():
            return
        if app is not None and app.wait(0):
            app.stop()
            raise AssertionError("the app has ended")


def wait_for_lag_zero(broker: Broker, app: App, topics: Sequence[str]) -> None:
    """Wait until the app's group has committed everything that is in these topics."""
    client = Client({"bootstrap.servers": broker.bootstrap})
    try:
        wait_until(lambda: is_read(client, app.name, topics), app)
    finally:
        client.close()


def is_read(client: Client, group: str, topics: Sequence[str]) -> bool:
    """Whether a group has committed everything that is in these topics."""
    counts = client.count_partitions(topics)
    wanted = {TopicPartition(topic, number): LATEST for topic, count in counts.items() for number in range(count)}
    committed = fetch_offsets(client, group, wanted)
    ends = client.list_offsets(wanted, READ_COMMITTED)
    ahead = {where: end.offset for where, end in ends.items() if end.offset}
    return all(where in committed and committed[where].offset >= end for where, end in ahead.items())


def read_records(broker: Broker, topic: str) -> list[dict[str, Any]]:
    """The committed records of a topic, partition by partition."""
    columns = ("key", "value", "partition", "offset", "timestamp", "headers")
    reading = ottla.read(topic, bootstrap=broker.bootstrap, isolation="read_committed", columns=columns)
    rows: list[dict[str, Any]] = reading.to_arrow().to_pylist()
    return rows


def read_table(broker: Broker, topic: str) -> Mapping[str, Any]:
    """The newest value of each key: text keys, JSON values."""
    found: dict[str, Any] = {}
    for record in read_records(broker, topic):
        key = record["key"].decode()
        found.pop(key, None)
        if record["value"] is not None:
            found[key] = json.loads(record["value"])
    return found
