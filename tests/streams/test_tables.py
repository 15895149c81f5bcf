"""Tables of a running app that are grouped anew and joined, over restarts and over versions of Ottla."""

import json
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from ottla.client.client import LATEST, READ_COMMITTED, Client
from ottla.client.groups import fetch_offsets
from ottla.streams.app import App
from ottla.streams.running import following
from ottla.testing import LocalBroker
from ottla.topic_partition import TopicPartition
from tests.spark.topics import send
from tests.streams.apps import make_app, read_records, read_table, running, wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTITIONS = 2
KEYS = 20


class Shops:
    """A topic of shops that change their city, move, and are deleted, and what must be counted."""

    def __init__(self, broker: LocalBroker, seed: int) -> None:
        self._broker = broker
        self._random = Random(seed)
        self.cities: dict[str, str] = {}
        for topic in ("shops", "per-city"):
            broker.create_topic(topic, partitions=PARTITIONS)

    def change(self, count: int) -> None:
        records = []
        for _ in range(count):
            key = f"shop-{self._random.randrange(KEYS)}"
            if self._random.random() < 0.2:
                self.cities.pop(key, None)
                records.append({"key": key, "value": None})
            else:
                self.cities[key] = self._random.choice(["Ulm", "ulm", "Bonn"])
                records.append({"key": key, "value": json.dumps({"city": self.cities[key], "owner": "somebody"})})
        send(self._broker, "shops", records)

    @property
    def counts(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for city in self.cities.values():
            found[city.upper()] = found.get(city.upper(), 0) + 1
        return found


def make(broker: LocalBroker, directory: Path) -> App:
    from pyspark.sql import functions as F

    app = make_app(broker, directory, "by-city", batch_rows=40)
    shops = app.table("shops", key="string", value="city string, owner string")
    shops.group_by(F.upper("city").alias("town")).count(name="counts").to("per-city")
    return app


def read_counts(broker: LocalBroker) -> Mapping[str, int]:
    """A group that has become empty stays, with a count of 0."""
    return {key: value["count"] for key, value in read_table(broker, "per-city").items() if value["count"]}


def read_positions(broker: LocalBroker) -> list[list[int]]:
    """What the groups of both subtopologies have committed of the topic, and where it ends."""
    places = [TopicPartition("shops", number) for number in range(PARTITIONS)]
    client = Client({"bootstrap.servers": broker.bootstrap})
    try:
        groups = [fetch_offsets(client, group, places) for group in ("by-city", "by-city-counts-source")]
        ends = client.list_offsets(dict.fromkeys(places, LATEST), READ_COMMITTED)
    finally:
        client.close()
    committed = [[found[where].offset if where in found else 0 for where in places] for found in groups]
    return [*committed, [ends[where].offset for where in places]]


def is_all_read(broker: LocalBroker) -> bool:
    own, counted, ends = read_positions(broker)
    return own == counted == ends


def test_a_table_by_another_key_goes_on_in_every_version(
    spark: "SparkSession", broker: LocalBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Versions before had tasks that moved the queryable table on. A start goes on with what they have left behind, and
    they with what it leaves behind: counts are right, the table answers, and the groups end where the topic does."""
    shops = Shops(broker, seed)
    find_leaders = following.find_leaders
    for is_followed in (False, True, True, False):
        monkeypatch.setattr(following, "find_leaders", find_leaders if is_followed else lambda plan: {})
        shops.change(150)
        app = make(broker, tmp_path)
        with running(app):
            shops.change(150)
            wait_until(lambda: is_all_read(broker), app)
            wait_until(lambda: read_counts(broker) == shops.counts, app)
            rows = {each["subtopology"]: each["rows_read"] for each in app.progress()["subtopologies"]}
            assert bool(rows["shops"]) is not is_followed
            found = {row["key"]: row["city"] for row in app.query("shops").all()}
            assert found == shops.cities
        assert is_all_read(broker)
    kept = read_records(broker, "by-city-counts-source-changelog")
    assert all("owner" not in json.loads(each["value"]) for each in kept if each["value"] is not None)


def test_a_join_of_tables_writes_one_change_for_each_key_and_batch(
    spark: "SparkSession", broker: LocalBroker, tmp_path: Path
) -> None:
    """What is there at the start is one batch. The table that is written is that of all changes."""
    for topic in ("stock", "prices", "offers"):
        broker.create_topic(topic, partitions=PARTITIONS)

    def write(topic: str, column: str, number: int) -> None:
        send(broker, topic, [{"key": f"{key}", "value": json.dumps({column: number})} for key in range(KEYS)])

    def is_written(expected: Any) -> bool:
        return read_table(broker, "offers") == {f"{key}": expected for key in range(KEYS)}

    for number in range(30):
        write("prices", "price", number)
    for number in range(30):
        write("stock", "pieces", number)
    app = make_app(broker, tmp_path, "offering")
    stock = app.table("stock", key="string", value="pieces long")
    stock.join(app.table("prices", key="string", value="price long"), name="offer").to("offers")
    with running(app):
        wait_until(lambda: is_written({"pieces": 29, "price": 29}), app)
        assert len(read_records(broker, "offers")) < 30 * KEYS
        write("prices", "price", 7)
        wait_until(lambda: is_written({"pieces": 29, "price": 7}), app)
