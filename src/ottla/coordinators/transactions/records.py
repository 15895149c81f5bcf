"""The records of `__transaction_state`, as Kafka 4.3 lays them out. `formats` encodes and decodes them."""

from __future__ import annotations

from ottla.wire.message import EMPTY, Message


class TransactionLogKey(Message):
    __slots__ = ("transactional_id",)
    FIELDS = (("transactional_id", "string", 0, 0, None, None, None),)
    VERSIONS = range(0, 1)

    def __init__(self, *, transactional_id: str = "") -> None:
        self.transactional_id = transactional_id


class TransactionPartitions(Message):
    __slots__ = ("partition_ids", "topic")
    FIELDS = (
        ("topic", "string", 0, 1, None, None, None),
        ("partition_ids", "[]int32", 0, 1, None, None, None),
    )

    def __init__(self, *, topic: str = "", partition_ids: list[int] = EMPTY) -> None:
        self.topic = topic
        self.partition_ids = [] if partition_ids is EMPTY else partition_ids


class TransactionLogValue(Message):
    __slots__ = (
        "client_transaction_version",
        "next_producer_epoch",
        "next_producer_id",
        "previous_producer_id",
        "producer_epoch",
        "producer_id",
        "transaction_last_update_timestamp_ms",
        "transaction_partitions",
        "transaction_start_timestamp_ms",
        "transaction_status",
        "transaction_timeout_ms",
    )
    FIELDS = (
        ("producer_id", "int64", 0, 1, None, None, None),
        ("producer_epoch", "int16", 0, 1, None, None, None),
        ("transaction_timeout_ms", "int32", 0, 1, None, None, None),
        ("transaction_status", "int8", 0, 1, None, None, None),
        ("transaction_partitions", "[]TransactionPartitions", 0, 1, 0, None, None),
        ("transaction_last_update_timestamp_ms", "int64", 0, 1, None, None, None),
        ("transaction_start_timestamp_ms", "int64", 0, 1, None, None, None),
        ("previous_producer_id", "int64", 1, 1, None, 0, -1),
        ("next_producer_id", "int64", 1, 1, None, 1, -1),
        ("client_transaction_version", "int16", 1, 1, None, 2, None),
        ("next_producer_epoch", "int16", 1, 1, None, 3, -1),
    )
    VERSIONS = range(0, 2)
    FLEXIBLE_FROM = 1

    def __init__(
        self,
        *,
        producer_id: int = 0,
        producer_epoch: int = 0,
        transaction_timeout_ms: int = 0,
        transaction_status: int = 0,
        transaction_partitions: list[TransactionPartitions] | None = None,
        transaction_last_update_timestamp_ms: int = 0,
        transaction_start_timestamp_ms: int = 0,
        previous_producer_id: int = -1,
        next_producer_id: int = -1,
        client_transaction_version: int = 0,
        next_producer_epoch: int = -1,
    ) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.transaction_timeout_ms = transaction_timeout_ms
        self.transaction_status = transaction_status
        self.transaction_partitions = transaction_partitions
        self.transaction_last_update_timestamp_ms = transaction_last_update_timestamp_ms
        self.transaction_start_timestamp_ms = transaction_start_timestamp_ms
        self.previous_producer_id = previous_producer_id
        self.next_producer_id = next_producer_id
        self.client_transaction_version = client_transaction_version
        self.next_producer_epoch = next_producer_epoch
