"""Event sourcing: a topic of events is the source of truth, and a compacted topic has the state computed from it.

    python examples/event_sourcing.py [--bootstrap HOST:PORT]

Accounts are opened, paid into, drawn from and closed; each of these is an event that is never changed. A query sums
up the events of each account and writes the balance to a compacted topic, or a tombstone if the account is closed. A
service that starts reads that topic instead of the whole history to have all balances in memory; it needs no Spark.
"""

import json
from collections import Counter
from random import Random
from tempfile import TemporaryDirectory
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from stage import COMPACTED, create_topics, run, send, stream

import ottla
import ottla.spark

EVENTS, ACCOUNTS = "accounts.events", "accounts.balances"
ACCOUNT_COUNT = 25
EVENT_COUNT = 600
ROUNDS = 2


class Event(NamedTuple):
    account: str
    kind: str
    cents: int = 0


def main(spark: SparkSession, bootstrap: str) -> None:
    create_topics(bootstrap, EVENTS)
    create_topics(bootstrap, ACCOUNTS, settings=COMPACTED)
    history = make_events()
    size = -(-len(history) // ROUNDS)
    with TemporaryDirectory() as checkpoint:
        for start in range(0, len(history), size):
            part = history[start : start + size]
            send(bootstrap, EVENTS, ((event.account, json.dumps(event._asdict())) for event in part))
            query = ottla.spark.write_stream(
                sum_up(stream(spark, bootstrap, EVENTS)),
                ACCOUNTS,
                mode="update",
                checkpoint=checkpoint,
                group="bookkeeper",
                options={"kafka.bootstrap.servers": bootstrap},
                trigger={"availableNow": True},
            )
            query.awaitTermination()

    balances = load_balances(bootstrap)
    assert balances == expected_balances(history), "the balances do not follow from the events"
    richest = max(balances, key=lambda account: balances[account])
    print(f"{len(history)} events, {ACCOUNT_COUNT} accounts, {len(balances)} of them still open.")
    print(f"The highest balance is that of {richest}: {balances[richest] / 100:,.2f}")


def sum_up(events: DataFrame) -> DataFrame:
    """The balance of every account with events. It is null for a closed account: a tombstone, which deletes the key."""
    event = f.from_json(f.col("value").cast("string"), "account STRING, kind STRING, cents LONG")
    parsed = events.select(event.alias("event")).select("event.*")
    accounts = parsed.groupBy("account").agg(
        f.sum("cents").alias("cents"), f.max(f.col("kind") == "closed").alias("closed")
    )
    balance = f.when(~f.col("closed"), f.col("cents").cast("string"))
    return accounts.select(f.col("account").alias("key"), balance.alias("value"))


def load_balances(bootstrap: str) -> dict[str, int]:
    """Reads all balances, as a service does when it starts. The last record of a key counts; null removes the key."""
    records = ottla.read(ACCOUNTS, bootstrap=bootstrap, isolation="read_committed", columns=["key", "value"])
    balances: dict[str, int] = {}
    for record in records.to_arrow().to_pylist():
        account = record["key"].decode()
        if record["value"] is None:
            balances.pop(account, None)
        else:
            balances[account] = int(record["value"])
    return balances


def make_events() -> list[Event]:
    random = Random(5)
    accounts = [f"account-{number}" for number in range(ACCOUNT_COUNT)]
    history = [Event(account, "opened") for account in accounts]
    for _ in range(EVENT_COUNT):
        account = random.choice(accounts)
        paid_in = random.random() < 0.6
        history.append(
            Event(account, "deposited", random.randrange(10_000))
            if paid_in
            else Event(account, "withdrawn", -random.randrange(10_000))
        )
    return history + [Event(account, "closed") for account in random.sample(accounts, 5)]


def expected_balances(history: list[Event]) -> dict[str, int]:
    balances: Counter[str] = Counter()
    for event in history:
        if event.kind == "closed":
            del balances[event.account]
        else:
            balances[event.account] += event.cents
    return dict(balances)


if __name__ == "__main__":
    run(main, __doc__)
