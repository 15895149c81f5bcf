"""An app in the foreground: the line on a terminal, and signals."""

import io
import os
import signal
import sys
from collections.abc import Callable
from typing import Any, cast

import pytest

from ottla.client.transactions import ProducerIdentity
from ottla.streams.app import App
from ottla.streams.running import foreground
from ottla.streams.running.foreground import run_in_foreground, summarise
from ottla.streams.running.progress import Progress
from ottla.streams.running.work import NO_TIME, Position, Report

PRODUCER = ProducerIdentity(1, 0, "app-unit-0")


def make_progress(*, tables: list[dict[str, Any]] | None = None, trouble: str = "", **counts: int) -> dict[str, Any]:
    progress = Progress("shop", ["first", "second"])
    first = progress.subtopologies["first"]
    first.add_batch(100.0, 0.25, [Report(0, PRODUCER, [Position(7, NO_TIME)], counts={"read": 12_340, **counts})])
    first.lag = {"orders": 1_200, "customers": 34}
    first.trouble = trouble
    return progress.document(101.0, tables or [])


def test_a_line_has_rate_and_lag_of_all_subtopologies() -> None:
    assert summarise(make_progress()) == "shop: 1,234 rows/s, lag 1,234"


def test_a_line_tells_of_state_bad_rows_and_what_is_waited_for() -> None:
    ready = {"store": "totals", "state": "ready", "keys": 5, "bytes": 2_500_000, "target": 9, "position": 9}
    restoring = {**ready, "state": "restoring", "bytes": 0, "position": 2, "target": 1_500}
    progress = make_progress(tables=[ready, restoring], bad=2, failed=1, late=3, trouble="no broker answers")
    assert summarise(progress) == (
        "shop: 1,234 rows/s, lag 1,234; state 2.5 MB; restoring: 1,498 records to read; 2 bad records; "
        "1 failed rows; 3 late rows; waiting: no broker answers"
    )


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class FakeApp:
    """An app that runs until it is stopped; `during` is called instead of waiting."""

    def __init__(self, during: Callable[[], bool]) -> None:
        self._during = during
        self.stops = 0

    def wait(self, seconds: float) -> bool:
        return self._during()

    def progress(self) -> dict[str, Any]:
        return make_progress()

    def stop(self) -> None:
        self.stops += 1


@pytest.mark.parametrize("number", foreground.SIGNALS)
def test_a_signal_stops_the_app_and_the_handlers_are_as_before(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    before = signal.getsignal(number)
    calls = []

    def during() -> bool:
        calls.append(1)
        if len(calls) == 3:
            os.kill(os.getpid(), number)
        return False

    app = FakeApp(during)
    run_in_foreground(cast(App, app))
    assert app.stops == 1
    assert signal.getsignal(number) == before
    assert terminal.getvalue().count("\r\x1b[Kshop: 1,234 rows/s") == 3


def test_without_a_terminal_nothing_is_shown_and_an_app_that_ends_is_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "stderr", output := io.StringIO())
    app = FakeApp(lambda: True)
    run_in_foreground(cast(App, app))
    assert app.stops == 1
    assert output.getvalue() == ""
