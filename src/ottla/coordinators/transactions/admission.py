"""Before the first records of a transaction go into a partition: does the transaction coordinator know of it?

What the coordinator does not know it would never end, and consumers would wait for ever behind it. Producers of version
2 (KIP-890) leave it to the broker to add their partitions; older ones have added them, and that is verified, so that
nothing that comes late begins a transaction that nobody ends. A partition in which the transaction is open already
needs no question.
"""

import asyncio
from collections.abc import Mapping, Sequence
from enum import Enum

from ottla.coordinators.machine import Producer
from ottla.coordinators.transactions.coordinator import TransactionCoordinator
from ottla.coordinators.transactions.transaction import EPOCH_BUMP, TopicPartition
from ottla.errors import ErrorCode, KafkaError
from ottla.replication.partition import Partition
from ottla.replication.transactions import is_open, last_marker

PATIENCE_S = (0.002, 0.004, 0.008, 0.016, 0.032, 0.032)
"""How long to wait, again and again, for the markers of the producer's last transaction. Together about what Kafka
allows itself; a client that is sent away comes back no sooner."""


class Speech(Enum):
    """What the producer expects of the broker, by the version of its request."""

    OLD = 1
    """It has added its partitions, and knows no TRANSACTION_ABORTABLE."""
    VERIFY = 2
    """It has added its partitions."""
    ADD = 3
    """The broker adds them."""


_RETRIABLE = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)


async def admit(
    transactions: TransactionCoordinator,
    transactional_id: str,
    producer: Producer,
    partitions: Sequence[Partition],
    speech: Speech,
) -> Mapping[Partition, KafkaError]:
    """Which of the partitions must not be appended to, and why. To be called right before the append."""
    unknown = [each for each in partitions if not is_open(each, producer.id, producer.epoch)]
    if not unknown:
        return {}
    ask = add if speech is Speech.ADD else verify
    try:
        refused = await ask(transactions, transactional_id, producer, unknown)
    except KafkaError as error:
        told = in_words_of(error, speech)
        return dict.fromkeys(unknown, told)
    if not refused:
        return {}
    missing = KafkaError(ErrorCode.TRANSACTION_ABORTABLE, "the partition is not part of the transaction")
    return dict.fromkeys(refused, in_words_of(missing, speech))


async def add(
    transactions: TransactionCoordinator, transactional_id: str, producer: Producer, partitions: list[Partition]
) -> list[Partition]:
    """Nothing that ends the transaction meanwhile can be missed: its marker raises the epoch in the partition."""
    places = [place(each) for each in partitions]
    for delay_s in PATIENCE_S:
        try:
            await transactions.add_partitions(transactional_id, producer, places, version=EPOCH_BUMP)
        except KafkaError as error:
            if error.code is not ErrorCode.CONCURRENT_TRANSACTIONS:
                raise
            await asyncio.sleep(delay_s)
        else:
            return []
    await transactions.add_partitions(transactional_id, producer, places, version=EPOCH_BUMP)
    return []


async def verify(
    transactions: TransactionCoordinator, transactional_id: str, producer: Producer, partitions: list[Partition]
) -> list[Partition]:
    """Those that are not in the transaction, as of now: if it ends while we ask, we ask again."""
    places = [place(each) for each in partitions]
    while True:
        before = [last_marker(each, producer.id) for each in partitions]
        missing = await transactions.find_missing_partitions(transactional_id, producer, places)
        if before == [last_marker(each, producer.id) for each in partitions]:
            return [each for each in partitions if place(each) in missing]


def place(partition: Partition) -> TopicPartition:
    return partition.topic, partition.index


def in_words_of(error: KafkaError, speech: Speech) -> KafkaError:
    """The code that makes a client of this age do the right thing."""
    code = error.code
    if code is ErrorCode.TRANSACTION_ABORTABLE and speech is Speech.OLD:
        code = ErrorCode.INVALID_TXN_STATE
    elif code is ErrorCode.PRODUCER_FENCED:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    elif code in _RETRIABLE or (code is ErrorCode.CONCURRENT_TRANSACTIONS and speech is not Speech.ADD):
        code = ErrorCode.NOT_ENOUGH_REPLICAS  # every client sends its batch again
    return KafkaError(code, error.message)
