"""The demo with Spark, from the first customer to the verdict: sends events, watches results, compares them."""

import time
from collections.abc import Mapping
from random import Random
from typing import Any

from ottla.cli.client import CommandClient
from ottla.cli.command_error import CommandError
from ottla.cli.demo.books import Tally
from ottla.cli.demo.children import PipelineProcess
from ottla.cli.demo.results import LiveResults, committed_values, get_minute, lags, query_minutes
from ottla.cli.demo.screen import Figures, Rate, Screen
from ottla.cli.demo.shop import Shop
from ottla.cli.demo.topics import EXCHANGE, REJECTED, REVENUE, SALES, SOURCES
from ottla.cli.demo.traffic import Traffic
from ottla.cli.interruption import Interruption

SEED = 7
TURN_S = 0.02
LOOK_S = 1.0
LAST_ROWS_S = 0.5
PATIENCE_S = 180.0
"""How long the pipeline may be silent while the demo waits for it. A slow machine may take longer in all."""

STARTING = "Starting Spark"
OPEN = "The shop is open"
FINISHING = "The shop is closed, the pipeline finishes"


class Story:
    def __init__(self, client: CommandClient, pipeline: PipelineProcess, interruption: Interruption, rate: int) -> None:
        self._client = client
        self._pipeline = pipeline
        self._interruption = interruption
        self._shop = Shop(Random(SEED), per_minute=rate)
        self._traffic = Traffic(client, self._shop, rate)
        self._results = LiveResults(client)
        self._screen = Screen()
        self._figures = Figures(batches_ms={}, minutes=self._results.minutes, rows=self._results.rows)
        self._arriving, self._leaving = Rate(), Rate()
        self._started_s = self._looked_s = time.monotonic()
        self._step = ""
        """What the pipeline is doing while it starts."""
        self.address = ""
        """Where the pipeline answers queries, once it is ready."""

    def run(self, seconds: float) -> list[str]:
        """Returns what is wrong with the results, an empty list if they are right. CommandError: they are not known."""
        self._traffic.send_customers()  # before the first order, which is joined with them
        self._wait_for("ready", STARTING)
        self._started_s = time.monotonic()
        while self._elapsed_s < seconds:
            self._traffic.turn(self._elapsed_s)
            self._turn(OPEN)
        self._traffic.send_straggler()  # one at least, however short the day was
        self._finish()
        self._results.turn(LAST_ROWS_S)
        self._look()
        self._screen.leave(self._figures)
        print("  Reading all results again, to compare them with the shop's books ...", flush=True)
        return self._complaints()

    @property
    def summary(self) -> str:
        shop = self._shop
        return (
            f"{shop.orders:,} orders and {shop.page_views:,} page views; {shop.delayed:,} of them late, "
            f"{shop.stragglers:,} too late, {sum(shop.books.rejects.values()):,} bad"
        )

    @property
    def now_ms(self) -> int:
        """The time of the shop's clock."""
        return self._shop.now_ms

    def close(self) -> None:
        self._results.close()

    @property
    def _elapsed_s(self) -> float:
        return time.monotonic() - self._started_s

    def _finish(self) -> None:
        """Waits until the results contain everything that was sent: the pipeline has read its sources, and then what
        it has sent to itself."""
        self._traffic.flush()
        for topics in (SOURCES, (EXCHANGE,)):
            deadline_s = time.monotonic() + PATIENCE_S
            while any(lags(self._client, topics).values()):
                if self._turn(FINISHING):
                    deadline_s = time.monotonic() + PATIENCE_S
                elif time.monotonic() > deadline_s:
                    raise CommandError(f"demo: the pipeline does not finish, and was silent for {PATIENCE_S:.0f} s")

    def _wait_for(self, word: str, phase: str) -> None:
        deadline_s = time.monotonic() + PATIENCE_S
        while True:
            messages = self._turn(phase)
            if any(word in message for message in messages):
                return
            if messages:
                deadline_s = time.monotonic() + PATIENCE_S
            elif time.monotonic() > deadline_s:
                raise CommandError(f"demo: the pipeline is not {word}, and has said nothing for {PATIENCE_S:.0f} s")

    def _turn(self, phase: str) -> list[dict[str, Any]]:
        """Read results and messages, count, show. Returns the messages of the pipeline since the last turn."""
        self._interruption.check()
        self._results.turn(TURN_S)
        messages = self._pipeline.read_messages()
        for message in messages:
            self._note(message)
        now_s = time.monotonic()
        if now_s - self._looked_s >= LOOK_S:
            self._looked_s = now_s
            self._look()
            if phase == OPEN:
                self._traffic.send_straggler()
        self._figures.phase = f"{phase}: {self._step}" if phase == STARTING and self._step else phase
        self._figures.elapsed_s = self._elapsed_s
        self._screen.show(self._figures, now_s)
        return messages

    def _note(self, message: dict[str, Any]) -> None:
        self._step = message.get("step", self._step)
        if "query" in message:
            self._figures.batches_ms[message["query"]] = message["ms"]
        self.address = message.get("address", self.address)

    def _look(self) -> None:
        """Update the counts and lags."""
        shop, figures, now_s = self._shop, self._figures, time.monotonic()
        self._arriving.note(now_s, shop.orders + shop.page_views)
        self._leaving.note(now_s, sum(self._results.rows.values()))
        figures.arriving, figures.leaving = self._arriving.per_second, self._leaving.per_second
        figures.now_ms = shop.now_ms
        figures.arrivals = {
            "orders": shop.orders,
            "page views": shop.page_views,
            "late": shop.delayed,
            "too late": shop.stragglers,
            "bad": sum(shop.books.rejects.values()),
        }
        figures.lags = lags(self._client, SOURCES)

    def _complaints(self) -> list[str]:
        """How the results, read again from the beginning, and the answers over HTTP differ from the books."""
        books = self._shop.books
        found = books.complaints(
            committed_values(self._client, SALES),
            committed_values(self._client, REVENUE),
            committed_values(self._client, REJECTED),
        )
        if not found and not self._answers(books.minutes):
            found.append("the store answers over HTTP with other minutes than the topic has")
        return found

    def _answers(self, minutes: Mapping[tuple[int, str], Tally]) -> bool:
        """Whether the store has these minutes. It gets what a batch has committed a moment after the topic has it."""
        deadline_s = time.monotonic() + PATIENCE_S
        while query_minutes(self.address) != minutes:
            self._interruption.check()
            if time.monotonic() > deadline_s:
                return False
            time.sleep(TURN_S)
        return True

    def ask_for_a_minute(self) -> tuple[str, str]:
        """The address of a row of the store, and what a GET request for it returns: the minute with most money."""
        minutes = self._shop.books.minutes
        minute_ms, category = max(minutes, key=lambda each: minutes[each].cents)
        return get_minute(self.address, category, minute_ms)
