"""The metrics of a real broker: all are there, a strict parser accepts them, and they count what happens."""

import logging
import os
import socket
import threading
import time
from collections.abc import Iterator
from http.client import HTTPConnection

import pytest

from ottla.errors import ErrorCode
from ottla.observability.catalogue import (
    CLIENT_GAUGE,
    CLIENT_SUM,
    DISK_READ,
    DISK_WRITTEN,
    EXPIRED_LOGINS,
    FAILED_LOGINS,
    FAILED_LOGINS_AGAIN,
    FAMILIES,
    LOGINS,
    LOGINS_AGAIN,
    PURGATORY,
    REPLICA_LAG,
)
from ottla.observability.logs import LineFormatter, set_level
from ottla.testing import LocalBroker
from ottla.testing import broker as local_broker
from ottla.wire.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.api_versions import ApiVersionsRequest
from ottla.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.exposition import Exposition
from tests.patience import PATIENCE_MS, PATIENCE_S
from tests.raw_client import RawClient
from tests.scenarios.client_calls import append, connect, delete_topic, make_batch
from tests.scenarios.quota_requests import set_quota
from tests.scenarios.transactional_producer import TransactionalProducer

TOPICS = "kafka_server_brokertopicmetrics"
REQUESTS = "kafka_network_requestmetrics"
LOGIN_METRICS = (LOGINS, FAILED_LOGINS, LOGINS_AGAIN, FAILED_LOGINS_AGAIN, EXPIRED_LOGINS)
HIDDEN = () if os.access("/proc/self/io", os.R_OK) else (DISK_READ, DISK_WRITTEN)
SHOWN_ELSEWHERE = (REPLICA_LAG, CLIENT_GAUGE, CLIENT_SUM, *LOGIN_METRICS, *HIDDEN)
"""Followers are in tests/cluster/test_metrics.py, pushed metrics in tests/clients/test_telemetry.py, logins in
tests/scenarios/test_login_metrics.py."""


@pytest.fixture
def watched() -> Iterator[LocalBroker]:
    with local_broker(metrics_port=0) as running:
        yield running


def get(broker: LocalBroker, path: str) -> tuple[int, str, str]:
    """Send a GET request. Returns status, content type and text."""
    connection = HTTPConnection(broker.host, broker.metrics_port, timeout=PATIENCE_S)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.getheader("Content-Type", ""), response.read().decode()
    finally:
        connection.close()


def metrics(broker: LocalBroker) -> Exposition:
    status, content_type, text = get(broker, "/metrics")
    assert (status, content_type) == (200, "text/plain; version=0.0.4; charset=utf-8")
    return Exposition(text)


def commit(client: RawClient, group: str, topic: str, *offsets: int) -> None:
    """Commit an offset in each partition of a topic."""
    partitions = [
        OffsetCommitRequestPartition(partition_index=index, committed_offset=offset)
        for index, offset in enumerate(offsets)
    ]
    topics = [OffsetCommitRequestTopic(name=topic, partitions=partitions)]
    answer = client.request(OffsetCommitRequest(group_id=group, topics=topics), 8)
    assert {each.error_code for found in answer.topics for each in found.partitions} == {0}


def test_groups_are_counted(watched: LocalBroker) -> None:
    # Groups are counted by protocol and by state, and so are the partitions of __consumer_offsets of this broker.
    partitions, groups = "ottla_coordinator_partitions", "kafka_server_group_coordinator_metrics_group_count"
    assert metrics(watched).value(partitions, coordinator="group", state="active") == 0
    watched.create_topic("orders")
    topic = OffsetCommitRequestTopic(name="orders", partitions=[OffsetCommitRequestPartition(committed_offset=1)])
    with connect(watched) as client:
        for name in ("a", "b"):
            client.request(OffsetCommitRequest(group_id=name, topics=[topic]), 8)
    found = metrics(watched)
    assert found.value("kafka_coordinator_group_groupmetadatamanager_numoffsets") == 2
    assert found.value("kafka_server_group_coordinator_metrics_offset_commit_count_total") == 2
    assert found.value(groups, protocol="classic", state="Empty") == 2
    assert found.value(partitions, coordinator="group", state="active") == 50
    assert found.value(partitions, coordinator="group", state="loading") == 0
    assert found.value("ottla_coordinator_operations_total", coordinator="group", operation="commit_offsets") == 2
    assert found.value("ottla_coordinator_operations_total", coordinator="group", operation="join") == 0


def test_transactions_are_counted(watched: LocalBroker) -> None:
    # Transactions are counted by result and by state. A partition shows that it has an open transaction, so one that
    # hangs can be found.
    ended, ids = "ottla_transactions_ended_total", "ottla_transactional_ids"
    late = "kafka_server_replicamanager_partitionswithlatetransactionscount"
    watched.create_topic("orders")
    with connect(watched) as client:
        writer, other = (TransactionalProducer(client, name).initialise() for name in ("writer", "other"))
        for producer in (writer, other):
            producer.write("orders", b"x")
        writer.commit()
        writer.write("orders", b"y")
        writer.abort()
        found = metrics(watched)
        assert [found.value(ended, outcome=outcome) for outcome in ("committed", "aborted", "timed out")] == [1, 1, 0]
        assert found.value(ids, state="Ongoing") == 1
        assert found.value("ottla_coordinator_operations_total", coordinator="transaction", operation="end") == 2
        assert found.value("ottla_transaction_marker_time_ms_count") == 2
        assert found.value("kafka_server_replicamanager_produceridcount") == 2
        assert found.value(late) == 1  # its record has an old timestamp
        other.commit()
        assert metrics(watched).value(late) == 0


def test_the_broker_has_exactly_the_metrics_of_the_catalogue(watched: LocalBroker) -> None:
    # Each metric has the type and help text that docs/metrics.md lists.
    watched.create_topic("orders")
    watched.create_topic("gone")
    with connect(watched) as client:
        rates = ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate")
        set_quota(client, {"user": None}, **dict.fromkeys(rates, 1e9))
        set_quota(client, {"ip": None}, connection_creation_rate=1e6)
    with connect(watched) as client:
        client.request(DeleteTopicsRequest(topics=[DeleteTopicState(name="gone")], timeout_ms=PATIENCE_MS), 6)
        client.fetch("orders", 0, append(client, "orders", b"x"))
        commit(client, "readers", "orders", 0)
        client.produce("nowhere", 0, make_batch(b"x"))
    found = metrics(watched).families
    assert {(each.name, each.kind, each.help) for each in found.values()} == {
        (each.name, each.kind, each.help) for each in FAMILIES if each not in SHOWN_ELSEWHERE
    }
    for family in (each for each in FAMILIES if each not in SHOWN_ELSEWHERE):
        names = {name for _, labels in found[family.name].samples for name, _ in labels}
        assert names <= {*family.labels, "le"}


def test_records_are_counted_in_and_out_by_topic(watched: LocalBroker) -> None:
    watched.create_topic("orders", partitions=2)
    watched.create_topic("quiet")
    batch = make_batch(b"one", b"two", b"three")
    with connect(watched) as client:
        client.produce("orders", 0, batch)
        client.produce("orders", 1, batch)
        client.fetch("orders", 0, 0)
    read = metrics(watched)
    for topic, share in (({"topic": "orders"}, 1), ({"topic": "quiet"}, 0), ({}, 1)):
        assert read.value(f"{TOPICS}_messagesin_total", **topic) == 6 * share
        assert read.value(f"{TOPICS}_bytesin_total", **topic) == 2 * len(batch) * share
        assert read.value(f"{TOPICS}_bytesout_total", **topic) == len(batch) * share
        assert read.value(f"{TOPICS}_totalproducerequests_total", **topic) == 2 * share
        assert read.value(f"{TOPICS}_totalfetchrequests_total", **topic) == share
    assert read.value("kafka_log_log_logendoffset", topic="orders", partition="1") == 3
    assert read.value("kafka_log_log_size", topic="orders", partition="1") == len(batch)
    assert read.value("kafka_server_replicamanager_partitioncount") == 3
    assert read.value("kafka_server_replicamanager_leadercount") == 3
    assert read.value("kafka_controller_kafkacontroller_globalpartitioncount") == 3


def test_the_bytes_of_batches_that_are_too_large_are_counted(watched: LocalBroker) -> None:
    watched.create_topic("orders", **{"max.message.bytes": 100})
    large = make_batch(bytes(100))
    with connect(watched) as client:
        client.produce("orders", 0, large)
        client.produce("orders", 0, b"this is no batch")
    read = metrics(watched)
    for labels in ({"topic": "orders"}, {}):
        assert read.value(f"{TOPICS}_bytesrejected_total", **labels) == len(large)


def test_a_cordoned_directory_is_shown(watched: LocalBroker) -> None:
    def cordon(directories: str) -> tuple[float, float]:
        """Set cordoned.log.dirs of the running broker, and read both metrics."""
        setting = AlterableConfig(name="cordoned.log.dirs", config_operation=0, value=directories)
        broker = AlterConfigsResource(resource_type=4, resource_name="1", configs=[setting])
        assert client.request(IncrementalAlterConfigsRequest(resources=[broker]), 1).responses[0].error_code == 0
        read = metrics(watched)
        cordoned = read.value("kafka_log_logmanager_logdirectorycordoned", logdirectory=watched.directory)
        return read.value("kafka_log_logmanager_cordonedlogdirectorycount"), cordoned

    with connect(watched) as client:
        assert cordon("*") == cordon(watched.directory) == (1, 1)
        assert cordon("") == (0, 0)


def test_a_duplicate_batch_counts_as_a_request_but_not_as_messages(watched: LocalBroker) -> None:
    watched.create_topic("orders")
    batch = make_batch(b"one", producer_id=5, producer_epoch=0, base_sequence=0)
    with connect(watched) as client:
        for _ in range(2):
            client.produce("orders", 0, bytearray(batch))
    read = metrics(watched)
    assert read.value(f"{TOPICS}_messagesin_total", topic="orders") == 1
    assert read.value(f"{TOPICS}_totalproducerequests_total", topic="orders") == 2
    assert read.value(f"{TOPICS}_failedproducerequests_total", topic="orders") == 0


def test_failures_are_counted_without_a_series_for_unknown_topics(watched: LocalBroker) -> None:
    # However many names of topics that do not exist a client sends, there is no series for them.
    watched.create_topic("orders")
    with connect(watched) as client:
        client.produce("orders", 0, b"this is no batch")
        client.fetch("orders", 0, 99)
        for number in range(50):
            client.produce(f"stranger-{number}", 0, make_batch(b"x"))
            client.fetch(f"stranger-{number}", 0, 0)
    read = metrics(watched)
    assert read.value(f"{TOPICS}_failedproducerequests_total", topic="orders") == 1
    assert read.value(f"{TOPICS}_failedfetchrequests_total", topic="orders") == 1
    assert read.value(f"{TOPICS}_failedproducerequests_total") == 51
    assert read.value(f"{TOPICS}_failedfetchrequests_total") == 51
    assert read.find_label_values(f"{TOPICS}_failedproducerequests_total", "topic") == {"orders"}
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name
    assert read.value(f"{REQUESTS}_errors_total", request="Produce", error=unknown) == 50
    assert read.value(f"{REQUESTS}_errors_total", request="Fetch", error=unknown) == 50
    assert read.value(f"{REQUESTS}_errors_total", request="Fetch", error="OFFSET_OUT_OF_RANGE") == 1


def test_requests_are_counted_by_version_and_timed(watched: LocalBroker) -> None:
    # A long poll takes as long as it waits, and its time is in the histogram.
    watched.create_topic("orders")
    before = metrics(watched).value(f"{REQUESTS}_requests_total", request="ApiVersions", version="0")
    with connect(watched) as client:
        client.request(ApiVersionsRequest(), 0)
        client.request(ApiVersionsRequest(), 3)
        client.request(ApiVersionsRequest(), 3)
        client.fetch("orders", 0, 0, max_wait_ms=120)
        assert delete_topic(client, "nowhere") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    read = metrics(watched)
    assert read.value(f"{REQUESTS}_requests_total", request="ApiVersions", version="0") == before + 1
    assert read.value(f"{REQUESTS}_requests_total", request="ApiVersions", version="3") == 2
    assert read.value(f"{REQUESTS}_totaltimems_count", request="ApiVersions") == before + 3
    assert read.value(f"{REQUESTS}_totaltimems_bucket", request="Fetch", le="100") == 0
    assert read.value(f"{REQUESTS}_totaltimems_bucket", request="Fetch", le="10000") == 1
    assert read.value(f"{REQUESTS}_totaltimems_sum", request="Fetch") > 100
    assert read.value(f"{REQUESTS}_remotetimems_sum", request="Fetch") > 100
    assert read.value(f"{REQUESTS}_remotetimems_bucket", request="Fetch", le="100") == 0
    for part in ("requestqueuetimems", "localtimems", "remotetimems"):  # each request has all three, be they 0
        assert read.value(f"{REQUESTS}_{part}_count", request="Fetch") == 1
        assert read.value(f"{REQUESTS}_{part}_count", request="ApiVersions") == before + 3
    parts = [read.value(f"{REQUESTS}_{part}_sum", request="Fetch") for part in ("requestqueuetimems", "localtimems")]
    whole = sum(parts) + read.value(f"{REQUESTS}_remotetimems_sum", request="Fetch")
    assert whole == pytest.approx(read.value(f"{REQUESTS}_totaltimems_sum", request="Fetch"))
    local, total = (
        read.value(f"{REQUESTS}_{part}_sum", request="ApiVersions") for part in ("localtimems", "totaltimems")
    )
    assert local == pytest.approx(total)
    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name
    assert read.value(f"{REQUESTS}_errors_total", request="DeleteTopics", error=error) == 1


def test_requests_that_wait_are_counted(watched: LocalBroker) -> None:
    # Until they are answered.
    watched.create_topic("orders")
    wanted = FetchTopic("orders", bytes(16), [FetchPartition(0, fetch_offset=0, max_bytes=1000)])
    request = FetchRequest(max_wait_ms=PATIENCE_MS, min_bytes=1, topics=[wanted])

    def wait_for(count: int) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while metrics(watched).value(PURGATORY.name, delayedoperation="Fetch") != count:
            assert time.monotonic() < deadline

    with connect(watched) as one, connect(watched) as other, connect(watched) as producer:
        for client in (one, other):
            client.send_fetch(request, 12)
        wait_for(2)
        producer.produce("orders", 0, make_batch(b"x"))
        for client in (one, other):
            assert client.read_fetch(12).topics[0].partitions[0].records
        wait_for(0)


def test_invalid_requests_and_connections_are_counted(watched: LocalBroker) -> None:
    name = "kafka_server_socketservermetrics"
    before = metrics(watched)
    with connect(watched) as one:
        one.request(ApiVersionsRequest(), 0)
        for no_request in (b"\x00\x03\x00\x0c" + bytes(4) + b"\x7f\xff", b"\x7f\xff\x00\x00" + bytes(6)):
            with connect(watched) as stranger:
                stranger.send_frame(no_request)
                assert stranger.is_closed_by_peer()
        read = metrics(watched)
        while read.value(f"{name}_connection_count", listener="PLAINTEXT") > 1:
            read = metrics(watched)
        assert read.value("ottla_requests_malformed_total") == 1
        assert read.value("ottla_requests_unsupported_total") == 1
        assert read.value(f"{name}_connection_count", listener="PLAINTEXT") == 1
        made = read.value(f"{name}_connection_creation_total") - before.value(f"{name}_connection_creation_total")
        assert made == 3
        assert read.value(f"{name}_incoming_byte_total") > before.value(f"{name}_incoming_byte_total")


def test_a_deleted_topic_loses_its_series_but_stays_in_the_sum(watched: LocalBroker) -> None:
    # A sum that decreased would look like a restart of the broker.
    watched.create_topic("orders")
    with connect(watched) as client:
        append(client, "orders", b"x")
        assert delete_topic(client, "orders") == 0
        read = metrics(watched)
        assert read.value(f"{TOPICS}_messagesin_total") == 1
        assert not read.find_label_values(f"{TOPICS}_messagesin_total", "topic")
        assert "kafka_log_log_size" not in read.families
        watched.create_topic("orders")
        append(client, "orders", b"y")
    read = metrics(watched)
    assert read.value(f"{TOPICS}_messagesin_total", topic="orders") == 1
    assert read.value(f"{TOPICS}_messagesin_total") == 2


def test_series_of_topics_and_partitions_are_limited() -> None:
    # Topics and partitions without series of their own are in the sums, and a metric says how many there are.
    with local_broker(metrics_port=0, metrics_topics_max=2, metrics_partitions_max=4) as broker:
        for number in range(4):
            broker.create_topic(f"topic-{number}", partitions=3)
        with connect(broker) as client:
            append(client, "topic-3", b"x")
        read = metrics(broker)
    assert len(read.find_label_values(f"{TOPICS}_messagesin_total", "topic")) == 2
    assert len(read.families["kafka_log_log_size"].samples) == 4
    assert read.value("ottla_metrics_topics_left_out") == 2
    assert read.value("ottla_metrics_partitions_left_out") == 8
    assert read.value(f"{TOPICS}_messagesin_total") == 1
    assert read.value("kafka_server_replicamanager_partitioncount") == 12


def test_health_follows_the_broker(watched: LocalBroker) -> None:
    # /health answers 503 while the broker stops, so that a load balancer sees it; then the port is closed.
    assert get(watched, "/health") == (200, "text/plain; charset=utf-8", "running\n")
    port = watched.metrics_port
    watched.create_topic("orders")
    client = connect(watched)
    watched.delay("Produce", seconds=1)
    producing = threading.Thread(target=client.produce, args=("orders", 0, make_batch(b"x")))
    producing.start()
    stopping = threading.Thread(target=watched.stop)
    held = HTTPConnection(watched.host, port, timeout=PATIENCE_S)
    while metrics(watched).value("ottla_request_memory_bytes") == 0:
        pass  # waits until the request has arrived
    stopping.start()
    while True:
        held.request("GET", "/health")
        response = held.getresponse()
        text = response.read()
        held.close()
        if response.status == 503:
            break
        assert response.status == 200
    assert text == b"stopping\n"
    producing.join()
    stopping.join()
    client.close()
    with socket.socket() as other:
        assert other.connect_ex((watched.host, port)) != 0


def test_no_metrics_are_served_without_a_port(shared_broker: LocalBroker) -> None:
    with pytest.raises(KeyError):
        assert shared_broker.metrics_port


def test_requests_are_logged_at_debug_and_no_client_can_forge_a_line(
    watched: LocalBroker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.handler.setFormatter(LineFormatter())
    forger = 'me\n2026-01-01 00:00:00.000 INFO  broker: all is well\x1b[2K"'
    with RawClient(watched.host, watched.port, forger) as client:
        client.request(ApiVersionsRequest(), 3)
        set_level("ottla.requests", "DEBUG")
        try:
            client.request(ApiVersionsRequest(), 2)
        finally:
            set_level("ottla.requests", None)
        client.request(ApiVersionsRequest(), 1)
    (line,) = [caplog.handler.format(record) for record in caplog.records if record.name == "ottla.requests"]
    assert "DEBUG requests: ApiVersions v2 client=" in line
    assert "\n" not in line and "\x1b" not in line and "\\n2026" in line
    assert logging.getLogger("ottla.requests").level == logging.NOTSET
