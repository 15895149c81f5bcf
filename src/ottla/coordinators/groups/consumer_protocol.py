"""The subscriptions and assignments that consumers of the classic protocol exchange through the coordinator.

The coordinator of a classic group passes them on without reading them. The coordinator of a consumer group has to read
them when the group has members of both protocols, and when a group is converted. Each message begins with its version.
A version that is newer than ours is read as the newest that we know, and the rest is ignored, as Kafka does.
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
    """Decode a subscription. Raises Malformed if the bytes are not one."""
    return _read(ConsumerProtocolSubscription, data)


def read_assignment(data: bytes) -> ConsumerProtocolAssignment:
    """Decode an assignment. Raises Malformed if the bytes are not one."""
    return _read(ConsumerProtocolAssignment, data)


def choose_assignment_version(subscription: bytes) -> int:
    """The assignment version that the author of this subscription understands."""
    version = int.from_bytes(subscription[:_VERSION_BYTES], "big", signed=True)
    return min(max(version, 0), ConsumerProtocolAssignment.VERSIONS[-1])


def write_assignment(partitions: Mapping[bytes, frozenset[int]], image: Image, version: int) -> bytes:
    """Encode an assignment. Deleted topics are left out, because the message needs a name for each topic."""
    topics = [(topic.name, partitions[id]) for id in partitions if (topic := image.topic_by_id(id)) is not None]
    message = ConsumerProtocolAssignment(
        assigned_partitions=[TopicPartition(topic=name, partitions=sorted(numbers)) for name, numbers in sorted(topics)]
    )
    return version.to_bytes(_VERSION_BYTES, "big") + encode(ConsumerProtocolAssignment, version, message)


def partitions_by_id(topics: "list[TopicPartition] | list[OwnedPartition]", image: Image) -> Partitions:
    """Convert topic names to topic ids. Topics that do not exist are left out."""
    found: dict[bytes, frozenset[int]] = {}
    for named in topics:
        topic = image.topic(named.topic)
        if topic is not None and named.partitions:
            found[topic.id] = found.get(topic.id, frozenset()) | frozenset(named.partitions)
    return found


def _read(message_class: type[AnyMessage], data: bytes) -> AnyMessage:
    version = int.from_bytes(data[:_VERSION_BYTES], "big", signed=True)
    if version < 0:
        raise Malformed(f"the consumer protocol has no version {version}")
    message, _ = reader(message_class, min(version, message_class.VERSIONS[-1]))(data, _VERSION_BYTES)
    assert isinstance(message, message_class)
    return message
