"""How the brokers of a cluster reach each other about transactions, and how one broker alone reaches itself.

The coordinator of a transaction asks the leaders of its partitions to write markers (`MarkerPeers`). The leader of a
partition asks the coordinator of a transaction before it takes the first records (`CoordinatorPeers`). The caller names
the broker, which it finds in the metadata.

The local implementations know only the broker that they run on. For any other broker, or none, they report an error
that the caller retries: the metadata may be about to change.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Protocol

from ottla.cluster.topics import CONSUMER_OFFSETS
from ottla.coordinators.groups.coordinator import GroupCoordinator
from ottla.coordinators.machine import ProducerIdentity
from ottla.coordinators.transactions.coordinator import TransactionCoordinator
from ottla.coordinators.transactions.transaction import EPOCH_BUMP
from ottla.errors import ErrorCode, KafkaError
from ottla.replication.replicas import Replicas
from ottla.replication.transactions import TransactionMarker, append_marker
from ottla.system.clock import Clock
from ottla.topic_partition import TopicPartition

MarkerResult = asyncio.Future[None] | KafkaError | None
"""What became of a marker: it is written (None), it was refused, or it is written once the future is done."""


class MarkerPeers(Protocol):
    def write_markers(
        self, broker_id: int, marker: TransactionMarker, partitions: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, MarkerResult]:
        """Have a broker write the marker into partitions that it leads. The caller need not wait for the futures."""


class CoordinatorPeers(Protocol):
    async def add_partitions(
        self, broker_id: int, transactional_id: str, producer: ProducerIdentity, partitions: Sequence[TopicPartition]
    ) -> None:
        """Have the coordinator at a broker make partitions part of the producer's transaction."""

    async def find_missing_partitions(
        self, broker_id: int, transactional_id: str, producer: ProducerIdentity, partitions: Sequence[TopicPartition]
    ) -> frozenset[TopicPartition]:
        """Ask the coordinator at a broker which of the partitions are not part of the producer's transaction."""


class LocalMarkers:
    """Writes markers into partitions that this broker leads."""

    def __init__(self, broker_id: int, replicas: Replicas, groups: GroupCoordinator, clock: Clock) -> None:
        self._broker_id = broker_id
        self._replicas = replicas
        self._groups = groups
        self._clock = clock
        self._newest: dict[int, tuple[int, int]] = {}
        """For each coordinator's broker: its broker epoch, and the number of its newest request."""

    def admit_request(self, sender: int, sender_epoch: int, number: int) -> bool:
        """Whether a request of another broker is newer than all that came from it before."""
        if self._newest.get(sender, (-1, -1)) >= (sender_epoch, number):
            return False
        self._newest[sender] = sender_epoch, number
        return True

    def write_markers(
        self, broker_id: int, marker: TransactionMarker, partitions: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, MarkerResult]:
        results: dict[TopicPartition, MarkerResult] = {}
        for partition in partitions:
            try:
                if broker_id != self._broker_id:
                    raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"broker {broker_id} leads the partition")
                replicated = results[partition] = self.append(partition, marker)
                if replicated is not None:
                    replicated.add_done_callback(retrieve_exception)
            except KafkaError as error:
                results[partition] = error
        return results

    def append(
        self, partition: TopicPartition, marker: TransactionMarker, leader_epoch: int = -1
    ) -> asyncio.Future[None] | None:
        """Append the marker to one partition of this broker. Returns, and raises, what `append_marker` does.

        In a partition of committed offsets the marker also decides about the offsets of the transaction.
        """
        if partition.topic == CONSUMER_OFFSETS:
            return self._groups.end_transaction(partition.partition, marker, leader_epoch)
        return append_marker(self._replicas.get(*partition), marker, self._clock.now_ms(), leader_epoch)


def retrieve_exception(replicated: asyncio.Future[None]) -> None:
    """Keep asyncio from logging an exception that nobody awaited: the coordinator that would have may be gone."""
    if not replicated.cancelled():
        replicated.exception()


class LocalCoordinator:
    """Asks the transaction coordinator of this broker."""

    def __init__(self, broker_id: int, transactions: TransactionCoordinator) -> None:
        self._broker_id = broker_id
        self._transactions = transactions

    async def add_partitions(
        self, broker_id: int, transactional_id: str, producer: ProducerIdentity, partitions: Sequence[TopicPartition]
    ) -> None:
        self._check(broker_id)
        await self._transactions.add_partitions(transactional_id, producer, partitions, version=EPOCH_BUMP)

    async def find_missing_partitions(
        self, broker_id: int, transactional_id: str, producer: ProducerIdentity, partitions: Sequence[TopicPartition]
    ) -> frozenset[TopicPartition]:
        self._check(broker_id)
        return await self._transactions.find_missing_partitions(transactional_id, producer, partitions)

    def _check(self, broker_id: int) -> None:
        if broker_id != self._broker_id:
            raise KafkaError(ErrorCode.NOT_COORDINATOR, f"broker {broker_id} coordinates the transaction")
