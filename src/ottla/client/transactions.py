"""The requests of a transactional producer, one function each. `exactly_once/` puts them in order.

Kafka has two transaction protocols. With v1 a producer adds each partition and group to the transaction before it
writes to them. With v2 the brokers do that, and each commit or abort gives the producer a new epoch. The finalized
feature transaction.version decides, and the versions of the requests tell the broker which one is meant, so the two are
never mixed:

    v1   Produce <= 11, AddPartitionsToTxn <= 3, AddOffsetsToTxn <= 3, TxnOffsetCommit <= 4, EndTxn <= 4
    v2   Produce 12, TxnOffsetCommit 5, EndTxn 5

All requests may be repeated after a lost answer.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ottla.client.client import Client
from ottla.client.groups import CommittedOffset, group_by_topic, raise_for_errors
from ottla.topic_partition import TopicPartition
from ottla.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from ottla.wire.messages.api_versions import ApiVersionsRequest
from ottla.wire.messages.end_txn import EndTxnRequest
from ottla.wire.messages.init_producer_id import InitProducerIdRequest
from ottla.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

TIMEOUT_MS = 60_000
"""transaction.timeout.ms of the Java client."""

FENCE_MS = 1_000
"""The timeout for a transactional id that begins no transaction; brokers refuse long ones."""

NO_TRANSACTION, ANNOUNCED, IMPLICIT = range(3)

_INIT_UNTIL = 5  # version 6 is for two-phase commit with another system
_PRODUCE_UNTIL = (12, 11, 12)  # version 13 has topic ids
_ANNOUNCE_UNTIL = 3  # AddPartitionsToTxn and AddOffsetsToTxn
_OFFSETS_UNTIL = (None, 4, 5)
_END_UNTIL = (None, 4, 5)


class ProducerIdentity(NamedTuple):
    """The producer id and epoch of record batches, and the transactional id. May be sent to other processes."""

    producer_id: int
    epoch: int
    transactional_id: str | None = None
    protocol: int = NO_TRANSACTION
    """The transaction protocol: ANNOUNCED is transaction.version 1, IMPLICIT is 2."""

    @property
    def is_transactional(self) -> bool:
        return self.transactional_id is not None

    @property
    def produce_version_max(self) -> int:
        return _PRODUCE_UNTIL[self.protocol]


def find_transaction_protocol(client: Client) -> int:
    """IMPLICIT (v2) if the cluster has finalized it, else ANNOUNCED (v1)."""
    answer = client.ask_any(ApiVersionsRequest(client_software_name="ottla", client_software_version="1"))
    levels = {feature.name: feature.max_version_level for feature in answer.finalized_features}
    return IMPLICIT if levels.get("transaction.version", 0) >= 2 else ANNOUNCED


def init_producer(
    client: Client, transactional_id: str | None = None, timeout_ms: int = TIMEOUT_MS
) -> ProducerIdentity:
    """A new identity. With a transactional id, earlier producers are fenced and their open transaction is aborted."""
    if transactional_id is None:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=timeout_ms)
        return client.retry(lambda: _init_idempotent_producer(client, request))
    protocol = find_transaction_protocol(client)
    producer_id, epoch = raise_epoch(client, transactional_id, timeout_ms)
    return ProducerIdentity(producer_id, epoch, transactional_id, protocol)


def raise_epoch(client: Client, transactional_id: str, timeout_ms: int = FENCE_MS) -> tuple[int, int]:
    """Fence earlier producers of a transactional id. Returns its producer id and its epoch, which is one higher.

    When the epoch cannot be raised any more, the producer id is a new one.
    """
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)
    answer = client.ask_coordinator("transaction", transactional_id, request, _INIT_UNTIL)
    raise_for_errors(answer, f"transactional id {transactional_id!r}")
    return answer.producer_id, answer.producer_epoch


def renew_epoch(client: Client, producer: ProducerIdentity, timeout_ms: int = FENCE_MS) -> ProducerIdentity:
    """The same producer with a higher epoch, if nobody else has taken its transactional id since (KIP-360).

    Raises KafkaError with PRODUCER_FENCED or INVALID_PRODUCER_EPOCH otherwise.
    """
    assert producer.transactional_id is not None
    request = InitProducerIdRequest(
        transactional_id=producer.transactional_id,
        transaction_timeout_ms=timeout_ms,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
    )
    answer = client.ask_coordinator("transaction", producer.transactional_id, request, _INIT_UNTIL)
    raise_for_errors(answer, f"transactional id {producer.transactional_id!r}")
    return producer._replace(producer_id=answer.producer_id, epoch=answer.producer_epoch)


def _init_idempotent_producer(client: Client, request: InitProducerIdRequest) -> ProducerIdentity:
    answer = client.ask_any(request)
    raise_for_errors(answer, "cannot get a producer id")
    return ProducerIdentity(answer.producer_id, answer.producer_epoch)


def add_partitions(client: Client, producer: ProducerIdentity, partitions: Iterable[TopicPartition]) -> None:
    """Required by v1 before the first batch of a transaction goes to a partition. Does nothing with v2."""
    if producer.protocol != ANNOUNCED or producer.transactional_id is None:
        return
    topics = group_by_topic(dict.fromkeys(partitions))
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=producer.transactional_id,
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=name, partitions=[*found]) for name, found in topics.items()],
    )
    answer = client.ask_coordinator("transaction", producer.transactional_id, request, _ANNOUNCE_UNTIL)
    raise_for_errors(answer, f"transaction {producer.transactional_id!r}")


def commit_offsets_in_transaction(
    client: Client, producer: ProducerIdentity, group: str, offsets: Mapping[TopicPartition, CommittedOffset]
) -> None:
    """Add offsets to the transaction: they are committed with it, or not at all."""
    assert producer.transactional_id is not None
    if producer.protocol == ANNOUNCED:
        _add_offsets(client, producer, group)
    topics = [
        TxnOffsetCommitRequestTopic(
            name=name,
            partitions=[
                TxnOffsetCommitRequestPartition(
                    partition_index=partition, committed_offset=each.offset, committed_metadata=each.metadata
                )
                for partition, each in found.items()
            ],
        )
        for name, found in group_by_topic(offsets).items()
    ]
    request = TxnOffsetCommitRequest(
        transactional_id=producer.transactional_id,
        group_id=group,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        topics=topics,
    )
    answer = client.ask_coordinator("group", group, request, _OFFSETS_UNTIL[producer.protocol])
    raise_for_errors(answer, f"offsets of group {group!r} in transaction {producer.transactional_id!r}")


def _add_offsets(client: Client, producer: ProducerIdentity, group: str) -> None:
    request = AddOffsetsToTxnRequest(
        transactional_id=producer.transactional_id or "",
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        group_id=group,
    )
    answer = client.ask_coordinator("transaction", producer.transactional_id or "", request, _ANNOUNCE_UNTIL)
    raise_for_errors(answer, f"group {group!r} in transaction {producer.transactional_id!r}")


def end_transaction(client: Client, producer: ProducerIdentity, *, commit: bool) -> ProducerIdentity:
    """Commit or abort. Returns the identity for the next transaction.

    A KafkaError does not prove that nothing was committed: offsets that belong to the transaction can tell.
    """
    assert producer.transactional_id is not None
    request = EndTxnRequest(
        transactional_id=producer.transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        committed=commit,
    )
    answer = client.ask_coordinator("transaction", producer.transactional_id, request, _END_UNTIL[producer.protocol])
    raise_for_errors(answer, f"cannot end transaction {producer.transactional_id!r}")
    if answer.producer_id < 0:
        return producer
    return producer._replace(producer_id=answer.producer_id, epoch=answer.producer_epoch)
