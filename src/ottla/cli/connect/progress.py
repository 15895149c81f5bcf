"""The line on the terminal of `ottla connect up`: the connectors of the worker, how fast they are, and their lag."""

import shutil
import sys
from collections.abc import Mapping
from threading import Event
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ottla.connect.serving import WorkerProcess
    from ottla.connect.worker.herder import ConnectorMetrics

SHOW_S: Final = 1.0
_MOVED: Final = {"source": "source-record-write-total", "sink": "sink-record-send-total"}


def show_progress(worker: "WorkerProcess", stopping: Event) -> None:
    """Until `stopping` is set. Does nothing else if standard error is no terminal."""
    if not sys.stderr.isatty():
        stopping.wait()
        return
    before: Mapping[str, ConnectorMetrics] = {}
    while not stopping.wait(SHOW_S):
        now = worker.list_metrics()
        line = summarise(before, now, SHOW_S)
        sys.stderr.write(f"\r\x1b[K{line[: shutil.get_terminal_size().columns - 1]}")
        sys.stderr.flush()
        before = now
    sys.stderr.write("\n")


def summarise(before: "Mapping[str, ConnectorMetrics]", now: "Mapping[str, ConnectorMetrics]", seconds: float) -> str:
    """Connectors in one line. Those with trouble or work come first, since a line has an end."""
    parts = []
    for name, each in now.items():
        rows = _count_moved(each)
        rate = max(rows - (_count_moved(before[name]) if name in before else rows), 0) / seconds
        lag = sum(int(task.get("lag", 0)) for task in each.tasks)
        text = f"{name} {each.state.value}, {rate:,.0f} rows/s" + (f", lag {lag:,}" if each.type == "sink" else "")
        parts.append((each.state.value == "RUNNING", -rate, text))
    return "; ".join(text for *_, text in sorted(parts)) or "no connectors"


def _count_moved(metrics: "ConnectorMetrics") -> float:
    return sum(task.get(_MOVED.get(metrics.type, ""), 0) for task in metrics.tasks)
