"""What consumers of the classic protocol tell each other through the coordinator: subscriptions and assignments.

The coordinator of a classic group never looks inside. That of a consumer group must, when members of both protocols
are in it or when a group moves from one protocol to the other. A version stands before the message; one that is newer
than ours is read as the newest that we know, and what follows is passed over, as Kafka does.
"""

from collections.abc import Mapping
from typing import TypeVar

from ottla.cluster.image import Image
from ottla.coordinators.consumer.assignors import Partitions
from ottla.wire.malformed import Malformed
from ottla.wire.message import Message
from ottla.wire.messages.consumer_protocol_assignment import ConsumerProtocolAssignment, TopicPartition
from ottla.wire.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from ottla.wire.messages.consumer_protocol_subscription import TopicPartition as OwnedPartition
from ottla.wire.schema import encode, reader

PROTOCOL_TYPE = "consumer"

_VERSION_BYTES = 2

AnyMessage = TypeVar("AnyMessage", bound=Message)


def read_subscription(data: bytes) -> ConsumerProtocolSubscription:
    """Malformed where it is none."""
    return _read(ConsumerProtocolSubscription, data)


def read_assignment(data: bytes) -> ConsumerProtocolAssignment:
    """Malformed where it is none."""
    return _read(ConsumerProtocolAssignment, data)


def answer_version(subscription: bytes) -> int:
    """The version in which to answer one who wrote this subscription."""
    version = int.from_bytes(subscription[:_VERSION_BYTES], "big", signed=True)
    return min(max(version, 0), ConsumerProtocolAssignment.VERSIONS[-1])


def write_assignment(partitions: Mapping[bytes, frozenset[int]], image: Image, version: int) -> bytes:
    """Topics that are gone are left out: the client knows them by name, and they have none any more."""
    topics = [(topic.name, partitions[id]) for id in partitions if (topic := image.topic_by_id(id)) is not None]
    message = ConsumerProtocolAssignment(
        assigned_partitions=[TopicPartition(topic=name, partitions=sorted(numbers)) for name, numbers in sorted(topics)]
    )
    return version.to_bytes(_VERSION_BYTES, "big") + encode(ConsumerProtocolAssignment, version, message)


def partitions_by_id(topics: "list[TopicPartition] | list[OwnedPartition]", image: Image) -> Partitions:
    """The same partitions by topic id; topics that do not exist are left out."""
    found: dict[bytes, frozenset[int]] = {}
    for named in topics:
        topic = image.topic(named.topic)
        if topic is not None and named.partitions:
            found[topic.id] = found.get(topic.id, frozenset()) | frozenset(named.partitions)
    return found


def _read(message_class: type[AnyMessage], data: bytes) -> AnyMessage:
    version = int.from_bytes(data[:_VERSION_BYTES], "big", signed=True)
    if version < 0:
        raise Malformed(f"consumer protocol: version {version}")
    message, _ = reader(message_class, min(version, message_class.VERSIONS[-1]))(data, _VERSION_BYTES)
    assert isinstance(message, message_class)
    return message
