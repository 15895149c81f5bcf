"""The demo's screen: rates of the last seconds, a page of constant height, and plain lines without a terminal."""

import pytest

from ottla.cli.demo.books import MINUTE_MS, Tally
from ottla.cli.demo.screen import LINE_S, MINUTES_SHOWN, Figures, Rate, Screen, line, page
from ottla.cli.demo.shop import OPENING_MS

FIGURES = Figures(
    phase="The shop is open",
    elapsed_s=12.3,
    now_ms=OPENING_MS + 12 * MINUTE_MS,
    arrivals={"orders": 1_234},
    arriving=10_000.4,
    rows={"sales": 1_000},
    leaving=5.0,
    lags={"one": 30, "two": 4},
    batches_ms={"sales": 400, "revenue": 700},
    minutes={OPENING_MS + n * MINUTE_MS: {"books": Tally(2, 123_456, 8)} for n in range(12)},
)


def test_a_rate_is_that_of_the_last_seconds() -> None:
    # Older records do not count.
    rate = Rate()
    assert rate.per_second == 0
    for second, count in enumerate((0, 1_000, 2_000, 2_010, 2_020, 2_030)):
        rate.note(float(second), count)
    assert rate.per_second == 10


def test_a_page_has_the_newest_minutes_and_always_the_same_height() -> None:
    # Otherwise the next page would not cover the last one.
    shown = page(FIGURES)
    assert len(shown) == len(page(Figures()))
    assert "12 s, 09:12 in the shop" in shown[0]
    minutes = [text.split()[0] for text in shown if text.strip()[:3] == "09:"]
    assert minutes == [f"09:{11 - n:02}" for n in range(MINUTES_SHOWN)]
    assert "1,234.56" in "\n".join(shown)
    assert "0.25" in "\n".join(shown)


def test_without_a_terminal_there_is_a_line_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    screen = Screen()
    for now_s in (100.0, 101.0, 100.0 + LINE_S):
        screen.show(FIGURES, now_s)
    assert capsys.readouterr().out == f"{line(FIGURES)}\n" * 2
    assert line(FIGURES).split(": ")[1] == "in 10,000 records/s, out 5 rows/s, lag 34, batch 700 ms"
