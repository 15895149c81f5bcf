"""librdkafka pushes its own metrics, and the metrics page of the broker shows them."""

import time

from confluent_kafka import Producer

from ottla import testing
from ottla.wire.messages import incremental_alter_configs as altering
from tests.patience import PATIENCE_S
from tests.raw_client import RawClient
from tests.scenarios.test_metrics import metrics

CLIENT_METRICS = 16


def test_librdkafka_pushes_its_metrics() -> None:
    """A subscription for its client id is enough: the client asks for it, and pushes within the interval."""
    with testing.broker(metrics_port=0) as broker:
        broker.create_topic("orders")
        with RawClient(broker.host, broker.port) as admin:
            configs = [
                altering.AlterableConfig(name=name, config_operation=0, value=value)
                for name, value in (("metrics", "*"), ("interval.ms", "500"), ("match", "client_id=told-.*"))
            ]
            resource = altering.AlterConfigsResource(
                resource_type=CLIENT_METRICS, resource_name="mine", configs=configs
            )
            (answer,) = admin.request(altering.IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
            assert answer.error_code == 0
        producer = Producer({"bootstrap.servers": broker.bootstrap, "client.id": "told-1", "enable.metrics.push": True})
        deadline = time.monotonic() + PATIENCE_S
        while True:
            producer.produce("orders", b"x")
            producer.flush(PATIENCE_S)
            found = metrics(broker)
            families = [found.families.get(name) for name in ("ottla_client_metric", "ottla_client_metric_total")]
            if all(families):
                break
            assert time.monotonic() < deadline, "nothing was pushed"
            time.sleep(0.1)
        assert found.value("kafka_server_client_metrics_instance_count") == 1
        assert found.value("ottla_client_metrics_pushes_total") >= 1
        assert found.value("ottla_client_metrics_refused_total") == 0
        labels = [dict(labels) for family in families if family for _, labels in family.samples]
        assert {each["client_id"] for each in labels} == {"told-1"}
        assert any(each["metric"].startswith("org.apache.kafka.producer.") for each in labels)
        producer.flush(PATIENCE_S)
