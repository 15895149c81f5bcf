"""Event sourcing: what happened is the truth, what is so follows from it, and both are topics.

    python examples/event_sourcing.py [--bootstrap HOST:PORT]

Accounts are opened, paid into, drawn from and closed; each of these is an event that is never changed. A query adds
them up into a compacted topic, in which each account has one record, or none when it is closed. A service that starts
reads that topic, a few records instead of the whole history, and has all accounts in its memory: here without Spark.
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
    history = events()
    size = -(-len(history) // ROUNDS)
    with TemporaryDirectory() as checkpoint:
        for start in range(0, len(history), size):
            chapter = history[start : start + size]
            send(bootstrap, EVENTS, ((event.account, json.dumps(event._asdict())) for event in chapter))
            query = ottla.spark.write_stream(
                balances_of(stream(spark, bootstrap, EVENTS)),
                ACCOUNTS,
                mode="update",
                checkpoint=checkpoint,
                group="bookkeeper",
                options={"kafka.bootstrap.servers": bootstrap},
                trigger={"availableNow": True},
            )
            query.awaitTermination()

    balances = rebuilt_balances(bootstrap)
    assert balances == expected_balances(history), "the balances do not follow from the events"
    richest = max(balances, key=lambda account: balances[account])
    print(f"{len(history)} events, {ACCOUNT_COUNT} accounts, {len(balances)} of them still open.")
    print(f"Most is in {richest}: {balances[richest] / 100:,.2f}")


def balances_of(events: DataFrame) -> DataFrame:
    """Of every account that something happened to; null when it is closed, which deletes its key."""
    event = f.from_json(f.col("value").cast("string"), "account STRING, kind STRING, cents LONG")
    told = events.select(event.alias("event")).select("event.*")
    accounts = told.groupBy("account").agg(
        f.sum("cents").alias("cents"), f.max(f.col("kind") == "closed").alias("closed")
    )
    balance = f.when(~f.col("closed"), f.col("cents").cast("string"))
    return accounts.select(f.col("account").alias("key"), balance.alias("value"))


def rebuilt_balances(bootstrap: str) -> dict[str, int]:
    """What a service does when it starts: the newest record of each key counts, and none without a value."""
    records = ottla.read(ACCOUNTS, bootstrap=bootstrap, isolation="read_committed", columns=["key", "value"])
    balances: dict[str, int] = {}
    for record in records.to_arrow().to_pylist():
        account = record["key"].decode()
        if record["value"] is None:
            balances.pop(account, None)
        else:
            balances[account] = int(record["value"])
    return balances


def events() -> list[Event]:
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
