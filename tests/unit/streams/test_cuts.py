"""For each operator: however the input is cut into batches, final tables and final windows are those of a plain model.

Input is random, with several partitions, rows out of order and late, and deletions. The driver cuts it at random,
processes tasks in random order and gives up some batches (`split=`). Each model is a few lines of plain Python.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

from ottla.streams import App, hopping, session, tumbling
from ottla.streams.processors import Context, Emit, Processor, Timer, ValueState
from ottla.streams.tasks.placement import choose_partitions
from ottla.streams.testing import TestDriver
from tests.samples import sample_size

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTITIONS = 3
EVENT = "shop string, amount long"
GRACE_MS = 4_000

Row = dict[str, Any]
Table = dict[Any, Any]


@pytest.fixture
def app(spark: "SparkSession") -> App:
    return App("cuts")


@pytest.fixture(params=range(sample_size(1, 60)))
def split(request: pytest.FixtureRequest, seed: int) -> int:
    """The seed of a random input and its cuts."""
    return seed * 1000 + int(request.param)


def make_events(random: Random, count: int = 60) -> list[Row]:
    """Rows of a stream whose time goes forward, but for every third row, which is up to ten seconds behind."""
    return [
        {
            "key": random.choice("abcdefg"),
            "shop": random.choice("xyz"),
            "amount": random.randint(-5, 20),
            "_timestamp": max(0, number * 500 - (random.randint(0, 10_000) if random.random() < 0.3 else 0)),
        }
        for number in range(count)
    ]


def make_changes(random: Random, count: int = 60, keys: str = "abcdefg") -> list[Row]:
    """Changes of a table, every fourth of which deletes its key."""
    changes = []
    for number in range(count):
        row: Row = {"key": random.choice(keys), "_timestamp": number * 100}
        if random.random() > 0.25:
            row |= {"shop": random.choice("xyz"), "amount": random.randint(0, 20)}
        changes.append(row)
    return changes


def newest(changes: Sequence[Row]) -> Table:
    """The table that changes make: the order of offsets decides."""
    table: Table = {}
    for row in changes:
        table.pop(row["key"], None)
        if "shop" in row:
            table[row["key"]] = {"shop": row["shop"], "amount": row["amount"]}
    return table


def run(app: App, split: int | None, **feeds: Sequence[Row]) -> TestDriver:
    test = app.test(partitions=PARTITIONS, split=split)
    for topic, rows in feeds.items():
        test.feed(topic, rows)
    return test


def with_stream_times(events: Sequence[Row]) -> Iterator[tuple[Row, int]]:
    """Each row with the highest time that its own partition had reached."""
    reached: Counter[int] = Counter()
    for row in events:
        (partition,) = choose_partitions([row["key"].encode()], PARTITIONS, 0).tolist()
        reached[partition] = max(reached[partition], row["_timestamp"])
        yield row, reached[partition]


def lowest_time(events: Sequence[Row]) -> int:
    """The time that all partitions have reached at the end: up to there windows are closed."""
    reached: dict[int, int] = {}
    for row, time in with_stream_times(events):
        (partition,) = choose_partitions([row["key"].encode()], PARTITIONS, 0).tolist()
        reached[partition] = time
    return min(reached.values())


def windowed_sums(events: Sequence[Row], size: int, advance: int) -> tuple[dict[tuple[str, int], int], int]:
    """The sum of amounts by shop and start of the window, and how many rows are too late for all of their windows."""
    sums: Counter[tuple[str, int]] = Counter()
    late = 0
    for row, stream_time in with_stream_times(events):
        time = row["_timestamp"]
        starts = [start for start in range(0, time + 1, advance) if start <= time < start + size]
        open_ones = [start for start in starts if start + size + GRACE_MS > stream_time]
        late += not open_ones
        for start in open_ones:
            sums[row["shop"], start] += row["amount"]
    return dict(sums), late


def to_ms(time: datetime) -> int:
    return round(time.timestamp() * 1000)


def windows_of(table: Table) -> dict[tuple[str, int], int]:
    return {(shop, to_ms(start)): value["total"] for (shop, start, _), value in table.items()}


def test_columns_and_functions(app: App, split: int) -> None:
    events = app.stream("events", key="string", value=EVENT)
    dear = events.filter(F.col("amount") > 5).with_columns(twice=F.col("amount") * 2)
    dear.filter(lambda row: row["shop"] != "x").map(
        lambda row: {"total": row["twice"]}, schema="total long"
    ).with_columns(more="total + 1").to("out")
    rows = make_events(Random(split))

    with run(app, split, events=rows) as test:
        found = Counter((each["key"], each["value"]["total"], each["timestamp"]) for each in test.read("out"))
    expected = (row for row in rows if row["amount"] > 5 and row["shop"] != "x")
    assert found == Counter((row["key"], row["amount"] * 2, row["_timestamp"]) for row in expected)


def test_built_in_aggregates_behind_an_exchange(app: App, split: int) -> None:
    events = app.stream("events", key="string", value=EVENT)
    events.group_by("shop").agg(
        F.count("*").alias("rows"), F.sum("amount").alias("total"), F.max("amount").alias("most"), name="shops"
    ).to("shops")
    rows = make_events(Random(split))

    expected: Table = {}
    for row in rows:
        before = expected.get(row["shop"], {"rows": 0, "total": 0, "most": row["amount"]})
        expected[row["shop"]] = {
            "rows": before["rows"] + 1,
            "total": before["total"] + row["amount"],
            "most": max(before["most"], row["amount"]),
        }
    with run(app, split, events=rows) as test:
        assert test.table("shops") == expected
        assert test.query("shops").get("x") == {"shop": "x", **expected["x"]}


def test_functions_see_the_rows_of_a_key_in_order(app: App, split: int) -> None:
    events = app.stream("events", key="string", value=EVENT)
    events.group_by_key().reduce(
        lambda one, other: {**other, "amount": one["amount"] * 3 + other["amount"]}, name="reduced"
    ).to("reduced")
    events.group_by_key().aggregate(
        lambda: {"shops": ""},
        lambda value, row: {"shops": value["shops"] + row["shop"]},
        schema="shops string",
        name="shops",
    ).to("shops")
    rows = make_events(Random(split))

    reduced: Table = {}
    shops: dict[str, str] = defaultdict(str)
    for row in rows:
        before = reduced.get(row["key"])
        amount = row["amount"] if before is None else before["amount"] * 3 + row["amount"]
        reduced[row["key"]] = {"shop": row["shop"], "amount": amount}
        shops[row["key"]] += row["shop"]
    with run(app, split, events=rows) as test:
        assert test.table("reduced") == reduced
        assert test.table("shops") == {key: {"shops": text} for key, text in shops.items()}


def test_merged_and_repartitioned_streams(app: App, split: int) -> None:
    one, other = (app.stream(topic, key="string", value=EVENT) for topic in ("one", "other"))
    merged = one.filter("amount > 0").merge(other)
    merged.select_key("shop").repartition(name="by-shop", partitions=5).group_by_key().count(name="counts").to("counts")
    random = Random(split)
    rows, others = make_events(random), make_events(random, 30)

    with run(app, split, one=rows, other=others) as test:
        expected = Counter(row["shop"] for row in (*(each for each in rows if each["amount"] > 0), *others))
        assert test.table("counts") == {shop: {"count": count} for shop, count in expected.items()}


@pytest.mark.parametrize(("size", "advance"), [(5_000, 5_000), (6_000, 2_000)])
def test_windows_that_are_updated(app: App, split: int, size: int, advance: int) -> None:
    events = app.stream("events", key="string", value=EVENT)
    window = tumbling(size, grace=GRACE_MS) if size == advance else hopping(size, advance, grace=GRACE_MS)
    events.group_by("shop").window(window).agg(F.sum("amount").alias("total"), name="totals", late="late").to("totals")
    rows = make_events(Random(split))

    expected, late = windowed_sums(rows, size, advance)
    with run(app, split, events=rows) as test:
        assert windows_of(test.table("totals")) == expected
        assert len(test.read("late")) == late


@pytest.mark.parametrize(("size", "advance"), [(5_000, 5_000), (6_000, 2_000)])
def test_windows_that_come_out_once(app: App, split: int, size: int, advance: int) -> None:
    events = app.stream("events", key="string", value=EVENT)
    window = tumbling(size, grace=GRACE_MS) if size == advance else hopping(size, advance, grace=GRACE_MS)
    grouped = events.group_by("shop").window(window)
    grouped.agg(F.sum("amount").alias("total"), name="totals", emit="final").to("totals")
    rows = make_events(Random(split))

    sums, _ = windowed_sums(rows, size, advance)
    closed = lowest_time(rows)
    with run(app, split, events=rows) as test:
        found = test.read("totals")
    keys = [(each["key"]["shop"], to_ms(each["key"]["window_start"])) for each in found]
    assert len(set(keys)) == len(keys)
    assert dict(zip(keys, (each["value"]["total"] for each in found), strict=True)) == {
        (shop, start): total for (shop, start), total in sums.items() if start + size + GRACE_MS <= closed
    }


def sessions_of(rows: Sequence[Row], gap: int) -> dict[tuple[str, int, int], int]:
    """The sum of amounts by shop, first and last time of each session."""
    found: dict[tuple[str, int, int], int] = {}
    for shop in "xyz":
        mine = sorted((row["_timestamp"], row["amount"]) for row in rows if row["shop"] == shop)
        sessions: list[list[tuple[int, int]]] = []
        for each in mine:
            if sessions and each[0] - sessions[-1][-1][0] <= gap:
                sessions[-1].append(each)
            else:
                sessions.append([each])
        found |= {(shop, each[0][0], each[-1][0]): sum(amount for _, amount in each) for each in sessions}
    return found


@pytest.mark.parametrize("emit", ["update", "final"])
def test_sessions(app: App, split: int, emit: str) -> None:
    events = app.stream("events", key="string", value=EVENT)
    grouped = events.group_by("shop").window(session("1 second", grace="1 hour"))
    grouped.agg(F.sum("amount").alias("total"), name="totals", emit=emit).to("totals")
    rows = make_events(Random(split))

    with run(app, split, events=rows) as test:
        for partition in range(PARTITIONS):  # rows of another group close all sessions
            end = {"key": "end", "shop": "end", "amount": 0, "_timestamp": 10**9}
            test.feed("events", [end], partition=partition)
        table = {
            (shop, to_ms(start), to_ms(end)): value["total"]
            for (shop, start, end), value in test.table("totals").items()
            if shop != "end"
        }
        assert table == sessions_of(rows, 1_000)
        if emit == "final":
            assert len(test.read("totals")) == len(table)


def test_tables_filtered_and_mapped(app: App, split: int) -> None:
    users = app.table("users", key="string", value=EVENT)
    users.filter("amount > 8").with_columns(twice="amount * 2").to("columns")
    users.filter(lambda row: row["amount"] > 8).map(lambda row: {"half": row["amount"] // 2}, schema="half long").to(
        "functions"
    )
    changes = make_changes(Random(split))

    kept = {key: value["amount"] for key, value in newest(changes).items() if value["amount"] > 8}
    with run(app, split, users=changes) as test:
        assert {key: value["twice"] for key, value in test.table("columns").items()} == {
            key: amount * 2 for key, amount in kept.items()
        }
        assert test.table("functions") == {key: {"half": amount // 2} for key, amount in kept.items()}
        assert {row["key"]: {"shop": row["shop"], "amount": row["amount"]} for row in test.query("users").all()} == (
            newest(changes)
        )


def test_streams_as_tables(app: App, split: int) -> None:
    app.stream("events", key="string", value=EVENT).to_table(name="newest").to("out")
    changes = make_changes(Random(split))

    with run(app, split, events=changes) as test:
        assert test.table("out") == newest(changes)


@pytest.mark.parametrize("is_filtered", [False, True])
def test_grouped_tables(app: App, split: int, is_filtered: bool) -> None:
    """A change takes the old value away from its group. A group that has become empty stays, as in Kafka Streams. One
    that a row has passed through within a batch may be left out: of a key, Columns get the newest change of a batch."""
    users = app.table("users", key="string", value=EVENT)
    table = users.filter("amount > 8") if is_filtered else users
    grouped = table.group_by("shop")
    grouped.agg(F.count("*").alias("rows"), F.sum("amount").alias("total"), name="shops").to("shops")
    grouped.aggregate(
        lambda: {"total": 0},
        lambda value, row: {"total": value["total"] + row["amount"]},
        lambda value, row: {"total": value["total"] - row["amount"]},
        schema="total long",
        name="totals",
    ).to("totals")
    changes = make_changes(Random(split))

    seen = {row["shop"] for row in changes if "shop" in row and (row["amount"] > 8 or not is_filtered)}
    rows = [row for row in newest(changes).values() if row["amount"] > 8 or not is_filtered]
    amounts = {shop: [row["amount"] for row in rows if row["shop"] == shop] for shop in seen}
    with run(app, split, users=changes) as test:
        shops = test.table("shops")
        assert shops == {
            shop: {"rows": len(found), "total": sum(found) if found else None}
            for shop, found in amounts.items()
            if found or shop in shops
        }
        assert test.table("totals") == {shop: {"total": sum(found)} for shop, found in amounts.items()}
        test.feed("users", [{"key": key, "_timestamp": 100_000} for key in newest(changes)])
        assert test.table("shops") == {shop: {"rows": 0, "total": None} for shop in shops}


@pytest.mark.parametrize("how", ["inner", "left", "outer"])
def test_tables_with_tables(app: App, split: int, how: str) -> None:
    """Topics with different numbers of partitions are brought together."""
    left, right = (app.table(topic, key="string", value=EVENT) for topic in ("left", "right"))
    left.join(right, how=how, name="both").to("both")
    random = Random(split)
    changes, others = make_changes(random, 40), make_changes(random, 40)

    one, two = newest(changes), newest(others)
    keys = {"inner": one.keys() & two.keys(), "left": one.keys(), "outer": one.keys() | two.keys()}[how]
    nothing = {"shop": None, "amount": None}
    with app.test(partitions={"left": 2, "right": 5, "both": 3}, split=split) as test:
        test.feed("left", changes)
        test.feed("right", others)
        assert test.table("both") == {
            key: {
                **{f"{name}_left": value for name, value in one.get(key, nothing).items()},
                **{f"{name}_right": value for name, value in two.get(key, nothing).items()},
            }
            for key in keys
        }


@pytest.mark.parametrize("how", ["inner", "left"])
def test_streams_with_a_table_that_rests(app: App, split: int, how: str) -> None:
    """What a row meets depends on when it comes, so the table is there before the stream."""
    events = app.stream("events", key="string", value=EVENT).filter("amount > 0").select("amount")
    users = app.table("users", key="string", value="shop string")
    events.join(users, how=how).to("out")
    random = Random(split)
    rows, changes = make_events(random), make_changes(random, keys="abcd")
    known = newest(changes)

    with app.test(partitions=PARTITIONS, split=split) as test:
        test.feed("users", [{name: row[name] for name in ("key", "shop") if name in row} for row in changes])
        assert test.read("out") == []
        test.feed("events", rows)
        found = Counter((each["key"], *each["value"].values()) for each in test.read("out"))
    assert found == Counter(
        (row["key"], row["amount"], known.get(row["key"], {"shop": None})["shop"])
        for row in rows
        if row["amount"] > 0 and (row["key"] in known or how == "left")
    )


@pytest.mark.parametrize("how", ["inner", "left"])
def test_streams_with_streams(app: App, split: int, how: str) -> None:
    left, right = (app.stream(topic, key="string", value=EVENT) for topic in ("left", "right"))
    joined = left.join(
        right.select("amount"), how=how, before="2 seconds", after="3 seconds", grace="1 day", name="join"
    )
    joined.select("amount_left", "amount_right").to("out")
    random = Random(split)
    rows, others = make_events(random, 40), make_events(random, 40)

    pairs: list[tuple[str, int, int | None]] = []
    for row in rows:
        times = range(row["_timestamp"] - 2_000, row["_timestamp"] + 3_001)
        matches = [each for each in others if each["key"] == row["key"] and each["_timestamp"] in times]
        pairs += [(row["key"], row["amount"], each["amount"]) for each in matches]
        if not matches and how == "left":
            pairs.append((row["key"], row["amount"], None))
    with run(app, split, left=rows, right=others) as test:
        test.read("left")
        for partition in range(PARTITIONS):  # the last rows close all windows before them, and have no match
            for topic, key in (("left", "end"), ("right", "other end")):
                end = {"key": key, "shop": "x", "amount": 0, "_timestamp": 10**9}
                test.feed(topic, [end], partition=partition)
        found = Counter((each["key"], *each["value"].values()) for each in test.read("out") if each["key"] != "end")
    assert found == Counter(pairs)


@pytest.mark.parametrize("how", ["inner", "left"])
def test_tables_with_tables_by_a_foreign_key(app: App, split: int, how: str) -> None:
    """Both tables change all the time, and answers cross changes on their way."""
    placed = app.table("placed", key="string", value=EVENT)
    shops = app.table("shops", key="string", value="city string")
    placed.join(shops, on="shop", how=how, name="view").to("out")
    random = Random(split)
    changes, moves = make_changes(random), make_changes(random, keys="xyz")
    cities = [{"key": row["key"], **({"city": row["shop"]} if "shop" in row else {})} for row in moves]

    known = {key: value["shop"] for key, value in newest(moves).items()}
    with run(app, split, placed=changes, shops=cities) as test:
        assert test.table("out") == {
            key: {**row, "city": known.get(row["shop"])}
            for key, row in newest(changes).items()
            if row["shop"] in known or how == "left"
        }
        assert len(test.query("view").all()) == len(test.table("out"))


def test_a_foreign_key_join_of_an_aggregate_that_is_grouped_again(app: App, split: int) -> None:
    """The left side is an aggregate, and the result is grouped by a column of the right side."""
    events = app.stream("events", key="string", value=EVENT)
    shops = app.table("shops", key="string", value="city string")
    last = events.group_by_key().reduce(lambda _, row: row, name="last")
    last.join(shops, on="shop", name="view").group_by("city").count(name="cities").to("out")
    random = Random(split)
    rows, moves = make_events(random), make_changes(random, keys="xyz")
    cities = [{"key": row["key"], **({"city": row["shop"]} if "shop" in row else {})} for row in moves]

    known = {key: value["shop"] for key, value in newest(moves).items()}
    counts = Counter(known[row["shop"]] for row in newest(rows).values() if row["shop"] in known)
    with run(app, split, events=rows, shops=cities) as test:
        assert {city: value["count"] for city, value in test.table("out").items() if value["count"]} == counts


class Runs(Processor):
    """Sums the amounts of a key until a time without rows of 2 seconds, and tells of negative ones."""

    total = ValueState("long")

    def process(self, row: Row, context: Context) -> Iterator[Row | Emit]:
        self.total.value = (self.total.value or 0) + row["amount"]
        context.timer("end", context.timestamp + timedelta(seconds=2))
        if row["amount"] < 0:
            yield Emit({"amount": row["amount"]}, output="negative")

    def on_timer(self, timer: Timer, context: Context) -> Iterator[Row]:
        yield {"total": self.total.value}
        self.total.clear()


def test_processors_with_state_and_timers(app: App, split: int) -> None:
    """Rows of a key are in order, so what a timer sees does not depend on the cuts."""
    events = app.stream("events", key="string", value=EVENT)
    runs = events.filter("amount <> 0").process(
        Runs, schema="total long", name="runs", outputs={"negative": "amount long"}
    )
    runs.to("totals")
    runs.output("negative").to("negative")
    rows = sorted(make_events(Random(split)), key=lambda row: row["_timestamp"])

    totals: Counter[tuple[str, int]] = Counter()
    for key in "abcdefg":
        mine = [row for row in rows if row["key"] == key and row["amount"]]
        total = 0
        for row, following in zip(mine, [*mine[1:], None], strict=True):
            total += row["amount"]
            if following is None or following["_timestamp"] >= row["_timestamp"] + 2_000:
                totals[key, total] += 1
                total = 0
    with run(app, split, events=rows) as test:
        for partition in range(PARTITIONS):
            end = {"key": "end", "shop": "x", "amount": 1, "_timestamp": 10**9}
            test.feed("events", [end], partition=partition)
        found = Counter((each["key"], each["value"]["total"]) for each in test.read("totals"))
        negative = Counter((each["key"], each["value"]["amount"]) for each in test.read("negative"))
    assert found == totals
    assert negative == Counter((row["key"], row["amount"]) for row in rows if row["amount"] < 0)
