"""Cards that were stolen: a thief tries a card with a small payment and then takes a large one.

A processor remembers a small payment of a card. A large one within a minute raises an alarm; a timer forgets the small
one when the minute is over.
"""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from ottla.streams import App, Context, Processor, Timer, ValueState

SMALL, LARGE = 1.0, 500.0
MINUTE = timedelta(minutes=1)


class StolenCards(Processor):
    """Yields a row for each large payment that follows a small one."""

    tried = ValueState("double")

    def process(self, row: dict[str, Any], context: Context) -> Iterator[dict[str, Any]]:
        if row["amount"] > LARGE and self.tried.value is not None:
            yield {"tried": self.tried.value, "taken": row["amount"]}
        if row["amount"] < SMALL:
            self.tried.value = row["amount"]
            context.timer("forget", context.timestamp + MINUTE)

    def on_timer(self, timer: Timer, context: Context) -> None:
        self.tried.clear()


app = App("fraud")
payments = app.stream("payments", value="card string, amount double, at timestamp", time="at")
payments.group_by("card").process(StolenCards, schema="tried double, taken double", name="stolen-cards").to("alarms")
