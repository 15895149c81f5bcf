"""/metrics: what Prometheus reads."""

from ottla.connect.worker.herder import ConnectorMetrics
from ottla.connect.worker.runs import State
from tests.unit.connect.rest.conftest import RestClient

EXPECTED = """\
kafka_connect_connect_worker_metrics_connector_count 2
kafka_connect_connect_worker_metrics_task_count 3
kafka_connect_connector_metrics_status{connector="in",state="RUNNING"} 1
kafka_connect_connector_metrics_status{connector="out \\"1\\"",state="PAUSED"} 1
kafka_connect_source_task_metrics_source_record_poll_total{connector="in",task="0"} 0
kafka_connect_source_task_metrics_source_record_poll_total{connector="in",task="1"} 0
kafka_connect_source_task_metrics_source_record_write_total{connector="in",task="0"} 5
kafka_connect_source_task_metrics_source_record_write_total{connector="in",task="1"} 0
kafka_connect_sink_task_metrics_sink_record_read_total{connector="out \\"1\\"",task="0"} 0
kafka_connect_sink_task_metrics_sink_record_send_total{connector="out \\"1\\"",task="0"} 0
kafka_connect_sink_task_metrics_sink_record_lag_max{connector="out \\"1\\"",task="0"} 7
"""


def test_metrics_have_kafkas_names(client: RestClient) -> None:
    client.herder.metrics["in"] = ConnectorMetrics("source", State.RUNNING, [{"source-record-write-total": 5}, {}])
    client.herder.metrics['out "1"'] = ConnectorMetrics("sink", State.PAUSED, [{"sink-record-lag-max": 7, "lag": 9}])
    status, text, headers = client.send("GET", "/metrics", Accept="text/plain")
    assert (status, headers["content-type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert lines[:11] == EXPECTED.splitlines()
    assert 'kafka_connect_task_error_metrics_total_retries{connector="in",task="0"} 0' in lines
    assert "# TYPE kafka_connect_sink_task_metrics_sink_record_lag_max gauge" in text
    assert "# TYPE kafka_connect_sink_task_metrics_sink_record_send_total counter" in text
