"""The lag of groups on the metrics page, in records and in seconds, under the names of kafka_exporter."""

from collections.abc import Iterator

import pytest

from ottla.testing import LocalBroker
from ottla.testing import broker as local_broker
from tests.scenarios.client_calls import append, connect
from tests.scenarios.test_metrics import commit, metrics
from tests.scenarios.transactional_producer import TransactionalProducer

GROUP = "kafka_consumergroup"
AGE = "ottla_consumergroup_lag_seconds"


@pytest.fixture
def watched() -> Iterator[LocalBroker]:
    with local_broker(metrics_port=0) as running:
        yield running


def test_lag_is_what_a_group_has_not_read(watched: LocalBroker) -> None:
    # Two groups in two partitions, one of them at the end, one beyond it, as after a topic was made anew.
    watched.create_topic("orders", partitions=2)
    with connect(watched) as client:
        for partition in (0, 1):
            append(client, "orders", b"a", b"b", b"c", partition=partition)
        commit(client, "slow", "orders", 1, 3)
        commit(client, "lost", "orders", 9)
    found = metrics(watched)
    assert found.value(f"{GROUP}_lag", consumergroup="slow", topic="orders", partition="0") == 2
    assert found.value(f"{GROUP}_lag", consumergroup="slow", topic="orders", partition="1") == 0
    assert found.value(f"{GROUP}_lag", consumergroup="lost", topic="orders", partition="0") == 0
    assert found.value(f"{GROUP}_lag_sum", consumergroup="slow", topic="orders") == 2
    assert found.value(f"{GROUP}_current_offset", consumergroup="slow", topic="orders", partition="0") == 1
    assert found.value(f"{GROUP}_current_offset_sum", consumergroup="slow", topic="orders") == 4
    assert found.value(f"{GROUP}_members", consumergroup="slow") == 0
    assert found.value(AGE, consumergroup="lost", topic="orders", partition="0") == 0


def test_lag_in_seconds_is_the_age_of_the_first_unread_record(watched: LocalBroker) -> None:
    # It grows with the clock while the group stands still, and is 0 at the end, however old the last record is.
    watched.create_topic("orders")
    now_ms = watched.now_ms
    with connect(watched) as client:
        for age_s in (300, 200, 100):
            append(client, "orders", b"x", timestamp=now_ms - age_s * 1000)
        commit(client, "slow", "orders", 1)
        commit(client, "quick", "orders", 3)
        commit(client, "new", "orders", 0)
        first = metrics(watched)
        ages = [
            first.value(AGE, consumergroup=each, topic="orders", partition="0") for each in ("new", "slow", "quick")
        ]
        assert ages[0] - ages[1] == pytest.approx(100) and ages[1] >= 200 and ages[2] == 0
        watched.advance(seconds=50)
        later = metrics(watched)
        assert later.value(AGE, consumergroup="slow", topic="orders", partition="0") >= ages[1] + 50
        assert later.value(AGE, consumergroup="quick", topic="orders", partition="0") == 0


def test_transaction_markers_are_nothing_that_waits(watched: LocalBroker) -> None:
    # A group that has committed the offset of a marker has read every record, though the marker counts in its lag.
    watched.create_topic("orders")
    with connect(watched) as client:
        writer = TransactionalProducer(client, "writer").initialise()
        writer.write("orders", b"x")
        writer.commit()
        commit(client, "readers", "orders", 1)
        found = metrics(watched)
        assert found.value(f"{GROUP}_lag", consumergroup="readers", topic="orders", partition="0") == 1
        assert found.value(AGE, consumergroup="readers", topic="orders", partition="0") == 0
        append(client, "orders", b"y", timestamp=watched.now_ms - 60_000)
        assert metrics(watched).value(AGE, consumergroup="readers", topic="orders", partition="0") >= 60


def test_groups_with_series_are_limited() -> None:
    with local_broker(metrics_port=0, metrics_groups_max=2, metrics_offsets_max=3) as broker:
        broker.create_topic("orders", partitions=2)
        with connect(broker) as client:
            for name in ("a", "b", "c"):
                commit(client, name, "orders", 0, 0)
        found = metrics(broker)
    assert len(found.families[f"{GROUP}_members"].samples) == 2
    assert len(found.families[f"{GROUP}_lag"].samples) == 3
    assert found.value("ottla_metrics_groups_left_out") == 2


def test_partitions_have_the_series_of_kafka_exporter(watched: LocalBroker) -> None:
    watched.create_topic("orders", partitions=2)
    with connect(watched) as client:
        append(client, "orders", b"a", b"b", partition=1)
    found = metrics(watched)
    where = {"topic": "orders", "partition": "1"}
    expected = {
        "current_offset": 2,
        "oldest_offset": 0,
        "leader_is_preferred": 1,
        "replicas": 1,
        "in_sync_replica": 1,
        "under_replicated_partition": 0,
    }
    assert {name: found.value(f"kafka_topic_partition_{name}", **where) for name in expected} == expected
    assert found.value("kafka_cluster_partition_underminisr", **where) == 0
    assert found.value("kafka_cluster_partition_atminisr", **where) == 1
    leader = found.value("kafka_topic_partition_leader", **where)
    assert found.value("kafka_topic_partitions", topic="orders") == 2
    assert found.value("kafka_brokers") == 1
    assert found.value("kafka_broker_info", id=str(int(leader)), address=watched.bootstrap) == 1


def test_volumes_and_the_event_loop_are_measured(watched: LocalBroker) -> None:
    found = metrics(watched)
    (free,) = found.families["ottla_log_directory_free_bytes"].samples.values()
    (total,) = found.families["ottla_log_directory_total_bytes"].samples.values()
    assert 0 < free <= total
    idle = found.value("kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent")
    assert 0 <= idle <= 1
    assert found.value("kafka_network_socketserver_networkprocessoravgidle_percent") == idle
