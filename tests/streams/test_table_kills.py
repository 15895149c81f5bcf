"""Parts of an app with tables are killed in the middle of its work: every table is that of all changes."""

import json
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from ottla.testing import LocalBroker
from tests.spark.topics import send
from tests.streams.apps import read_table
from tests.streams.rounds import BROKER, DRIVER, STATE_SERVER, WORKER, Model, choose_kinds, query_all, run_rounds

APP = "tables"
ORDERS, NOTES, CUSTOMERS = "orders", "notes", "customers"
CHANGES = 120
"""Of each table at a time: several batches of 20 for each partition."""
TOWNS = ("Ulm", "ulm", "Bonn", "Kiel")


class Tables(Model):
    """Orders, notes and customers that change and are deleted, and the tables that are made of them."""

    file = Path(__file__).with_name("crashing_tables.py")
    app, sources, exchanges, sinks = APP, (ORDERS, NOTES, CUSTOMERS), (), ("noted", "resolved", "cities")

    def __init__(self, broker: LocalBroker, seed: int) -> None:
        super().__init__(broker, seed)
        self.tables: dict[str, dict[str, dict[str, Any]]] = {ORDERS: {}, NOTES: {}, CUSTOMERS: {}}

    def send(self) -> None:
        number, town = self.random.randrange, self.random.choice
        self._change(NOTES, "order", 60, lambda: {"note": f"note {number(1000)}"})
        self._change(CUSTOMERS, "customer", 12, lambda: {"name": f"name {number(1000)}"})
        self._change(
            ORDERS,
            "order",
            60,
            lambda: {"customer": f"customer-{number(12)}", "amount": number(1000), "town": town(TOWNS)},
        )

    def _change(self, topic: str, prefix: str, keys: int, make_row: Callable[[], dict[str, Any]]) -> None:
        """Every fifth change deletes."""
        records = []
        for _ in range(CHANGES):
            key, row = f"{prefix}-{self.random.randrange(keys)}", make_row()
            if self.random.random() < 0.2:
                self.tables[topic].pop(key, None)
                records.append({"key": key, "value": None})
            else:
                self.tables[topic][key] = row
                records.append({"key": key, "value": json.dumps(row)})
        send(self.broker, topic, records, partitioner="murmur2_random")

    @property
    def noted(self) -> dict[str, Any]:
        nothing = {"note": None}
        return {key: row | self.tables[NOTES].get(key, nothing) for key, row in self.tables[ORDERS].items()}

    @property
    def resolved(self) -> dict[str, Any]:
        customers = self.tables[CUSTOMERS]
        return {
            key: row | customers[row["customer"]]
            for key, row in self.tables[ORDERS].items()
            if row["customer"] in customers
        }

    @property
    def cities(self) -> Counter[str]:
        return Counter(row["town"].upper() for row in self.tables[ORDERS].values())

    def is_reached(self) -> bool:
        return (
            read_table(self.broker, "noted") == self.noted
            and read_table(self.broker, "resolved") == self.resolved
            and _drop_empty(read_table(self.broker, "cities")) == self.cities
        )

    def answers_fit(self, address: str) -> bool:
        counts = {row["city"]: row["count"] for row in query_all(address, "per-city") if row["count"]}
        orders = {row.pop("key"): row for row in query_all(address, ORDERS)}
        return counts == self.cities and orders == self.tables[ORDERS]

    def check(self) -> None:
        kept = read_table(self.broker, f"{APP}-per-city-changelog")
        assert _drop_empty(kept) == self.cities


def _drop_empty(counts: Mapping[str, Any]) -> dict[str, int]:
    """A group that has become empty stays, with a count of 0."""
    return {key: row["count"] for key, row in counts.items() if row["count"]}


@pytest.mark.long
@pytest.mark.ottla(process=True)
def test_whatever_is_killed_tables_are_those_of_all_changes(
    ottla_broker: LocalBroker, tmp_path: Path, seed: int
) -> None:
    """kill -9 of the driver with all its children, a Python worker, a state server and the broker, at random moments,
    while tables are joined by key and by foreign key and counted by another key."""
    kinds = choose_kinds((DRIVER, WORKER, STATE_SERVER, BROKER), seed)
    run_rounds(Tables(ottla_broker, seed), tmp_path, kinds, seed)
