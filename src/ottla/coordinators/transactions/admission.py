"""Admission: before the first records of a transaction enter a partition, its coordinator has to know of the partition.

A coordinator writes no marker into a partition that it does not know of, so the transaction would stay open there, and
consumers would wait for it for ever. For producers of version 2 of the protocol (KIP-890) the broker adds the
partition; older ones have added it themselves, and the broker verifies that, so that a batch which comes late cannot
begin a transaction that nobody ends. A partition in which the transaction is open already needs no question.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import Enum

from ottla.coordinators.machine import ProducerIdentity
from ottla.coordinators.transactions.coordinator import TransactionCoordinator
from ottla.coordinators.transactions.peers import CoordinatorPeers
from ottla.errors import ErrorCode, KafkaError
from ottla.replication.partition import Partition
from ottla.replication.transactions import is_open, last_marker
from ottla.topic_partition import TopicPartition

RETRY_DELAYS_S = (0.002, 0.004, 0.008, 0.016, 0.032, 0.032)
"""Pauses between attempts while the markers of the producer's last transaction are being written. Together they are
about what Kafka allows itself; a client that is refused comes back no sooner."""


class TransactionVerification(Enum):
    """What a producer expects of the broker, by the version of its request."""

    VERIFY_WITHOUT_ABORTABLE = 1
    """The producer has added its partitions, and does not know TRANSACTION_ABORTABLE."""
    VERIFY = 2
    """The producer has added its partitions."""
    ADD_PARTITION = 3
    """The broker adds the partitions to the transaction."""

    @classmethod
    def choose(cls, version: int, *, abortable_from: int, added_from: int) -> "TransactionVerification":
        """Choose by the version of a request. `abortable_from`: the first version whose clients know
        TRANSACTION_ABORTABLE; `added_from`: the first one in which the broker adds partitions."""
        if version >= added_from:
            return cls.ADD_PARTITION
        return cls.VERIFY if version >= abortable_from else cls.VERIFY_WITHOUT_ABORTABLE


_RETRIABLE = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.NETWORK_EXCEPTION,
)


async def wait_for_last_transaction(attempt: Callable[[], Awaitable[None]]) -> None:
    """Make an attempt again for a while if the markers of the producer's last transaction are still being written.

    CONCURRENT_TRANSACTIONS after the last attempt. A client that is refused pauses for longer than the markers take.
    """
    for delay_s in RETRY_DELAYS_S:
        try:
            return await attempt()
        except KafkaError as error:
            if error.code is not ErrorCode.CONCURRENT_TRANSACTIONS:
                raise
        await asyncio.sleep(delay_s)
    return await attempt()


class TransactionAdmission:
    def __init__(self, transactions: TransactionCoordinator, peers: CoordinatorPeers) -> None:
        self._transactions = transactions
        self._peers = peers

    async def admit(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        partitions: Sequence[Partition],
        verification: TransactionVerification,
    ) -> Mapping[Partition, KafkaError]:
        """Find out which partitions must not be appended to, and why. To be called right before the append.

        If the transaction ends in one of them while the coordinator is asked about others, all are looked at again.
        """
        while True:
            unknown = [each for each in partitions if not is_open(each, producer.id, producer.epoch)]
            if not unknown:
                return {}
            before = [last_marker(each, producer.id) for each in partitions]
            refused = await self._ask(transactional_id, producer, unknown, verification)
            if before == [last_marker(each, producer.id) for each in partitions]:
                return refused

    async def _ask(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        partitions: list[Partition],
        verification: TransactionVerification,
    ) -> Mapping[Partition, KafkaError]:
        """Ask the coordinator about partitions in which no transaction is open. Returns those that it refuses."""
        try:
            if verification is TransactionVerification.ADD_PARTITION:
                await self._add(transactional_id, producer, partitions)
                return {}
            missing = await self._find_missing(transactional_id, producer, partitions)
        except KafkaError as error:
            return dict.fromkeys(partitions, translate_error(error, verification))
        refusal = KafkaError(ErrorCode.TRANSACTION_ABORTABLE, "the partition is not part of the transaction")
        return dict.fromkeys(missing, translate_error(refusal, verification))

    async def _add(self, transactional_id: str, producer: ProducerIdentity, partitions: list[Partition]) -> None:
        """Add partitions, after a few attempts if need be. A transaction that ends meanwhile does no harm: its marker
        raises the epoch in the partition, and the append is refused."""
        names = [_to_topic_partition(each) for each in partitions]

        async def add() -> None:
            broker = await self._transactions.find_broker(transactional_id)
            await self._peers.add_partitions(broker.id, transactional_id, producer, names)

        await wait_for_last_transaction(add)

    async def _find_missing(
        self, transactional_id: str, producer: ProducerIdentity, partitions: list[Partition]
    ) -> list[Partition]:
        """Ask the coordinator which partitions are not in the transaction."""
        names = [_to_topic_partition(each) for each in partitions]
        broker = await self._transactions.find_broker(transactional_id)
        missing = await self._peers.find_missing_partitions(broker.id, transactional_id, producer, names)
        return [each for each, name in zip(partitions, names, strict=True) if name in missing]


def _to_topic_partition(partition: Partition) -> TopicPartition:
    return TopicPartition(partition.topic, partition.index)


def translate_error(error: KafkaError, verification: TransactionVerification) -> KafkaError:
    """The code that makes a client of this version do the right thing."""
    code = error.code
    adds = verification is TransactionVerification.ADD_PARTITION
    if code is ErrorCode.TRANSACTION_ABORTABLE and verification is TransactionVerification.VERIFY_WITHOUT_ABORTABLE:
        code = ErrorCode.INVALID_TXN_STATE
    elif code is ErrorCode.PRODUCER_FENCED:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    elif code in _RETRIABLE or (code is ErrorCode.CONCURRENT_TRANSACTIONS and not adds):
        code = ErrorCode.NOT_ENOUGH_REPLICAS  # every client sends its batch again
    return KafkaError(code, error.message)
