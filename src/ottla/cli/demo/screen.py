"""What the demo shows while it runs: a page that is drawn over and over on a terminal, else a line now and then."""

import shutil
import sys
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from ottla.cli.demo.books import MINUTE_MS, Tally
from ottla.cli.demo.shop import CATEGORIES

PAGE_S = 0.25
LINE_S = 5.0
MINUTES_SHOWN = 6
RATE_S = 3.0


class Rate:
    """The rate of a counter, over the last few seconds."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int]] = deque()

    def note(self, now_s: float, count: int) -> None:
        self._samples.append((now_s, count))
        while now_s - self._samples[0][0] > RATE_S:
            self._samples.popleft()

    @property
    def per_second(self) -> float:
        if len(self._samples) < 2:
            return 0.0
        (began_s, first), (ended_s, last) = self._samples[0], self._samples[-1]
        return (last - first) / max(ended_s - began_s, 0.001)


@dataclass
class Figures:
    """The figures that the screen shows."""

    phase: str = ""
    elapsed_s: float = 0.0
    now_ms: int = 0
    """The shop's own clock."""
    arrivals: Mapping[str, int] = field(default_factory=dict)
    arriving: float = 0.0
    rows: Mapping[str, int] = field(default_factory=dict)
    leaving: float = 0.0
    lags: Mapping[str, int] = field(default_factory=dict)
    batches_ms: dict[str, int] = field(default_factory=dict)
    minutes: Mapping[int, Mapping[str, Tally]] = field(default_factory=dict)

    @property
    def lag(self) -> int:
        return sum(self.lags.values())

    @property
    def slowest_ms(self) -> int:
        return max(self.batches_ms.values(), default=0)


class Screen:
    def __init__(self) -> None:
        self.live = sys.stdout.isatty()
        self._height = 0
        self._shown_s = 0.0

    def show(self, figures: Figures, now_s: float) -> None:
        """Draw the state, unless something was drawn a moment ago."""
        if now_s - self._shown_s < (PAGE_S if self.live else LINE_S):
            return
        self._shown_s = now_s
        if self.live:
            self._draw(page(figures))
        else:
            print(line(figures), flush=True)

    def leave(self, figures: Figures) -> None:
        """Leave the last state on the screen; whatever is printed later appears below it."""
        if self.live:
            self._draw(page(figures))
            self._height = 0
        else:
            print(line(figures), flush=True)

    def _draw(self, lines: list[str]) -> None:
        width = shutil.get_terminal_size().columns - 1  # a line that wraps would not be drawn over
        up = f"\x1b[{self._height}A" if self._height else ""
        print(f"{up}\r\x1b[J" + "\n".join(text[:width] for text in lines), flush=True)
        self._height = len(lines)


def line(figures: Figures) -> str:
    moment = f"  {figures.elapsed_s:3.0f} s {figures.phase}"
    if not figures.batches_ms:
        return moment
    return (
        f"{moment}: in {figures.arriving:,.0f} records/s, out {figures.leaving:,.0f} rows/s, "
        f"lag {figures.lag:,}, batch {figures.slowest_ms:,} ms"
    )


def page(figures: Figures) -> list[str]:
    times = f", {clock(figures.now_ms)} in the shop" if figures.now_ms else ""
    return [
        f"{figures.phase}   {figures.elapsed_s:.0f} s{times}",
        "",
        f"  in    {figures.arriving:9,.0f} records/s   {_facts(figures.arrivals)}",
        f"  out   {figures.leaving:9,.0f} rows/s      {_facts(figures.rows)}",
        f"  lag   {figures.lag:9,} records     {_facts(figures.lags)}",
        f"  batch {figures.slowest_ms:9,} ms          {_facts(figures.batches_ms)}",
        "",
        *_revenue(figures.minutes),
        "",
    ]


def clock(at_ms: int) -> str:
    return f"{at_ms // 3_600_000 % 24:02}:{at_ms // MINUTE_MS % 60:02}"


def _facts(counts: Mapping[str, int]) -> str:
    return "   ".join(f"{name} {count:,}" for name, count in counts.items())


def _revenue(minutes: Mapping[int, Mapping[str, Tally]]) -> list[str]:
    """The newest minutes, padded to a fixed number of lines."""
    lines = ["  revenue " + "".join(f"{category:>12}" for category in CATEGORIES) + "   orders per view"]
    for minute in sorted(minutes, reverse=True)[:MINUTES_SHOWN]:
        tallies = [minutes[minute].get(category, Tally()) for category in CATEGORIES]
        orders, views = sum(each.orders for each in tallies), sum(each.views for each in tallies)
        share = f"{orders / views:17.2f}" if views else ""
        lines.append(f"  {clock(minute):8}" + "".join(f"{each.cents / 100:12,.2f}" for each in tallies) + share)
    return lines + [""] * (MINUTES_SHOWN + 1 - len(lines))
