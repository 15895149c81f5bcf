"""Encodes and decodes the records of the internal topics in Kafka's formats, with a table of record types per topic.

A key is a 16-bit type number followed by the key's fields; a value is a 16-bit version number followed by the value's
fields. A type that is not in the table belongs to a newer broker, or to a kind of group that this broker does not
support. Such a record stays in the log and is skipped when the log is loaded.
"""

from collections.abc import Callable, Mapping
from struct import Struct
from struct import error as struct_error
from typing import Any, NamedTuple

from ottla.coordinators.groups.records import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    CurrentPartitions,
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
    TargetPartitions,
)
from ottla.coordinators.machine import StoredRecord
from ottla.coordinators.transactions.records import TransactionLogKey, TransactionLogValue, TransactionPartitions
from ottla.wire.message import Message
from ottla.wire.schema import Malformed, reader, writer
from ottla.wire.writers import Writer

__all__ = [
    "GROUP_FORMAT",
    "TRANSACTION_FORMAT",
    "ClassicMemberMetadata",
    "ClassicProtocol",
    "ConsumerGroupCurrentMemberAssignmentKey",
    "ConsumerGroupCurrentMemberAssignmentValue",
    "ConsumerGroupMemberMetadataKey",
    "ConsumerGroupMemberMetadataValue",
    "ConsumerGroupMetadataKey",
    "ConsumerGroupMetadataValue",
    "ConsumerGroupPartitionMetadataKey",
    "ConsumerGroupPartitionMetadataValue",
    "ConsumerGroupRegularExpressionKey",
    "ConsumerGroupRegularExpressionValue",
    "ConsumerGroupTargetAssignmentMemberKey",
    "ConsumerGroupTargetAssignmentMemberValue",
    "ConsumerGroupTargetAssignmentMetadataKey",
    "ConsumerGroupTargetAssignmentMetadataValue",
    "CurrentPartitions",
    "GroupMetadataKey",
    "GroupMetadataValue",
    "MemberMetadata",
    "OffsetCommitKey",
    "OffsetCommitValue",
    "RecordFormat",
    "RecordType",
    "TargetPartitions",
    "TransactionLogKey",
    "TransactionLogValue",
    "TransactionPartitions",
]

_NUMBER = Struct(">h")


class RecordType(NamedTuple):
    key: type[Message]
    value: type[Message]
    version: Callable[[Any], int]
    """Returns the version to write a value in: the one that Kafka 4.3 chooses."""


class RecordFormat:
    """The record types of one topic: found by number for decoding, by the class of the key for encoding."""

    def __init__(self, types: Mapping[int, RecordType]) -> None:
        self._types = dict(types)
        # If two numbers have the same key class, the higher one is written.
        self._numbers = {types[number].key: number for number in sorted(types)}
        self._forms: dict[type[Message], tuple[bytes, Writer, RecordType]] = {}
        """For each class of keys: its encoded number, the writer of the key, the record type. Filled on first use."""

    def encode(self, record: StoredRecord) -> tuple[bytes, bytes | None]:
        """Returns key and value. Malformed if a field cannot be encoded, such as a string of more than 32767 bytes."""
        stored_key, stored_value = record
        number, write, row = self._forms.get(stored_key.__class__) or self._prepare_form(stored_key.__class__)
        key = bytearray(number)
        write(key, stored_key)
        if stored_value is None:
            return bytes(key), None
        version = row.version(stored_value)
        value = bytearray(_NUMBER.pack(version))
        writer(row.value, version)(value, stored_value)
        return bytes(key), bytes(value)

    def _prepare_form(self, key: type[Message]) -> tuple[bytes, Writer, RecordType]:
        number = self._numbers[key]
        form = self._forms[key] = _NUMBER.pack(number), writer(key, 0), self._types[number]
        return form

    def decode(self, key: bytes | None, value: bytes | None) -> StoredRecord | None:
        """Returns None for an unknown record type. Malformed if the bytes are damaged or of a newer version."""
        if key is None:
            raise Malformed("a record has no key")
        try:
            row = self._types.get(_NUMBER.unpack_from(key)[0])
            if row is None:
                return None
            stored_key, _ = reader(row.key, 0)(key, _NUMBER.size)
            if value is None:
                return StoredRecord(stored_key, None)
            stored_value, _ = reader(row.value, _NUMBER.unpack_from(value)[0])(value, _NUMBER.size)
        except struct_error:
            raise Malformed("a key or value is shorter than its 16-bit number") from None
        return StoredRecord(stored_key, stored_value)


def _choose_offset_version(value: OffsetCommitValue) -> int:
    """Version 1 is the only one with an expiry timestamp, version 4 the only one with the topic's id."""
    return 1 if value.expire_timestamp >= 0 else 4


def _always_use(version: int) -> Callable[[Any], int]:
    return lambda value: version


GROUP_FORMAT = RecordFormat(
    {
        0: RecordType(
            OffsetCommitKey, OffsetCommitValue, _choose_offset_version
        ),  # Kafka before 0.9; read, never written
        1: RecordType(OffsetCommitKey, OffsetCommitValue, _choose_offset_version),
        2: RecordType(GroupMetadataKey, GroupMetadataValue, _always_use(3)),
        3: RecordType(ConsumerGroupMetadataKey, ConsumerGroupMetadataValue, _always_use(0)),
        4: RecordType(ConsumerGroupPartitionMetadataKey, ConsumerGroupPartitionMetadataValue, _always_use(0)),
        5: RecordType(ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue, _always_use(0)),
        6: RecordType(
            ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue, _always_use(0)
        ),
        7: RecordType(ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue, _always_use(0)),
        8: RecordType(
            ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue, _always_use(0)
        ),
        16: RecordType(ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue, _always_use(0)),
    }
)

TRANSACTION_FORMAT = RecordFormat({0: RecordType(TransactionLogKey, TransactionLogValue, _always_use(1))})
