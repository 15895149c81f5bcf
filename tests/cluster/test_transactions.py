"""Transactions over partitions of three brokers: atomic whoever is killed, and a fenced producer stays fenced."""

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as ClientPartition

import ottla.testing
from ottla.cluster.topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from ottla.testing import LocalCluster
from ottla.testing.local_cluster import ClusterBroker, wait_until
from ottla.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from ottla.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from tests.cluster.coordination import (
    choose_name,
    find_coordinator,
    find_leader,
    open_client,
    read_committed,
    wait_until_in_sync,
)
from tests.patience import PATIENCE_MS, PATIENCE_S
from tests.raw_client import RawClient

PARTITIONS = 3
CLIENT = {
    "log_level": 0,
    "reconnect.backoff.max.ms": 100,
    "metadata.recovery.strategy": "none",  # after it, librdkafka 2.16 waits for ever for a broker that it has given up
}
STEP_S = PATIENCE_S
"""The time-out of one step of a transaction, which only keeps a hang from lasting for ever."""


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with ottla.testing.cluster(brokers=3, group_initial_rebalance_delay_ms=0) as local:
        local.create_topic("orders", partitions=PARTITIONS)
        yield local


def make_producer(cluster: LocalCluster, transactional_id: str) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": PATIENCE_MS,
            **CLIENT,
        }
    )
    producer.init_transactions(STEP_S)
    return producer


def write_everywhere(producer: Producer, value: str, topic: str = "orders") -> None:
    """One record in every partition, in a transaction that stays open."""
    producer.begin_transaction()
    for partition in range(PARTITIONS):
        producer.produce(topic, value.encode(), partition=partition)
    assert producer.flush(STEP_S) == 0


def check_all_leaders_differ(cluster: LocalCluster) -> None:
    leaders = {find_leader(cluster, "orders", partition).id for partition in range(PARTITIONS)}
    assert leaders == {1, 2, 3}, "the transactions of these tests touch every broker"


def test_a_transaction_spans_partitions_of_all_brokers(cluster: LocalCluster) -> None:
    check_all_leaders_differ(cluster)
    for coordinator in cluster.brokers:
        producer = make_producer(cluster, choose_name(cluster, "transaction", coordinator))
        for number, ends in enumerate((producer.commit_transaction, producer.abort_transaction) * 2):
            write_everywhere(producer, f"{coordinator.id}-{number}")
            ends(STEP_S)
    expected = [f"{broker.id}-{number}".encode() for broker in cluster.brokers for number in (0, 2)]
    with open_client(cluster) as client:
        assert read_committed(client, "orders", PARTITIONS) == [expected] * PARTITIONS


def test_every_replica_describes_the_producers(cluster: LocalCluster) -> None:
    # As kafka-transactions asks for them with --broker-id. Followers learn of a transaction with its records.
    producer = make_producer(cluster, "described")
    write_everywhere(producer, "open")
    topic = TopicRequest(name="orders", partition_indexes=list(range(PARTITIONS)))
    for broker in cluster.brokers:
        with RawClient(broker.host, broker.port, timeout_s=PATIENCE_S) as client:
            (described,) = client.request(DescribeProducersRequest(topics=[topic]), 0).topics
        for partition in described.partitions:
            assert partition.error_code == 0, partition.error_message
            assert [each.current_txn_start_offset for each in partition.active_producers] == [0]
    producer.abort_transaction(STEP_S)


@pytest.mark.parametrize("commits", [True, False], ids=["commit", "abort"])
@pytest.mark.parametrize("victim", ["coordinator", "leader"])
def test_a_kill_between_decision_and_markers_leaves_nothing_half_done(
    cluster: LocalCluster, victim: str, commits: bool
) -> None:
    """The decision is stored and one leader refuses its marker: whoever dies then, the others finish it."""
    wait_until_in_sync(cluster, "orders")
    coordinator = cluster.brokers[0]
    name = choose_name(cluster, "transaction", coordinator)
    wait_until_in_sync(cluster, TRANSACTION_STATE)
    refusing = next(
        leader
        for leader in (find_leader(cluster, "orders", partition) for partition in range(PARTITIONS))
        if leader is not coordinator
    )
    producer = make_producer(cluster, name)
    write_everywhere(producer, "all or nothing")
    refusing.fail("WriteTxnMarkers", "NOT_LEADER_OR_FOLLOWER", times=None)
    # The answer comes when the decision is stored; the markers follow.
    if commits:
        producer.commit_transaction(STEP_S)
    else:
        producer.abort_transaction(STEP_S)
    killed = coordinator if victim == "coordinator" else refusing
    killed.kill()
    for broker in cluster.brokers:
        if broker.running:
            broker.clear_faults()
    with open_client(cluster) as client:
        expected = [b"all or nothing"] if commits else []
        assert read_committed(client, "orders", PARTITIONS) == [expected] * PARTITIONS
        # The same producer goes on with the next transaction.
        write_everywhere(producer, "next")
        producer.commit_transaction(STEP_S)
        killed.restart()
        assert read_committed(client, "orders", PARTITIONS) == [[*expected, b"next"]] * PARTITIONS


def test_a_producer_that_was_fenced_stays_fenced_after_a_failover(cluster: LocalCluster) -> None:
    """The new coordinator knows which of two producers owns the transactional id, and so does every partition."""
    name = choose_name(cluster, "transaction", cluster.brokers[0])
    wait_until_in_sync(cluster, "orders", TRANSACTION_STATE)
    zombie = make_producer(cluster, name)
    write_everywhere(zombie, "zombie")
    owner = make_producer(cluster, name)  # aborts what the zombie left open
    write_everywhere(owner, "owner")
    coordinator = find_coordinator(cluster, "transaction", name)
    coordinator.kill()
    with pytest.raises(KafkaException) as fenced:
        zombie.commit_transaction(STEP_S)
    assert fenced.value.args[0].code() in (KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH)
    owner.commit_transaction(STEP_S)
    coordinator.restart()
    with open_client(cluster) as client:
        assert read_committed(client, "orders", PARTITIONS) == [[b"owner"]] * PARTITIONS


class Copier:
    """Copies `orders` to `copies` in transactions, and starts over with a new producer after an error that needs it."""

    def __init__(self, cluster: LocalCluster, name: str) -> None:
        self._cluster = cluster
        self._name = name
        self.copied = 0
        self._consumer: Consumer
        self._producer: Producer
        self._open()

    def replace_producer(self) -> None:
        """Go on with a new producer, between two transactions."""
        self._producer = make_producer(self._cluster, self._name)

    def _open(self) -> None:
        self.replace_producer()
        self._consumer = Consumer(
            {
                "bootstrap.servers": self._cluster.bootstrap,
                "group.id": self._name,
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 20,
                **CLIENT,
            }
        )
        self._rewind()

    def _rewind(self) -> None:
        """Go back to what is committed."""
        partitions = [ClientPartition("orders", partition) for partition in range(PARTITIONS)]
        while True:
            try:
                committed = self._consumer.committed(partitions, STEP_S)
                break
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise
        self.copied = sum(max(each.offset, 0) for each in committed)
        for each in committed:
            each.offset = max(each.offset, 0)
        self._consumer.assign(committed)

    def step(self) -> None:
        """Copy a few records in one transaction."""
        messages = [message for message in self._consumer.consume(5, 0.05) if message.error() is None]
        if not messages:
            return
        try:
            self._producer.begin_transaction()
            for message in messages:
                self._producer.produce("copies", message.value(), partition=message.partition() or 0)
            offsets = self._consumer.position(self._consumer.assignment())
            self._producer.send_offsets_to_transaction(offsets, self._consumer.consumer_group_metadata(), STEP_S)
            self._producer.commit_transaction(STEP_S)
            self.copied += len(messages)
        except KafkaException as error:
            self._recover(error.args[0])

    def _recover(self, error: KafkaError) -> None:
        if error.txn_requires_abort():
            try:
                self._producer.abort_transaction(STEP_S)
                self._rewind()
                return
            except KafkaException:
                pass
        self.close()
        self._open()

    def close(self) -> None:
        self._consumer.close()


def kill_and_restart(cluster: LocalCluster, victim: ClusterBroker) -> None:
    """Restart a broker after others have taken over what it led."""
    victim.kill()
    for broker in cluster.brokers:
        if broker is not victim:
            wait_until(lambda broker=broker: not broker.inspect(lambda each: each.node.image.serves(victim.id)))  # type: ignore[misc]
    victim.restart()


def test_a_copy_is_exact_while_brokers_are_killed(cluster: LocalCluster) -> None:
    """Read, process, write: every record of the source is in the copy once, in order, whoever was killed.

    A producer does not outlive its group's coordinator here, because of librdkafka's issue 5511 (2.16 has it): a broker
    that is missing from one Metadata answer is given up, but stays in the producer's cache of group coordinators. After
    AddOffsetsToTxn was answered, `send_offsets_to_transaction` waits for a connection to that broker for ever. It sends
    neither TxnOffsetCommit nor FindCoordinator, so no answer of ours could help it.
    """
    cluster.create_topic("copies", partitions=PARTITIONS)
    records = 60
    source = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0, "enable.idempotence": True})
    for number in range(records * PARTITIONS):
        source.produce("orders", str(number).encode(), partition=number % PARTITIONS)
    assert source.flush() == 0
    name = choose_name(cluster, "transaction", cluster.brokers[0])
    copier = Copier(cluster, name)
    try:
        kills = [*cluster.brokers, *cluster.brokers]
        while copier.copied < records * PARTITIONS:
            copier.step()
            if kills and copier.copied >= records * PARTITIONS * (6 - len(kills)) / 8:
                wait_until_in_sync(cluster, "orders", "copies", CONSUMER_OFFSETS, TRANSACTION_STATE)
                victim = kills.pop()
                was_group_coordinator = find_coordinator(cluster, "group", name) is victim
                kill_and_restart(cluster, victim)
                if was_group_coordinator:
                    copier.replace_producer()
    finally:
        copier.close()
    assert not kills
    expected = [
        [str(number).encode() for number in range(partition, records * PARTITIONS, PARTITIONS)]
        for partition in range(PARTITIONS)
    ]
    with open_client(cluster) as client:
        assert read_committed(client, "copies", PARTITIONS) == expected


def lead_orders(cluster: LocalCluster, leader: ClusterBroker) -> None:
    """Have a broker lead the partition 0 of `orders`, as its preferred leader."""
    replicas = [leader.id, *(broker.id for broker in cluster.brokers if broker is not leader)]
    moved = ReassignableTopic(name="orders", partitions=[ReassignablePartition(partition_index=0, replicas=replicas)])
    with RawClient(leader.host, leader.port, timeout_s=PATIENCE_S) as client:
        client.request(AlterPartitionReassignmentsRequest(timeout_ms=PATIENCE_MS, topics=[moved]), 0)
        elected = TopicPartitions(topic="orders", partitions=[0])
        request = ElectLeadersRequest(election_type=0, topic_partitions=[elected], timeout_ms=PATIENCE_MS)

        def is_elected() -> bool:
            client.request(request, 2)
            return find_leader(cluster, "orders", 0) is leader

        wait_until(is_elected)


def test_a_marker_that_arrives_late_ends_no_later_transaction() -> None:
    """The connection to a leader holds a marker up. The coordinator has it written by the next leader, and the producer
    goes on. When the first leader leads again, with the next transaction open, the connection delivers."""
    settings: dict[str, Any] = {
        "min_insync_replicas": 2,
        "transaction_state_log_min_isr": 2,
        "replica_lag_time_max_ms": 1000,
    }
    with ottla.testing.cluster(brokers=3, **settings) as cluster:
        cluster.create_topic("orders")
        coordinator, leader, other = cluster.brokers
        name = choose_name(cluster, "transaction", coordinator)
        wait_until_in_sync(cluster, "orders", TRANSACTION_STATE)
        lead_orders(cluster, leader)
        producer = make_producer(cluster, name)

        def write(value: bytes) -> None:
            producer.begin_transaction()
            producer.produce("orders", value, partition=0)
            assert producer.flush(STEP_S) == 0

        write(b"first")
        producer.commit_transaction(STEP_S)  # the coordinator has a connection for markers to the leader now
        write(b"aborted")
        cluster.cut(coordinator, leader)
        producer.abort_transaction(STEP_S)
        lead_orders(cluster, other)
        write(b"second")
        lead_orders(cluster, leader)
        producer.commit_transaction(STEP_S)
        cluster.heal()
        with open_client(cluster) as client:
            assert read_committed(client, "orders", 1) == [[b"first", b"second"]]
