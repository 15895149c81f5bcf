"""Runs a started app in the foreground: signals end it gracefully, and a terminal shows how far it is."""

import signal
import sys
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from ottla.streams.app import App

SHOW_SECONDS: Final = 1.0
SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


def run_in_foreground(app: "App") -> None:
    """Wait until the app ends or a signal comes, then stop it. A second signal ends the wait for running batches."""
    told: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        told.append(number)
        if len(told) > 1:
            raise KeyboardInterrupt

    before = {number: signal.signal(number, note) for number in SIGNALS}
    is_terminal = sys.stderr.isatty()
    try:
        while not told and not app.wait(SHOW_SECONDS):
            if is_terminal:
                sys.stderr.write(f"\r\x1b[K{summarise(app.progress())}")
                sys.stderr.flush()
        if is_terminal:
            sys.stderr.write("\n")
        app.stop()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def summarise(progress: dict[str, Any]) -> str:
    """The progress of an app in one line."""
    units = progress["subtopologies"]
    rate = sum(unit["rows_per_second"] for unit in units)
    lag = sum(count for unit in units for count in unit["lag"].values())
    parts = [f"{progress['app']}: {rate:,.0f} rows/s, lag {lag:,}"]
    state_bytes = sum(store["bytes"] for store in progress["stores"])
    if state_bytes:
        parts.append(f"state {state_bytes / 1e6:,.1f} MB")
    restoring = sum(store["restoring"] for store in progress["stores"])
    if restoring:
        behind = sum(store["records_behind"] for store in progress["stores"])
        parts.append(f"restoring: {behind:,} records to read")
    for what in ("bad_records", "failed_rows", "late_rows"):
        count = sum(unit[what] for unit in units)
        if count:
            parts.append(f"{count:,} {what.replace('_', ' ')}")
    troubles = [unit["trouble"] for unit in units if unit["trouble"]]
    if troubles:
        parts.append(f"waiting: {troubles[0]}")
    return "; ".join(parts)
