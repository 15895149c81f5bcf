"""Transactions in a partition: whether one is open, and the markers that end one."""

import asyncio
from typing import NamedTuple

from ottla.records import batch
from ottla.replication.partition import Partition

RAISED_EPOCH_FROM = 2
"""The transaction version from which a marker carries the epoch after that of its transaction (KIP-890)."""

ACKS_ALL = -1


class TransactionMarker(NamedTuple):
    producer_id: int
    epoch: int
    committed: bool
    coordinator_epoch: int
    version: int = 0
    """The producer's transaction version. An admin client that ends a hanging transaction does not send one."""


def is_open(partition: Partition, producer_id: int, epoch: int) -> bool:
    """Whether the producer has an open transaction here in this epoch. Its coordinator then knows of this partition."""
    producer = partition.log.producers.producers.get(producer_id)
    return producer is not None and producer.transaction_start >= 0 and producer.epoch == epoch


def last_marker(partition: Partition, producer_id: int) -> int:
    """Offset of the marker that ended the producer's last transaction, -1 if there was none.

    A caller that asks the coordinator compares it before and after, to see that a transaction ended meanwhile.
    """
    producer = partition.log.producers.producers.get(producer_id)
    return -1 if producer is None else producer.marker_offset


def append_marker(
    partition: Partition, marker: TransactionMarker, now_ms: int, leader_epoch: int = -1
) -> asyncio.Future[None] | None:
    """End the producer's transaction in this partition.

    Returns a future that is done when the marker is replicated; None if it is already. KafkaError if this broker does
    not lead, or not in `leader_epoch`, the producer or the coordinator is at a newer epoch, or the disk fails.
    """
    partition.require_leader(leader_epoch)
    if marker.version >= RAISED_EPOCH_FROM:
        partition.log.producers.check_next_epoch(marker.producer_id, marker.epoch)
    data = batch.encode_control(marker.producer_id, marker.epoch, marker.committed, marker.coordinator_epoch, now_ms)
    appended = partition.append(memoryview(data), batch.read_header(data), now_ms, ACKS_ALL)
    return partition.wait_for_acks(appended, ACKS_ALL)
