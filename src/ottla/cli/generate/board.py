"""The Grafana board, as data: rows of panels, each with its expressions.

Expressions are built from the catalogue of metrics, so that no panel can name one that a broker does not have. The
board has variables for the data source, the job and the brokers, and works with any Prometheus that scrapes them.
"""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from ottla.observability import catalogue
from ottla.observability.metrics import Family

WIDTH = 24
HEIGHT = 7
SCOPE = 'job="$job",instance=~"$instance"'
RATE = "$__rate_interval"
TIME_SERIES, STAT = "timeseries", "stat"


class Query(NamedTuple):
    expression: str
    legend: str


class Panel(NamedTuple):
    title: str
    unit: str
    queries: tuple[Query, ...]
    kind: str = TIME_SERIES
    alarm: float | None = None
    """A stat is red from this value on."""
    text: str = ""


class Row(NamedTuple):
    title: str
    panels: tuple[Panel, ...]
    per_line: int = 3


def pick(family: Family, more: str = "", suffix: str = "") -> str:
    """The series of a metric, of the brokers that the board shows."""
    return f"{family.name}{suffix}{{{SCOPE}{',' if more else ''}{more}}}"


def rate(family: Family, more: str = "", suffix: str = "") -> str:
    return f"rate({pick(family, more, suffix)}[{RATE}])"


def quantile(share: float, family: Family, request: str) -> str:
    buckets = rate(family, f'request="{request}"', "_bucket")
    return f"histogram_quantile({share:g}, sum by (le) ({buckets}))"


def _show(title: str, unit: str, *queries: tuple[str, str], text: str = "") -> Panel:
    return Panel(title, unit, tuple(Query(*each) for each in queries), text=text)


def _count(title: str, expression: str, alarm: float | None = None, unit: str = "short", text: str = "") -> Panel:
    return Panel(title, unit, (Query(expression, ""),), STAT, alarm, text)


def build_rows() -> list[Row]:
    return [_build_overview(), _build_traffic(), _build_requests(), _build_groups(), _build_storage(), _build_brokers()]


def _build_overview() -> Row:
    return Row(
        "Overview",
        (
            _count("Brokers that answer", 'sum(up{job="$job"})'),
            _count("Partitions", f"sum({pick(catalogue.LEADERS)})"),
            _count("Without a leader", f"sum({pick(catalogue.OFFLINE_PARTITIONS)})", 1),
            _count("Under-replicated", f"sum({pick(catalogue.UNDER_REPLICATED)})", 1),
            _count("Below min.insync.replicas", f"sum({pick(catalogue.UNDER_MIN_ISR)})", 1),
            _count("Unclean elections, a day", f"sum(increase({pick(catalogue.UNCLEAN_ELECTIONS)}[1d]))", 1),
        ),
        per_line=6,
    )


def _build_traffic() -> Row:
    by_topic = 'topic!=""'
    return Row(
        "Traffic",
        (
            _show("Records in", "cps", (f"sum by (topic) ({rate(catalogue.MESSAGES_IN, by_topic)})", "{{topic}}")),
            _show("Bytes in", "Bps", (f"sum by (topic) ({rate(catalogue.BYTES_IN, by_topic)})", "{{topic}}")),
            _show("Bytes out", "Bps", (f"sum by (topic) ({rate(catalogue.BYTES_OUT, by_topic)})", "{{topic}}")),
            _show(
                "Connections",
                "short",
                (f"sum by (instance, listener) ({pick(catalogue.CONNECTIONS)})", "{{instance}} {{listener}}"),
            ),
            _show(
                "New connections",
                "cps",
                (f"sum by (instance) ({rate(catalogue.CONNECTIONS_MADE)})", "{{instance}} accepted"),
                (f"sum by (instance) ({rate(catalogue.CONNECTIONS_REFUSED)})", "{{instance}} refused"),
            ),
            _show(
                "Logins",
                "cps",
                (f"sum by (listener) ({rate(catalogue.LOGINS)})", "{{listener}}"),
                (f"sum by (listener) ({rate(catalogue.FAILED_LOGINS)})", "{{listener}} failed"),
                (f"sum by (listener) ({rate(catalogue.LOGINS_AGAIN)})", "{{listener}} again"),
                text="Listeners with TLS or SASL only.",
            ),
        ),
    )


def _build_requests() -> Row:
    def show_times(request: str, family: Family, title: str, text: str = "") -> Panel:
        queries = ((quantile(share, family, request), f"p{share * 100:g}") for share in (0.5, 0.95, 0.99))
        return _show(title, "ms", *queries, text=text)

    parts = (
        (catalogue.REQUEST_QUEUE_TIME, "queue"),
        (catalogue.REQUEST_LOCAL_TIME, "local"),
        (catalogue.REQUEST_REMOTE_TIME, "remote"),
    )
    means = [
        (
            f"sum by (request) ({rate(family, suffix='_sum')}) / sum by (request) ({rate(family, suffix='_count')})",
            f"{{{{request}}}} {part}",
        )
        for family, part in parts
    ]
    return Row(
        "Requests",
        (
            _show("Requests", "reqps", (f"sum by (request) ({rate(catalogue.REQUESTS)})", "{{request}}")),
            _show(
                "Errors",
                "cps",
                (f"sum by (request, error) ({rate(catalogue.REQUEST_ERRORS)})", "{{request}} {{error}}"),
            ),
            _show("Mean time by part", "ms", *means, text="Waiting for records and replicas is in the remote part."),
            show_times("Produce", catalogue.REQUEST_TIME, "Produce: time until the answer"),
            show_times(
                "Fetch", catalogue.REQUEST_LOCAL_TIME, "Fetch: time in the handler", "Without the wait for records."
            ),
            _show(
                "Event loop",
                "percentunit",
                (pick(catalogue.HANDLER_IDLE), "{{instance}} idle"),
            ),
        ),
    )


def _build_groups() -> Row:
    by_group = "(consumergroup, topic)"
    name = "{{consumergroup}} {{topic}}"
    return Row(
        "Groups",
        (
            _show("Lag in records", "short", (f"sum by {by_group} ({pick(catalogue.GROUP_LAG)})", name)),
            _show(
                "Lag in seconds",
                "s",
                (f"max by {by_group} ({pick(catalogue.GROUP_LAG_SECONDS)})", name),
                text="The age of the oldest record that a group has not read.",
            ),
            _show("Records read", "cps", (f"sum by {by_group} ({rate_of_offsets()})", name)),
            _show(
                "Members", "short", (f"sum by (consumergroup) ({pick(catalogue.GROUP_MEMBERS)})", "{{consumergroup}}")
            ),
            _show(
                "Rebalances",
                "cps",
                (f"sum({rate(catalogue.CLASSIC_REBALANCES)})", "classic groups"),
                (f"sum({rate(catalogue.CONSUMER_REBALANCES)})", "consumer groups"),
            ),
            _show("Transactions", "cps", (f"sum by (outcome) ({rate(catalogue.TRANSACTIONS_ENDED)})", "{{outcome}}")),
        ),
    )


def rate_of_offsets() -> str:
    """How fast committed offsets grow. They are gauges, since a reset moves them back."""
    return f"deriv({pick(catalogue.GROUP_OFFSET_SUM)}[{RATE}])"


def _build_storage() -> Row:
    directory = "{{instance}} {{logdirectory}}"
    return Row(
        "Storage and replication",
        (
            _show("Free space", "bytes", (pick(catalogue.DIRECTORY_FREE), directory)),
            _show("Log size", "bytes", (f"sum by (topic) ({pick(catalogue.LOG_SIZE)})", "{{topic}}")),
            _show(
                "In-sync replicas removed and added",
                "cps",
                (f"sum by (instance) ({rate(catalogue.ISR_SHRINKS)})", "{{instance}} removed"),
                (f"sum by (instance) ({rate(catalogue.ISR_EXPANDS)})", "{{instance}} added"),
            ),
            _show(
                "Leaders and elections",
                "short",
                (pick(catalogue.LEADERS), "{{instance}} leads"),
                (f"increase({pick(catalogue.ELECTIONS)}[{RATE}])", "{{instance}} elected"),
            ),
            _show("Replica lag, the slowest", "short", (pick(catalogue.MAX_LAG), "{{instance}}")),
            _show(
                "Compaction",
                "short",
                (pick(catalogue.MAX_DIRTY_PERCENT), "{{instance}} dirty, percent"),
                (f"sum by (instance) ({pick(catalogue.UNCLEANABLE_PARTITIONS)})", "{{instance}} uncleanable logs"),
            ),
        ),
    )


def _build_brokers() -> Row:
    delays = f"sum by (instance, le) ({rate(catalogue.LOOP_DELAY, suffix='_bucket')})"
    return Row(
        "Brokers",
        (
            _show("Processor", "percentunit", (rate(catalogue.CPU_SECONDS), "{{instance}}")),
            _show("Memory", "bytes", (pick(catalogue.RESIDENT_MEMORY), "{{instance}}")),
            _show("Delay of the event loop, p99", "ms", (f"histogram_quantile(0.99, {delays})", "{{instance}}")),
            _show("Open files", "short", (pick(catalogue.OPEN_FILES), "{{instance}}")),
            _show("Memory of requests", "bytes", (pick(catalogue.REQUEST_MEMORY), "{{instance}}")),
            _show("Version", "short", (pick(catalogue.BUILD), "{{instance}} {{version}} Python {{python}}")),
        ),
    )


# The file


def write_board(title: str) -> str:
    return json.dumps(_build_board(title), indent=2) + "\n"


def _build_board(title: str) -> dict[str, Any]:
    return {
        "title": title,
        "uid": "ottla",
        "tags": ["ottla", "kafka"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": _list_variables()},
        "panels": list(_place(build_rows())),
    }


def _list_variables() -> list[dict[str, Any]]:
    source = {"type": "prometheus", "uid": "${source}"}
    build = catalogue.BUILD.name
    return [
        {"name": "source", "label": "Data source", "type": "datasource", "query": "prometheus"},
        {
            "name": "job",
            "label": "Job",
            "type": "query",
            "datasource": source,
            "query": f"label_values({build}, job)",
            "refresh": 2,
        },
        {
            "name": "instance",
            "label": "Brokers",
            "type": "query",
            "datasource": source,
            "query": f'label_values({build}{{job="$job"}}, instance)',
            "refresh": 2,
            "multi": True,
            "includeAll": True,
            "allValue": ".*",
            "current": {"text": ["All"], "value": ["$__all"]},
        },
    ]


def _place(rows: list[Row]) -> Iterator[dict[str, Any]]:
    """The panels with their places: rows from top to bottom, panels from left to right."""
    number, top = 0, 0
    for row in rows:
        number += 1
        yield {
            "id": number,
            "type": "row",
            "title": row.title,
            "collapsed": False,
            "gridPos": {"x": 0, "y": top, "w": WIDTH, "h": 1},
            "panels": [],
        }
        top += 1
        width = WIDTH // row.per_line
        height = HEIGHT if row.panels[0].kind == TIME_SERIES else HEIGHT // 2
        for place, panel in enumerate(row.panels):
            number += 1
            where = {
                "x": place % row.per_line * width,
                "y": top + place // row.per_line * height,
                "w": width,
                "h": height,
            }
            yield _build_panel(number, panel, where)
        top += -(-len(row.panels) // row.per_line) * height


def _build_panel(number: int, panel: Panel, where: dict[str, int]) -> dict[str, Any]:
    source = {"type": "prometheus", "uid": "${source}"}
    field: dict[str, Any] = {"unit": panel.unit, "min": 0}
    if panel.alarm is not None:
        steps = [{"color": "green", "value": None}, {"color": "red", "value": panel.alarm}]
        field |= {"color": {"mode": "thresholds"}, "thresholds": {"mode": "absolute", "steps": steps}}
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.text,
        "datasource": source,
        "gridPos": where,
        "fieldConfig": {"defaults": field, "overrides": []},
        "options": _list_options(panel),
        "targets": [
            {
                "refId": chr(ord("A") + place),
                "datasource": source,
                "expr": query.expression,
                "legendFormat": query.legend,
            }
            for place, query in enumerate(panel.queries)
        ],
    }


def _list_options(panel: Panel) -> dict[str, Any]:
    if panel.kind == STAT:
        return {"colorMode": "value", "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False}}
    return {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi", "sort": "desc"}}
