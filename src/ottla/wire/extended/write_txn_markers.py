"""WriteTxnMarkers between brokers of a cluster, so that none is carried out late.

A request that a cut connection has held up may arrive when its coordinator has long given up on it, written the marker
elsewhere, and begun the producer's next transaction, which a late marker would end in one partition. So a coordinator
says for which topic and leader epoch of each partition a marker is meant, and numbers its requests: a broker refuses a
request with a lower number than one that it has seen.
"""

from typing import Any

from ottla.wire.message import EMPTY, ZERO_UUID
from ottla.wire.messages import write_txn_markers as kafka

LEADER_EPOCHS, TOPIC_ID = 100, 101
SENDER, SENDER_EPOCH, NUMBER = 100, 101, 102
"""Tags. Kafka counts its own from 0."""


class WritableTxnMarkerTopic(kafka.WritableTxnMarkerTopic):
    __slots__ = ("leader_epochs", "topic_id")
    FIELDS = (  # type: ignore[assignment]  # the class that is extended has fewer
        *kafka.WritableTxnMarkerTopic.FIELDS,
        ("leader_epochs", "[]int32", 1, 2, None, LEADER_EPOCHS, None),
        ("topic_id", "uuid", 1, 2, None, TOPIC_ID, None),
    )

    def __init__(self, *, leader_epochs: list[int] = EMPTY, topic_id: bytes = ZERO_UUID, **fields: Any) -> None:
        """`leader_epochs`: one for each of `partition_indexes`, or none at all."""
        super().__init__(**fields)
        self.leader_epochs = [] if leader_epochs is EMPTY else leader_epochs
        self.topic_id = topic_id


class WritableTxnMarker(kafka.WritableTxnMarker):
    """Defined here because the topics in it are those of this module."""

    __slots__ = ()
    topics: list[WritableTxnMarkerTopic]  # type: ignore[assignment]


class WriteTxnMarkersRequest(kafka.WriteTxnMarkersRequest):
    __slots__ = ("number", "sender", "sender_epoch")
    FIELDS = (  # type: ignore[assignment]
        *kafka.WriteTxnMarkersRequest.FIELDS,
        ("sender", "int32", 1, 2, None, SENDER, -1),
        ("sender_epoch", "int64", 1, 2, None, SENDER_EPOCH, -1),
        ("number", "int64", 1, 2, None, NUMBER, -1),
    )
    markers: list[WritableTxnMarker]  # type: ignore[assignment]

    def __init__(self, *, sender: int = -1, sender_epoch: int = -1, number: int = -1, **fields: Any) -> None:
        """`sender`, `sender_epoch`: id and broker epoch of the coordinator's broker, which numbers its requests; -1 for
        a client, an administrator for instance."""
        super().__init__(**fields)
        self.sender = sender
        self.sender_epoch = sender_epoch
        self.number = number
