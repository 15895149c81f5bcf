"""What transactions ask of a partition: whether one is open in it, and the markers that end one."""

import asyncio
from typing import NamedTuple

from ottla.records import batch
from ottla.replication.partition import Partition

RAISED_EPOCH_FROM = 2
"""The version of transactions from which a marker carries the epoch after its transaction's."""

EVERY_REPLICA = -1


class TransactionMarker(NamedTuple):
    producer_id: int
    epoch: int
    committed: bool
    coordinator_epoch: int
    version: int = 0
    """Of transactions, as the producer speaks them; an admin client that ends a hanging one does not say."""


def is_open(partition: Partition, producer_id: int, epoch: int) -> bool:
    """Whether the producer has a transaction open here, in this epoch: then its coordinator knows of it."""
    producer = partition.log.producers.producers.get(producer_id)
    return producer is not None and producer.transaction_start >= 0 and producer.epoch == epoch


def last_marker(partition: Partition, producer_id: int) -> int:
    """Where the producer's last transaction ended. It moves when one ends while somebody asks the coordinator."""
    producer = partition.log.producers.producers.get(producer_id)
    return -1 if producer is None else producer.marker_offset


def append_marker(partition: Partition, marker: TransactionMarker, now_ms: int) -> asyncio.Future[None] | None:
    """End the producer's transaction here. What to wait for until that is replicated; None if it is.

    KafkaError if this broker does not lead, if the producer or the coordinator is at a newer epoch, if the disk fails.
    """
    partition.require_leader()
    if marker.version >= RAISED_EPOCH_FROM:
        partition.log.producers.check_next_epoch(marker.producer_id, marker.epoch)
    data = batch.encode_control(marker.producer_id, marker.epoch, marker.committed, marker.coordinator_epoch, now_ms)
    appended = partition.append(memoryview(data), batch.read_header(data), now_ms, EVERY_REPLICA)
    return partition.acknowledged(appended, EVERY_REPLICA)
