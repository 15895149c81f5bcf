"""ZooKeeper that is gone, rolling restarts, and data directories that come back empty, with real processes."""

import time
from collections.abc import Iterator
from random import Random

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.cluster.links import HOST
from tests.cluster.load import QUIET, LedgerProducer, Load, Reader, create_topic, read_log, wait_for
from tests.cluster.processes import SESSION_MS, OttlaNode, OttlaNodes, run_nodes
from tests.patience import PATIENCE_MS, PATIENCE_S
from tests.raw_client import RawClient
from tests.simulation.checker import check
from tests.simulation.history import Event, History

pytestmark = pytest.mark.usefixtures("zookeeper_jars")

PARTITIONS = 6


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OttlaNodes]:
    with run_nodes(tmp_path_factory.mktemp("outages") / "cluster") as running:
        yield running


def has_preferred_leaders(nodes: OttlaNodes, topic: str) -> bool:
    """Whether each partition is led by the first of its replicas."""
    described = AdminClient(QUIET | {"bootstrap.servers": nodes.bootstrap}).list_topics(topic, PATIENCE_S).topics[topic]
    return all(partition.leader == partition.replicas[0] for partition in described.partitions.values())


def test_without_zookeeper_topics_are_written_and_read_as_before(nodes: OttlaNodes) -> None:
    # For three sessions: no leader steps down. Requests that change metadata fail in time, and work again afterwards.
    events: list[Event] = []
    ledger = create_topic(nodes.bootstrap, "without-zookeeper", PARTITIONS)
    nodes.wait_in_sync("without-zookeeper")
    producer = LedgerProducer("producer", nodes.bootstrap, ledger, events)
    reader = Reader("reader", nodes.bootstrap, ledger, events)
    for worker in (producer, reader):
        worker.start()
    producer.await_acknowledged(100)
    (server,) = nodes.zookeepers
    server.kill()
    began = time.monotonic()
    with pytest.raises(KafkaException) as refused:
        admin = AdminClient(QUIET | {"bootstrap.servers": nodes.bootstrap})
        new = NewTopic("refused", num_partitions=1, replication_factor=3)
        admin.create_topics([new], operation_timeout=2, request_timeout=PATIENCE_S)["refused"].result(PATIENCE_S)
    assert refused.value.args[0].name() == "REQUEST_TIMED_OUT", refused.value
    while time.monotonic() < began + 3 * SESSION_MS / 1000:
        producer.await_acknowledged(200)
        reader.await_records(200)
    server.start()
    create_topic(nodes.bootstrap, "accepted", 1)
    producer.stop()
    producer.join()
    history = History(frozenset(), events)
    history.final = {partition: read_log(nodes.bootstrap, partition, committed=False) for partition in ledger}
    wait_for(
        lambda: all(reader.positions[partition] >= len(history.final[partition]) for partition in ledger),
        "the reader reaches the end",
        lambda: f"{reader.positions}, {reader.failures}; {nodes.read_logs()}",
    )
    reader.stop()
    reader.join()
    assert (producer.failures, reader.failures, check(history)) == ([], [], [])


def test_a_leader_that_only_zookeeper_has_lost_keeps_no_producer_waiting(nodes: OttlaNodes) -> None:
    # Clients reach the broker, and it reaches the others. The producer waits for an answer as long as this test does,
    # and never refreshes its metadata by itself.
    topic = "deposed"
    create_topic(nodes.bootstrap, topic, 1)
    nodes.wait_in_sync(topic)
    producer = Producer(
        QUIET
        | {
            "bootstrap.servers": nodes.bootstrap,
            "enable.idempotence": True,
            "message.timeout.ms": PATIENCE_MS,
            "request.timeout.ms": PATIENCE_MS,
            "socket.timeout.ms": PATIENCE_MS,
            "topic.metadata.refresh.interval.ms": -1,
        }
    )
    producer.produce(topic, b"before", partition=0)
    assert producer.flush(PATIENCE_S) == 0
    leader, _ = nodes.find_partitions(topic)[0]
    broker = nodes.brokers[leader]
    witness = next(each for each in nodes.brokers.values() if each is not broker)
    nodes.cut(broker.name, "zookeeper")
    nodes.wait_for(lambda: leader != ask_leader(witness, topic), "another broker leads")
    delivered: list[KafkaError | None] = []
    producer.produce(topic, b"after", partition=0, on_delivery=lambda error, _: delivered.append(error))
    assert producer.flush(PATIENCE_S) == 0
    assert delivered == [None]
    nodes.heal(broker.name, "zookeeper")
    nodes.wait_in_sync(topic)


def ask_leader(broker: OttlaNode, topic: str) -> int:
    """Who leads the topic's only partition, as this broker knows it."""
    with RawClient(HOST, broker.port) as client:
        answer = client.request(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), 12)
        return int(answer.topics[0].partitions[0].leader_id)


def test_no_error_reaches_applications_in_a_rolling_restart(nodes: OttlaNodes, seed: int) -> None:
    # Producers, transactions, consumers and groups with default retries. The leaders are the preferred ones again.
    load = Load(nodes.bootstrap, "rolling", Random(seed))
    topics = [load.ledger[0].topic, load.transfers[0].topic]
    for transactor in load.transactors:
        transactor.step_s = PATIENCE_S  # a slow machine is no error
    load.start()
    load.await_progress()
    for broker in nodes.brokers.values():
        assert broker.terminate() == 0
        load.await_progress()
        broker.start()
        for topic in topics:
            nodes.wait_in_sync(topic)
    nodes.wait_for(lambda: all(has_preferred_leaders(nodes, topic) for topic in topics), "preferred leaders")
    load.finish()
    assert [worker.failures for worker in load.workers if worker.failures] == []
    assert [transactor.restarts for transactor in load.transactors] == [[], []]
    assert check(load.history) == []


def test_an_emptied_data_directory_never_leads_while_a_complete_replica_exists(nodes: OttlaNodes) -> None:
    # Each broker in turn loses its disk while it leads some of the partitions. It gets everything back from the others.
    events: list[Event] = []
    topic = "emptied"
    ledger = create_topic(nodes.bootstrap, topic, PARTITIONS)
    nodes.wait_in_sync(topic)
    producer = LedgerProducer("emptied-producer", nodes.bootstrap, ledger, events)
    producer.start()
    for broker in nodes.brokers.values():
        producer.await_acknowledged(300)
        broker.kill()
        broker.empty()
        broker.start()
        nodes.wait_in_sync(topic)
    producer.stop()
    producer.join()
    history = History(frozenset(), events)
    history.final = {partition: read_log(nodes.bootstrap, partition, committed=False) for partition in ledger}
    assert (producer.failures, check(history)) == ([], [])


def test_the_last_replica_that_comes_back_empty_is_offline(nodes: OttlaNodes) -> None:
    # The partition waits for the replica that left last with everything in it.
    events: list[Event] = []
    topic = "last"
    ledger = create_topic(nodes.bootstrap, topic, 1)
    nodes.wait_in_sync(topic)
    producer = LedgerProducer("last-producer", nodes.bootstrap, ledger, events)
    producer.start()
    producer.await_acknowledged(300)
    producer.stop()
    producer.join()
    first, second, last = nodes.brokers.values()
    for broker in (first, second):
        assert broker.terminate() == 0
    nodes.wait_for(lambda: nodes.find_partitions(topic)[0] == (last.id, (last.id,)), "the last replica leads alone")
    last.kill()
    last.empty()
    last.start()
    first.start()
    nodes.wait_for(lambda: nodes.find_alive() == [first.id, last.id], "two brokers are back")
    for _ in range(20):
        assert nodes.find_partitions(topic)[0][0] == -1
        time.sleep(0.05)
    second.start()
    nodes.wait_in_sync(topic)
    history = History(frozenset(), events)
    history.final = {partition: read_log(nodes.bootstrap, partition, committed=False) for partition in ledger}
    assert (producer.failures, check(history)) == ([], [])
