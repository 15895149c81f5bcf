"""Names of topics, cycles, internal topics, and the bytes of MirrorMaker 2's records."""

from ottla.connect.connectors.mirror.formats import Checkpoint, OffsetSync, encode_heartbeat
from ottla.connect.connectors.mirror.policy import NameFilter, ReplicationPolicy, TopicChoice
from ottla.topic_partition import TopicPartition

POLICY = ReplicationPolicy("A", "B")


def test_which_topics_are_mirrored() -> None:
    choice = TopicChoice(POLICY, NameFilter.of(["orders", r"x\..*", "B.*", "C.*", "mm2.*", "__.*"], ["x.not"]))
    mirrored = ["orders", "x.yes", "heartbeats", "C.orders"]
    others = [
        "order",
        "x.not",
        "B.orders",
        "C.B.orders",
        "mm2-offsets.A.internal",
        "C.checkpoints.internal",
        "__consumer_offsets",
        "B.heartbeats",
    ]
    assert [name for name in mirrored + others if choice.has(name)] == mirrored


def test_names() -> None:
    assert POLICY.name_in_target("orders") == "A.orders"
    assert POLICY.offset_syncs_topic("A") == "mm2-offset-syncs.A.internal"
    assert POLICY.checkpoints_topic == "A.checkpoints.internal"
    identity = ReplicationPolicy("A", "B", keeps_names=True)
    assert identity.name_in_target("orders") == "orders"
    assert identity.name_in_target("heartbeats") == "A.heartbeats"
    assert identity.find_origin("B.orders") is None
    assert ReplicationPolicy("A", "B", "_", "_").checkpoints_topic == "A_checkpoints_internal"


def test_bytes() -> None:
    """Fields of Kafka's protocol: INT16 lengths before text, big-endian numbers."""
    sync = OffsetSync(TopicPartition("t", 2), 10, 20)
    assert sync.encode() == (b"\0\1t\0\0\0\2", b"\0\0\0\0\0\0\0\x0a\0\0\0\0\0\0\0\x14")
    assert OffsetSync.decode(*sync.encode()) == sync
    checkpoint = Checkpoint("g", TopicPartition("A.t", 1), 3, 4, "m")
    assert checkpoint.encode() == (
        b"\0\1g\0\3A.t\0\0\0\1",
        b"\0\0\0\0\0\0\0\0\0\3\0\0\0\0\0\0\0\4\0\1m",
    )
    assert Checkpoint.decode(*checkpoint.encode()) == checkpoint
    assert encode_heartbeat("A", "B", 5) == (b"\0\1A\0\1B", b"\0\0\0\0\0\0\0\0\0\5")
