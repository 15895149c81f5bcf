"""The line on the terminal of a worker."""

from ottla.cli.connect.progress import summarise
from ottla.connect.worker.herder import ConnectorMetrics
from ottla.connect.worker.runs import State


def test_connectors_with_trouble_come_first_then_the_busiest() -> None:
    before = {"in": ConnectorMetrics("source", State.RUNNING, [{"source-record-write-total": 1_000}])}
    tasks = [{"source-record-write-total": 3_000}, {"source-record-write-total": 500}]
    now = {
        "idle": ConnectorMetrics("source", State.RUNNING, [{"source-record-write-total": 7}]),
        "in": ConnectorMetrics("source", State.RUNNING, tasks),
        "out": ConnectorMetrics("sink", State.FAILED, [{"sink-record-send-total": 7, "lag": 1_234}, {"lag": 1}]),
    }
    assert summarise(before, now, 2.0) == (
        "out FAILED, 0 rows/s, lag 1,235; in RUNNING, 1,250 rows/s; idle RUNNING, 0 rows/s"
    )
    assert summarise(now, {}, 1.0) == "no connectors"
