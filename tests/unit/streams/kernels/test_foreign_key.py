"""Foreign-key joins: the result of every schedule of the steps is the join of both tables."""

from random import Random
from typing import Any

import pyarrow as pa
import pytest

from ottla.streams import graph
from ottla.streams.kernels.foreign_key import ResolveKernel, RespondKernel, SubscribeKernel, subscription_columns
from ottla.streams.kernels.joining import JoinShape, JoinSide
from ottla.streams.kernels.tables import DerivedTableKernel, SourceTableKernel
from ottla.streams.rows import DELETED, ORDER, TIMESTAMP, stream_schema
from ottla.streams.state.store import MemoryReader
from tests.samples import sample_size
from tests.unit.streams.kernels.harness import Event, State, make_rows

LEFT = pa.schema([("order", pa.int64()), ("customer", pa.string()), ("amount", pa.int64())])
RIGHT = pa.schema([("id", pa.string()), ("name", pa.string())])
RESULT = pa.schema([("order", pa.int64()), ("amount", pa.int64()), ("customer_id", pa.string()), ("name", pa.string())])


def shape_of(how: str) -> JoinShape:
    left = graph.Node("left", (), LEFT, ("order",), is_table=True)
    right = graph.Node("right", (), RIGHT, ("id",), is_table=True)
    node = graph.ForeignKeyJoin(
        "join-1",
        (left, right),
        RESULT,
        ("order",),
        True,
        how=how,
        foreign_key=("customer",),
        left_columns={"order": "order", "amount": "amount"},
        right_columns={"id": "customer_id", "name": "name"},
    )
    return JoinShape.of(node)


class Pipeline:
    """Both subtopologies, and the topics between them as queues."""

    def __init__(self, how: str) -> None:
        self.shape = shape = shape_of(how)
        self.orders = SourceTableKernel("orders", "orders", LEFT, ["order"])
        self.customers = SourceTableKernel("customers", "customers", RIGHT, ["id"], with_old=False)
        self.subscribe = SubscribeKernel("join-1", shape, ["customer"])
        self.respond = RespondKernel("join", shape, "customers")
        self.resolve = ResolveKernel("join-1", shape, "orders")
        self.result = DerivedTableKernel("join-1", "join", RESULT, ["order"])
        self.state = State()
        self.inputs: tuple[list[Event], list[Event]] = ([], [])
        self.subscriptions: list[Event] = []
        self.responses: list[Event] = []
        self.found: list[Event] = []
        self.stale = 0

    def run_primary(self, changes: int, responses: int) -> None:
        """A batch of the left table's subtopology, with so many rows of its inputs."""
        context = self.state.context(["orders", "join"])
        rows = make_rows(LEFT, take(self.inputs[0], changes), is_table=True)
        (table,) = self.orders.process([rows], context)
        subscriptions, answers = self.subscribe.process([table], context)
        received = [{**row, ORDER: rows.num_rows + at} for at, row in enumerate(take(self.responses, responses))]
        response_rows = pa.Table.from_pylist(received, schema=answers.schema)
        (output,) = self.result.process(self.resolve.process([table, answers, response_rows], context), context)
        self.subscriptions += subscriptions.to_pylist()
        self.found += output.to_pylist()
        self.state.commit(context, ["orders"])
        self.state.index("orders", rows, LEFT, ["order"])
        self.stale += context.dropped["join-1", "stale response"]

    def run_foreign(self, subscriptions: int, changes: int, random: Random | None) -> None:
        """A batch of the right table's subtopology. Its inputs are mixed at random."""
        context = self.state.context(["customers", "join-subscriptions"])
        sent, changed = take(self.subscriptions, subscriptions), take(self.inputs[1], changes)
        places = list(range(len(sent) + len(changed)))
        chosen = sorted(random.sample(places, len(sent))) if random else places[: len(sent)]
        others = [place for place in places if place not in chosen]
        sent = [{**row, ORDER: place} for row, place in zip(sent, chosen, strict=True)]
        changed = [{**row, ORDER: place} for row, place in zip(changed, others, strict=True)]
        rows = make_rows(RIGHT, changed, is_table=True)
        (table,) = self.customers.process([rows], context)
        received = pa.Table.from_pylist(sent, schema=stream_schema(subscription_columns(self.shape)))
        (output,) = self.respond.process([received, table], context)
        assert output.column(ORDER).to_pylist() == sorted(output.column(ORDER).to_pylist())
        self.responses += output.to_pylist()
        self.state.commit(context, ["customers"])
        self.state.index("customers", rows, RIGHT, ["id"])

    def drain(self) -> None:
        while self.inputs[0] or self.inputs[1] or self.subscriptions or self.responses:
            self.run_primary(10, 10)
            self.run_foreign(10, 10, None)

    @property
    def table(self) -> dict[int, tuple[Any, ...]]:
        """The result: the last change of each key."""
        last = {row["order"]: None if row[DELETED] else simplify(row)[1] for row in self.found}
        return {key: value for key, value in last.items() if value is not None}


def take(queue: list[Event], count: int) -> list[Event]:
    taken = queue[:count]
    del queue[:count]
    return taken


def simplify(row: Event) -> tuple[Any, ...]:
    value = None if row[DELETED] else (row["amount"], row["customer_id"], row["name"])
    return row["order"], value, row[TIMESTAMP]


def random_event(random: Random, at: int) -> Event:
    event: Event = {"side": random.randint(0, 1), "at": max(0, at - random.choice([0, 5]))}
    event |= {"order": random.randint(1, 3), "id": random.choice(["a", "b", "a\x00"])}
    event["deleted"] = random.random() < 0.25
    if not event["deleted"]:
        event |= {"customer": random.choice([None, "a", "b", "a\x00"]), "amount": random.randint(0, 1)}
        event["name"] = random.choice("xy")
    return event


def join(how: str, orders: dict[int, Event], customers: dict[str, Event]) -> dict[int, tuple[Any, ...]]:
    """The join of both tables as they are in the end."""
    found = {}
    for order, left in orders.items():
        right = customers.get(left["customer"])
        if right is not None:
            found[order] = (left["amount"], left["customer"], right["name"])
        elif how == "left":
            found[order] = (left["amount"], None, None)
    return found


def apply(event: Event, orders: dict[int, Event], customers: dict[str, Event]) -> None:
    table: dict[Any, Event] = customers if event["side"] else orders
    key = event["id"] if event["side"] else event["order"]
    if event["deleted"]:
        table.pop(key, None)
    else:
        table[key] = event


@pytest.mark.parametrize("how", ["inner", "left"])
def test_every_schedule_ends_with_the_join_of_both_tables(how: str, seed: int) -> None:
    # Tasks run when they like, with as many rows as they like. Some responses come too late and are dropped.
    random = Random(seed)
    stale = 0
    for _ in range(sample_size(8, 100)):
        pipeline = Pipeline(how)
        orders: dict[int, Event] = {}
        customers: dict[str, Event] = {}
        for at in range(random.randint(0, 25)):
            event = random_event(random, at)
            apply(event, orders, customers)
            pipeline.inputs[event["side"]].append(event)
            if random.random() < 0.3:
                pipeline.run_primary(random.randint(0, 4), random.randint(0, 4))
            if random.random() < 0.3:
                pipeline.run_foreign(random.randint(0, 4), random.randint(0, 4), random)
        pipeline.drain()
        assert pipeline.table == join(how, orders, customers)
        subscribed = [left for left in orders.values() if left["customer"] is not None]
        kept = pipeline.state.readers.get("join-subscriptions", MemoryReader())
        assert len(kept.values) == len(subscribed)
        stale += pipeline.stale
    assert stale > 0


def kafka(how: str, events: list[Event]) -> list[tuple[Any, ...]]:
    """What SubscriptionSend, SubscriptionReceive, SubscriptionJoin, ForeignTableJoin and ResponseJoin of Kafka Streams
    4 make of it if each change is processed to its end before the next one comes, without needless tombstones."""
    orders: dict[int, Event] = {}
    customers: dict[str, Event] = {}
    subscribers: set[tuple[str, int]] = set()
    found: list[tuple[Any, ...]] = []
    results: set[int] = set()

    def emit(order: int, value: Any, at: int) -> None:
        if value is not None or order in results:
            found.append((order, value, at))
        results.discard(order) if value is None else results.add(order)

    def resolve(order: int, right: Event | None, at: int) -> None:
        left = orders.get(order)
        if left is None or (right is None and how == "inner"):
            emit(order, None, at)
        else:
            emit(order, (left["amount"], right and right["id"], right and right["name"]), at)

    for event in events:
        at = event["at"]
        if event["side"]:
            apply(event, orders, customers)
            for _, order in sorted(each for each in subscribers if each[0] == event["id"]):
                resolve(order, customers.get(event["id"]), at)
            continue
        order = event["order"]
        old = orders.get(order)
        apply(event, orders, customers)
        new = orders.get(order)
        old_key = None if old is None else old["customer"]
        new_key = None if new is None else new["customer"]
        right = None if new_key is None else customers.get(new_key)
        time = max(at, right["at"]) if right else at
        if old_key is not None and old_key != new_key:
            subscribers.discard((old_key, order))
        if new_key is not None:
            subscribers.add((new_key, order))
        if how == "left":
            if old is not None or new is not None:
                resolve(order, right, time)
        elif new is None or new_key is None:
            if old_key is not None:
                left_right = customers.get(old_key)
                emit(order, None, max(at, left_right["at"]) if left_right else at)
        elif right is not None or (old_key is not None and old_key != new_key):
            resolve(order, right, time)
    return found


@pytest.mark.parametrize("how", ["inner", "left"])
def test_step_by_step_every_change_is_the_one_of_kafka_streams(how: str, seed: int) -> None:
    random = Random(seed)
    for _ in range(sample_size(3, 100)):
        events = [random_event(random, at) for at in range(random.randint(0, 25))]
        pipeline = Pipeline(how)
        for event in events:
            pipeline.inputs[event["side"]].append(event)
            if event["side"]:
                pipeline.run_foreign(0, 1, None)
            else:
                pipeline.run_primary(1, 0)
                pipeline.run_foreign(9, 0, None)
            pipeline.run_primary(0, 9)
        assert [simplify(row) for row in pipeline.found] == kafka(how, events)


def test_a_foreign_key_in_the_key() -> None:
    # The foreign key is a column of the left key, so it never changes.
    left = pa.schema([("customer", pa.string()), ("day", pa.int32()), ("amount", pa.int64())])
    result = pa.schema([*left, ("name", pa.string())])
    names = {name: name for name in left.names}
    sides = JoinSide(left, ("customer", "day")), JoinSide(RIGHT, ("id",))
    shape = JoinShape("inner", *sides, result, ("customer", "day"), names, {"name": "name"})
    state = State()
    orders = SourceTableKernel("orders", "orders", left, ["customer", "day"])
    context = state.context(["orders", "customers", "join-subscriptions"])
    rows = make_rows(left, [{"customer": "a", "day": 1, "amount": 5, "at": 1}], is_table=True)
    (changes,) = orders.process([rows], context)
    subscriptions, answers = SubscribeKernel("join-1", shape, ["customer"]).process([changes], context)
    customers = make_rows(RIGHT, [{"id": "a", "name": "x", "at": 3, ORDER: 1}], is_table=True)
    (responses,) = RespondKernel("join", shape, "customers").process([subscriptions, customers], context)
    (found,) = ResolveKernel("join-1", shape, "orders").process([changes, answers, responses], context)
    assert [tuple(row[name] for name in result.names) for row in found.to_pylist()] == [
        ("a", 1, None, None),
        ("a", 1, 5, "x"),
    ]
