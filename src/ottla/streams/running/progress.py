"""How far an app is: counters of its subtopologies, kept by their threads and read by pages and the terminal."""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ottla.streams.running.work import Report

RATE_SECONDS: Final = 10.0
BATCHES_REMEMBERED: Final = 200

_STORE_COUNTS: Final = ("partitions", "restoring", "records_behind", "keys", "bytes")

STARTING, RESTORING, RUNNING, WAITING, STOPPED = "starting", "restoring", "running", "waiting", "stopped"


@dataclass
class SubtopologyProgress:
    """Counters since the start of the app. Written by one thread; others read single values, which is safe."""

    name: str
    state: str = STARTING
    trouble: str = ""
    """Why it waits, in one line."""
    batches: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    """rows read and written, bad records, failed and late rows."""
    lag: dict[str, int] = field(default_factory=dict)
    """Records not yet read, by topic."""
    retries: int = 0
    recent: deque[tuple[float, float, int]] = field(default_factory=lambda: deque(maxlen=BATCHES_REMEMBERED))
    """When each of the last batches ended, how long it took, and how many rows it read."""

    def add_batch(self, now_s: float, seconds: float, reports: Iterable[Report]) -> None:
        self.batches += 1
        rows = 0
        for report in reports:
            rows += report.counts.get("read", 0)
            for name, count in report.counts.items():
                self.counts[name] = self.counts.get(name, 0) + count
        self.recent.append((now_s, seconds, rows))

    def rows_per_second(self, now_s: float) -> float:
        recent = [rows for ended, _, rows in [*self.recent] if now_s - ended <= RATE_SECONDS]
        return sum(recent) / RATE_SECONDS

    def batch_seconds(self) -> float:
        """The median of the last batches; 0 if there was none."""
        durations = sorted(seconds for _, seconds, _ in [*self.recent])
        return durations[len(durations) // 2] if durations else 0.0


class Progress:
    """The progress of an app."""

    def __init__(self, app: str, names: Iterable[str]) -> None:
        self.app = app
        self.subtopologies = {name: SubtopologyProgress(name) for name in names}

    def document(self, now_s: float, tables: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
        """As a JSON object: what `app.progress()` returns."""
        units = []
        for each in self.subtopologies.values():
            units.append(
                {
                    "subtopology": each.name,
                    "state": each.state,
                    "trouble": each.trouble,
                    "batches": each.batches,
                    "retries": each.retries,
                    "rows_per_second": round(each.rows_per_second(now_s), 1),
                    "batch_ms": round(each.batch_seconds() * 1000, 1),
                    "rows_read": each.counts.get("read", 0),
                    "rows_written": each.counts.get("written", 0),
                    "bad_records": each.counts.get("bad", 0),
                    "failed_rows": each.counts.get("failed", 0),
                    "late_rows": each.counts.get("late", 0),
                    "lag": dict(each.lag),
                }
            )
        return {"app": self.app, "subtopologies": units, "stores": _sum_stores(tables)}


def _sum_stores(tables: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What state servers say about the partitions of each store, added up."""
    found: dict[str, dict[str, Any]] = {}
    for table in tables:
        store = found.setdefault(table["store"], {"store": table["store"], **dict.fromkeys(_STORE_COUNTS, 0)})
        store["partitions"] += 1
        store["restoring"] += table["state"] != "ready"
        store["keys"] += table.get("keys") or 0
        store["bytes"] += table.get("bytes") or 0
        store["records_behind"] += max((table.get("target") or 0) - (table.get("position") or 0), 0)
    return sorted(found.values(), key=lambda store: str(store["store"]))
