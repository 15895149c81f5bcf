"""/metrics: the counters of this worker's tasks for Prometheus, by the names that Kafka Connect's have there.

A metric `source-record-write-total` of Kafka's group `source-task-metrics` is
`kafka_connect_source_task_metrics_source_record_write_total`, as Prometheus' JMX exporter names it.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from ottla.connect.rest.routing import Answer, Call, Resource
from ottla.connect.worker.herder import Herder

_GROUPS: Final = {
    "source-task-metrics": {
        "source-record-poll-total": "Records that the task has read from its source.",
        "source-record-write-total": "Records that the task has written to topics.",
    },
    "sink-task-metrics": {
        "sink-record-read-total": "Records that the task has read from topics.",
        "sink-record-send-total": "Records that the task has given to its target.",
        "sink-record-lag-max": "How many records the task is behind in the topic partition where these are the most.",
    },
    "task-error-metrics": {
        "total-record-failures": "Records that could not be converted, transformed or written.",
        "total-record-errors": "Failures of records that were tolerated.",
        "total-records-skipped": "Records that were left out because of a failure.",
        "total-retries": "Batches, and operations on records, that were tried again.",
        "total-errors-logged": "Failures of records that were logged.",
        "deadletterqueue-produce-requests": "Records that were written to the dead letter topic.",
    },
}
_WORKER: Final = "kafka_connect_connect_worker_metrics"
_STATUS: Final = "kafka_connect_connector_metrics_status"
_CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_ESCAPES: Final = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})

Series = list[tuple[Mapping[str, str], float]]
"""Labels and the value."""


class MetricsEndpoint:
    def __init__(self, herder: Herder) -> None:
        self._herder = herder

    def list_resources(self) -> list[Resource]:
        return [Resource("/metrics", {"GET": self.get}, takes_json=False, gives_json=False)]

    def get(self, call: Call) -> Answer:
        return Answer(200, "".join(self._format()), headers={"Content-Type": _CONTENT_TYPE})

    def _format(self) -> Iterator[str]:
        found = self._herder.list_metrics()
        tasks = sum(len(each.tasks) for each in found.values())
        yield from _format_metric(f"{_WORKER}_connector_count", "Connectors of this worker.", [({}, len(found))])
        yield from _format_metric(f"{_WORKER}_task_count", "Tasks of this worker.", [({}, tasks)])
        states: Series = [({"connector": name, "state": each.state.value}, 1) for name, each in found.items()]
        yield from _format_metric(_STATUS, "1 for the state of the connector.", states)
        for group, metrics in _GROUPS.items():
            for metric, text in metrics.items():
                series: Series = [
                    ({"connector": connector, "task": str(number)}, task.get(metric, 0))
                    for connector, each in found.items()
                    for number, task in enumerate(each.tasks)
                    if not group.startswith(("source", "sink")) or group.startswith(each.type)
                ]
                yield from _format_metric(f"kafka_connect_{group}_{metric}".replace("-", "_"), text, series)


def _format_metric(name: str, text: str, series: Series) -> Iterator[str]:
    """The lines of a metric; none if it has no series."""
    if series:
        kind = "gauge" if name.endswith(("_count", "_status", "_max")) else "counter"
        yield f"# HELP {name} {text}\n# TYPE {name} {kind}\n"
    for labels, value in series:
        pairs = ",".join(f'{label}="{given.translate(_ESCAPES)}"' for label, given in labels.items())
        yield f"{name}{{{pairs}}} {value:.0f}\n" if pairs else f"{name} {value:.0f}\n"
