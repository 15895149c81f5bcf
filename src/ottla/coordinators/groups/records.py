"""The records of `__consumer_offsets`, as Kafka 4.3 lays them out. `formats` encodes and decodes them.

Each key class has one version; the number before an encoded key is the record's type.
"""

from __future__ import annotations

from ottla.wire.message import EMPTY, ZERO_UUID, Message


class OffsetCommitKey(Message):
    __slots__ = ("group_id", "partition", "topic")
    FIELDS = (
        ("group_id", "string", 0, 0, None, None, None),
        ("topic", "string", 0, 0, None, None, None),
        ("partition", "int32", 0, 0, None, None, None),
    )
    VERSIONS = range(0, 1)

    def __init__(self, *, group_id: str = "", topic: str = "", partition: int = 0) -> None:
        self.group_id = group_id
        self.topic = topic
        self.partition = partition


class OffsetCommitValue(Message):
    __slots__ = ("commit_timestamp", "expire_timestamp", "leader_epoch", "metadata", "offset", "topic_id")
    FIELDS = (
        ("offset", "int64", 0, 4, None, None, None),
        ("leader_epoch", "int32", 3, 4, None, None, -1),
        ("metadata", "string", 0, 4, None, None, None),
        ("commit_timestamp", "int64", 0, 4, None, None, None),
        ("expire_timestamp", "int64", 1, 1, None, None, -1),
        ("topic_id", "uuid", 4, 4, None, 0, None),
    )
    VERSIONS = range(0, 5)
    FLEXIBLE_FROM = 4

    def __init__(
        self,
        *,
        offset: int = 0,
        leader_epoch: int = -1,
        metadata: str = "",
        commit_timestamp: int = 0,
        expire_timestamp: int = -1,
        topic_id: bytes = ZERO_UUID,
    ) -> None:
        self.offset = offset
        self.leader_epoch = leader_epoch
        self.metadata = metadata
        self.commit_timestamp = commit_timestamp
        self.expire_timestamp = expire_timestamp
        self.topic_id = topic_id


class GroupMetadataKey(Message):
    __slots__ = ("group_id",)
    FIELDS = (("group_id", "string", 0, 0, None, None, None),)
    VERSIONS = range(0, 1)

    def __init__(self, *, group_id: str = "") -> None:
        self.group_id = group_id


class MemberMetadata(Message):
    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "group_instance_id",
        "member_id",
        "rebalance_timeout",
        "session_timeout",
        "subscription",
    )
    FIELDS = (
        ("member_id", "string", 0, 4, None, None, None),
        ("group_instance_id", "string", 3, 4, 3, None, None),
        ("client_id", "string", 0, 4, None, None, None),
        ("client_host", "string", 0, 4, None, None, None),
        ("rebalance_timeout", "int32", 1, 4, None, None, -1),
        ("session_timeout", "int32", 0, 4, None, None, None),
        ("subscription", "bytes", 0, 4, None, None, None),
        ("assignment", "bytes", 0, 4, None, None, None),
    )

    def __init__(
        self,
        *,
        member_id: str = "",
        group_instance_id: str | None = None,
        client_id: str = "",
        client_host: str = "",
        rebalance_timeout: int = -1,
        session_timeout: int = 0,
        subscription: bytes = b"",
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout = rebalance_timeout
        self.session_timeout = session_timeout
        self.subscription = subscription
        self.assignment = assignment


class GroupMetadataValue(Message):
    __slots__ = ("current_state_timestamp", "generation", "leader", "members", "protocol", "protocol_type")
    FIELDS = (
        ("protocol_type", "string", 0, 4, None, None, None),
        ("generation", "int32", 0, 4, None, None, None),
        ("protocol", "string", 0, 4, 0, None, None),
        ("leader", "string", 0, 4, 0, None, None),
        ("current_state_timestamp", "int64", 2, 4, None, None, -1),
        ("members", "[]MemberMetadata", 0, 4, None, None, None),
    )
    VERSIONS = range(0, 5)
    FLEXIBLE_FROM = 4

    def __init__(
        self,
        *,
        protocol_type: str = "",
        generation: int = 0,
        protocol: str | None = None,
        leader: str | None = None,
        current_state_timestamp: int = -1,
        members: list[MemberMetadata] = EMPTY,
    ) -> None:
        self.protocol_type = protocol_type
        self.generation = generation
        self.protocol = protocol
        self.leader = leader
        self.current_state_timestamp = current_state_timestamp
        self.members = [] if members is EMPTY else members


class ConsumerGroupMetadataKey(Message):
    __slots__ = ("group_id",)
    FIELDS = (("group_id", "string", 0, 0, None, None, None),)
    VERSIONS = range(0, 1)

    def __init__(self, *, group_id: str = "") -> None:
        self.group_id = group_id


class ConsumerGroupMetadataValue(Message):
    __slots__ = ("epoch", "metadata_hash")
    FIELDS = (
        ("epoch", "int32", 0, 0, None, None, None),
        ("metadata_hash", "int64", 0, 0, None, 0, None),
    )
    VERSIONS = range(0, 1)
    FLEXIBLE_FROM = 0

    def __init__(self, *, epoch: int = 0, metadata_hash: int = 0) -> None:
        self.epoch = epoch
        self.metadata_hash = metadata_hash


class ConsumerGroupPartitionMetadataKey(Message):
    __slots__ = ("group_id",)
    FIELDS = (("group_id", "string", 0, 0, None, None, None),)
    VERSIONS = range(0, 1)

    def __init__(self, *, group_id: str = "") -> None:
        self.group_id = group_id


class PartitionMetadata(Message):
    __slots__ = ("partition", "racks")
    FIELDS = (
        ("partition", "int32", 0, 0, None, None, None),
        ("racks", "[]string", 0, 0, None, None, None),
    )

    def __init__(self, *, partition: int = 0, racks: list[str] = EMPTY) -> None:
        self.partition = partition
        self.racks = [] if racks is EMPTY else racks


class TopicMetadata(Message):
    __slots__ = ("num_partitions", "partition_metadata", "topic_id", "topic_name")
    FIELDS = (
        ("topic_id", "uuid", 0, 0, None, None, None),
        ("topic_name", "string", 0, 0, None, None, None),
        ("num_partitions", "int32", 0, 0, None, None, None),
        ("partition_metadata", "[]PartitionMetadata", 0, 0, None, None, None),
    )

    def __init__(
        self,
        *,
        topic_id: bytes = ZERO_UUID,
        topic_name: str = "",
        num_partitions: int = 0,
        partition_metadata: list[PartitionMetadata] = EMPTY,
    ) -> None:
        self.topic_id = topic_id
        self.topic_name = topic_name
        self.num_partitions = num_partitions
        self.partition_metadata = [] if partition_metadata is EMPTY else partition_metadata


class ConsumerGroupPartitionMetadataValue(Message):
    """Written by Kafka before 4.1, later replaced by a hash in ConsumerGroupMetadataValue. Only deleted here."""

    __slots__ = ("topics",)
    FIELDS = (("topics", "[]TopicMetadata", 0, 0, None, None, None),)
    VERSIONS = range(0, 1)
    FLEXIBLE_FROM = 0

    def __init__(self, *, topics: list[TopicMetadata] = EMPTY) -> None:
        self.topics = [] if topics is EMPTY else topics


class ConsumerGroupMemberMetadataKey(Message):
    __slots__ = ("group_id", "member_id")
    FIELDS = (
        ("group_id", "string", 0, 0, None, None, None),
        ("member_id", "string", 0, 0, None, None, None),
    )
    VERSIONS = range(0, 1)

    def __init__(self, *, group_id: str = "", member_id: str = "") -> None:
        self.group_id = group_id
        self.member_id = member_id


class ClassicProtocol(Message):
    __slots__ = ("metadata", "name")
    FIELDS = (
        ("name", "string", 0, 0, None, None, None),
        ("metadata", "bytes", 0, 0, None, None, None),
    )

    def __init__(self, *, name: str = "", metadata: bytes = b"") -> None:
        self.name = name
        self.metadata = metadata


class ClassicMemberMetadata(Message):
    __slots__ = ("session_timeout_ms", "supported_protocols")
    FIELDS = (
        ("session_timeout_ms", "int32", 0, 0, None, None, None),
        ("supported_protocols", "[]ClassicProtocol", 0, 0, None, None, None),
    )

    def __init__(self, *, session_timeout_ms: int = 0, supported_protocols: list[ClassicProtocol] = EMPTY) -> None:
        self.session_timeout_ms = session_timeout_ms
        self.supported_protocols = [] if supported_protocols is EMPTY else supported_protocols


class ConsumerGroupMemberMetadataValue(Message):
    __slots__ = (
        "classic_member_metadata",
        "client_host",
        "client_id",
        "instance_id",
        "rack_id",
        "rebalance_timeout_ms",
        "server_assignor",
        "subscribed_topic_names",
        "subscribed_topic_regex",
    )
    FIELDS = (
        ("instance_id", "string", 0, 0, 0, None, None),
        ("rack_id", "string", 0, 0, 0, None, None),
        ("client_id", "string", 0, 0, None, None, None),
        ("client_host", "string", 0, 0, None, None, None),
        ("subscribed_topic_names", "[]string", 0, 0, None, None, None),
        ("subscribed_topic_regex", "string", 0, 0, 0, None, None),
        ("rebalance_timeout_ms", "int32", 0, 0, None, None, -1),
        ("server_assignor", "string", 0, 0, 0, None, None),
        ("classic_member_metadata", "ClassicMemberMetadata", 0, 0, 0, 0, ()),
    )
    VERSIONS = range(0, 1)
    FLEXIBLE_FROM = 0

    def __init__(
        self,
        *,
        instance_id: str | None = None,
        rack_id: str | None = None,
        client_id: str = "",
        client_host: str = "",
        subscribed_topic_names: list[str] = EMPTY,
        subscribed_topic_regex: str | None = None,
        rebalance_timeout_ms: int = -1,
        server_assignor: str | None = None,
        classic_member_metadata: ClassicMemberMetadata | None = None,
    ) -> None:
        self.instance_id = instance_id
        self.rack_id = rack_id
        self.client_id = client_id
        self.client_host = client_host
        self.subscribed_topic_names = [] if subscribed_topic_names is EMPTY else subscribed_topic_names
        self.subscribed_topic_regex = subscribed_topic_regex
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.server_assignor = server_assignor
        self.classic_member_metadata = classic_member_metadata


class ConsumerGroupTargetAssignmentMetadataKey(Message):
    __slots__ = ("group_id",)
    FIELDS = (("group_id", "string", 0, 0, None, None, None),)
    VERSIONS = range(0, 1)

    def __init__(self, *, group_id: str = "") -> None:
        self.group_id = group_id


class ConsumerGroupTargetAssignmentMetadataValue(Message):
    __slots__ = ("assignment_epoch", "assignment_timestamp")
    FIELDS = (
        ("assignment_epoch", "int32", 0, 0, None, None, None),
        ("assignment_timestamp", "int64", 0, 0, None, 0, None),
    )
    VERSIONS = range(0, 1)
    FLEXIBLE_FROM = 0

    def __init__(self, *, assignment_epoch: int = 0, assignment_timestamp: int = 0) -> None:
        self.assignment_epoch = assignment_epoch
        self.assignment_timestamp = assignment_timestamp


class ConsumerGroupTargetAssignmentMemberKey(Message):
    __slots__ = ("group_id", "member_id")
    FIELDS = (
        ("group_id", "string", 0, 0, None, None, None),
        ("member_id", "string", 0, 0, None, None, None),
    )
    VERSIONS = range(0, 1)

    def __init__(self, *, group_id: str = "", member_id: str = "") -> None:
        self.group_id = group_id
        self.member_id = member_id


class TargetPartitions(Message):
    __slots__ = ("partitions", "topic_id")
    FIELDS = (
        ("topic_id", "uuid", 0, 0, None, None, None),
        ("partitions", "[]int32", 0, 0, None, None, None),
    )

    def __init__(self, *, topic_id: bytes = ZERO_UUID, partitions: list[int] = EMPTY) -> None:
        self.topic_id = topic_id
        self.partitions = [] if partitions is EMPTY else partitions


class ConsumerGroupTargetAssignmentMemberValue(Message):
    __slots__ = ("topic_partitions",)
    FIELDS = (("topic_partitions", "[]TargetPartitions", 0, 0, None, None, None),)
    VERSIONS = range(0, 1)
    FLEXIBLE_FROM = 0

    def __init__(self, *, topic_partitions: list[TargetPartitions] = EMPTY) -> None:
        self.topic_partitions = [] if topic_partitions is EMPTY else topic_partitions


class ConsumerGroupCurrentMemberAssignmentKey(Message):
    __slots__ = ("group_id", "member_id")
    FIELDS = (
        ("group_id", "string", 0, 0, None, None, None),
        ("member_id", "string", 0, 0, None, None, None),
    )
    VERSIONS = range(0, 1)

    def __init__(self, *, group_id: str = "", member_id: str = "") -> None:
        self.group_id = group_id
        self.member_id = member_id


class CurrentPartitions(Message):
    __slots__ = ("assignment_epochs", "partitions", "topic_id")
    FIELDS = (
        ("topic_id", "uuid", 0, 0, None, None, None),
        ("partitions", "[]int32", 0, 0, None, None, None),
        ("assignment_epochs", "[]int32", 0, 0, 0, 0, ()),
    )

    def __init__(
        self,
        *,
        topic_id: bytes = ZERO_UUID,
        partitions: list[int] = EMPTY,
        assignment_epochs: list[int] | None = EMPTY,
    ) -> None:
        self.topic_id = topic_id
        self.partitions = [] if partitions is EMPTY else partitions
        self.assignment_epochs = [] if assignment_epochs is EMPTY else assignment_epochs


class ConsumerGroupCurrentMemberAssignmentValue(Message):
    __slots__ = (
        "assigned_partitions",
        "member_epoch",
        "partitions_pending_revocation",
        "previous_member_epoch",
        "state",
    )
    FIELDS = (
        ("member_epoch", "int32", 0, 0, None, None, None),
        ("previous_member_epoch", "int32", 0, 0, None, None, None),
        ("state", "int8", 0, 0, None, None, None),
        ("assigned_partitions", "[]CurrentPartitions", 0, 0, None, None, None),
        ("partitions_pending_revocation", "[]CurrentPartitions", 0, 0, None, None, None),
    )
    VERSIONS = range(0, 1)
    FLEXIBLE_FROM = 0

    def __init__(
        self,
        *,
        member_epoch: int = 0,
        previous_member_epoch: int = 0,
        state: int = 0,
        assigned_partitions: list[CurrentPartitions] = EMPTY,
        partitions_pending_revocation: list[CurrentPartitions] = EMPTY,
    ) -> None:
        self.member_epoch = member_epoch
        self.previous_member_epoch = previous_member_epoch
        self.state = state
        self.assigned_partitions = [] if assigned_partitions is EMPTY else assigned_partitions
        self.partitions_pending_revocation = (
            [] if partitions_pending_revocation is EMPTY else partitions_pending_revocation
        )


class ConsumerGroupRegularExpressionKey(Message):
    __slots__ = ("group_id", "regular_expression")
    FIELDS = (
        ("group_id", "string", 0, 0, None, None, None),
        ("regular_expression", "string", 0, 0, None, None, None),
    )
    VERSIONS = range(0, 1)

    def __init__(self, *, group_id: str = "", regular_expression: str = "") -> None:
        self.group_id = group_id
        self.regular_expression = regular_expression


class ConsumerGroupRegularExpressionValue(Message):
    __slots__ = ("timestamp", "topics", "version")
    FIELDS = (
        ("topics", "[]string", 0, 0, None, None, None),
        ("version", "int64", 0, 0, None, None, None),
        ("timestamp", "int64", 0, 0, None, None, None),
    )
    VERSIONS = range(0, 1)
    FLEXIBLE_FROM = 0

    def __init__(self, *, topics: list[str] = EMPTY, version: int = 0, timestamp: int = 0) -> None:
        self.topics = [] if topics is EMPTY else topics
        self.version = version
        self.timestamp = timestamp
