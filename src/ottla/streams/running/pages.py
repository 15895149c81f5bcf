"""The pages of a running app, beside those that answer queries.

GET /health       200 if all subtopologies make progress, 503 with the reason if one of them waits
GET /progress     rows, rates, lag, troubles and stores, as JSON
GET /topology     the plan, as text
GET /metrics      the same numbers in Prometheus' text format
POST /stop        stops the app gracefully
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

import orjson
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from ottla.streams.running.progress import WAITING

if TYPE_CHECKING:
    from starlette.requests import Request

PREFIX: Final = "ottla_streams_"
_HEALTHY, _UNHEALTHY = 200, 503

_COUNTERS: Final = {
    "batches": "Batches that were run.",
    "retries": "Failures of tasks or requests that were tried again.",
    "rows_read": "Rows that were read.",
    "rows_written": "Records that were written, those of changelogs included.",
    "bad_records": "Records that could not be decoded.",
    "failed_rows": "Rows for which a function failed.",
    "late_rows": "Rows that came after their window had closed.",
}
_GAUGES: Final = {
    "rows_per_second": "Rows read per second, over the last ten seconds.",
    "batch_ms": "The median duration of the last batches.",
}


def make_routes(
    report_progress: Callable[[], dict[str, Any]], describe: Callable[[], str], stop: Callable[[], None]
) -> list[BaseRoute]:
    def health(request: "Request") -> Response:
        found = report_progress()
        troubles = [unit["trouble"] for unit in found["subtopologies"] if unit["state"] == WAITING]
        document = {"app": found["app"], "healthy": not troubles, "troubles": troubles}
        return _to_json(document, _UNHEALTHY if troubles else _HEALTHY)

    def progress(request: "Request") -> Response:
        return _to_json(report_progress())

    def topology(request: "Request") -> Response:
        return PlainTextResponse(describe())

    def metrics(request: "Request") -> Response:
        text = "\n".join(write_metrics(report_progress())) + "\n"
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    def end(request: "Request") -> Response:
        stop()
        return _to_json({"stopping": True})

    return [
        Route("/health", health),
        Route("/progress", progress),
        Route("/topology", topology),
        Route("/metrics", metrics),
        Route("/stop", end, methods=["POST"]),
    ]


def write_metrics(progress: dict[str, Any]) -> Iterator[str]:
    """Lines in Prometheus' text format."""
    app = progress["app"]
    for kind, table in (("counter", _COUNTERS), ("gauge", _GAUGES)):
        for name, text in table.items():
            full = f"{PREFIX}{name}_total" if kind == "counter" else f"{PREFIX}{name}"
            yield from (f"# HELP {full} {text}", f"# TYPE {full} {kind}")
            for unit in progress["subtopologies"]:
                yield f'{full}{{app="{app}",subtopology="{unit["subtopology"]}"}} {unit[name]}'
    yield from (f"# HELP {PREFIX}lag Records not yet read.", f"# TYPE {PREFIX}lag gauge")
    for unit in progress["subtopologies"]:
        for topic, lag in unit["lag"].items():
            yield f'{PREFIX}lag{{app="{app}",subtopology="{unit["subtopology"]}",topic="{topic}"}} {lag}'
    for name, text in (
        ("restoring", "Partitions of a store that are being restored."),
        ("records_behind", "Records of changelogs not yet applied to a store."),
        ("keys", "Keys of a store: counted up to 1,000 in a partition, above that what RocksDB estimates."),
        ("bytes", "Bytes of a store in files and in memory."),
    ):
        yield from (f"# HELP {PREFIX}store_{name} {text}", f"# TYPE {PREFIX}store_{name} gauge")
        for store in progress["stores"]:
            yield f'{PREFIX}store_{name}{{app="{app}",store="{store["store"]}"}} {store[name]}'


def _to_json(document: object, status: int = _HEALTHY) -> Response:
    return Response(orjson.dumps(document), status, media_type="application/json")
