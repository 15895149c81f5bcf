"""Sessions of whole apps: however the input is cut into batches, they are those of a plain model."""

from collections import Counter
from datetime import datetime
from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

from ottla.streams import App, session
from tests.samples import sample_size

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GAP_MS = 3_000
PARTITIONS = 3

Row = dict[str, Any]


@pytest.fixture
def app(spark: "SparkSession") -> App:
    return App("sessions")


@pytest.fixture(params=range(sample_size(1, 60)))
def split(request: pytest.FixtureRequest, seed: int) -> int:
    """The seed of a random input and its cuts."""
    return seed * 1000 + int(request.param)


def make_clicks(random: Random) -> list[Row]:
    """Rows up to ten seconds out of order, with pauses between them."""
    clicks, time = [], 10_000
    for _ in range(60):
        time += random.choice([0, 100, 800, 5_000])
        at = time - (random.randint(0, 10_000) if random.random() < 0.3 else 0)
        clicks.append({"key": random.choice("abcdef"), "user": random.choice("xyz"), "_timestamp": at})
    return clicks


def sessions_of(clicks: list[Row], column: str) -> Counter[tuple[str, int, int, int]]:
    """Rows that are at most a gap apart, as user, times of the first and of the last row, and number of rows."""
    found: Counter[tuple[str, int, int, int]] = Counter()
    for user in {row[column] for row in clicks}:
        times = sorted(row["_timestamp"] for row in clicks if row[column] == user)
        starts = [0, *(at for at in range(1, len(times)) if times[at] - times[at - 1] > GAP_MS), len(times)]
        for start, end in pairwise(starts):
            found[user, times[start], times[end - 1], end - start] += 1
    return found


def in_ms(time: datetime) -> int:
    return round(time.timestamp() * 1000)


@pytest.mark.parametrize("column", ["key", "user"])
def test_sessions_that_are_updated(app: App, split: int, column: str) -> None:
    """With and without an exchange. Sessions that became part of others are deleted from the table."""
    clicks = app.stream("clicks", key="string", value="user string")
    grouped = clicks.group_by_key() if column == "key" else clicks.group_by("user")
    windowed = grouped.window(session(GAP_MS, grace="10 seconds"))
    windowed.agg(F.count("*").alias("rows"), name="built-in").to("built-in")
    windowed.aggregate(
        lambda: {"rows": 0},
        lambda value, row: {"rows": value["rows"] + 1},
        merge=lambda left, right: {"rows": left["rows"] + right["rows"]},
        schema="rows long",
        name="functions",
    ).to("functions")
    rows = make_clicks(Random(split))

    with app.test(partitions=PARTITIONS, split=split) as test:
        test.feed("clicks", rows)
        for topic in ("built-in", "functions"):
            found = test.table(topic)
            assert sessions_of(rows, column) == Counter(
                (user, in_ms(start), in_ms(end), value["rows"]) for (user, start, end), value in found.items()
            )


def test_sessions_that_come_out_once(app: App, split: int) -> None:
    """Behind an exchange, each session comes out once, when all partitions have passed it."""
    clicks = app.stream("clicks", key="string", value="user string")
    windowed = clicks.group_by("user").window(session(GAP_MS, grace="10 seconds"))
    windowed.agg(F.count("*").alias("rows"), name="sessions", emit="final").to("out")
    rows = make_clicks(Random(split))

    with app.test(partitions=PARTITIONS, split=split) as test:
        test.feed("clicks", rows)
        found = test.read("out")
        assert sum(each["value"]["rows"] for each in found) < len(rows)
        for partition in range(PARTITIONS):
            test.feed("clicks", [{"key": "end", "user": "end", "_timestamp": 10**9}], partition=partition)
        found += test.read("out")
    assert sessions_of(rows, "user") == Counter(
        (
            each["key"]["user"],
            in_ms(each["key"]["window_start"]),
            in_ms(each["key"]["window_end"]),
            each["value"]["rows"],
        )
        for each in found
    )
