"""The topics that the members of a classic group subscribe to, if they use the consumers' metadata format."""

from ottla.coordinators.classic.rebalance import Rebalance
from ottla.wire.malformed import Malformed
from ottla.wire.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from ottla.wire.schema import reader

CONSUMER = "consumer"
"""The protocol type of consumers. Others, such as Connect workers, have metadata formats of their own."""

_VERSION_BYTES = 2


class TopicSubscriptions:
    """Computed on demand, and kept until the members or their metadata change."""

    __slots__ = ("_found", "_found_for", "_rebalance")

    def __init__(self, rebalance: Rebalance) -> None:
        self._rebalance = rebalance
        self._found_for: tuple[int, str | None] | None = None
        self._found: frozenset[str] | None = None

    def find_topics(self) -> frozenset[str] | None:
        """The topics that the members subscribe to; None if the subscriptions cannot be read."""
        current = (self._rebalance.roster.changes, self._rebalance.protocol)
        if current != self._found_for:
            self._found, self._found_for = self._find(), current
        return self._found

    def _find(self) -> frozenset[str] | None:
        roster, protocol = self._rebalance.roster, self._rebalance.protocol
        if self._rebalance.protocol_type != CONSUMER:
            return None
        if not roster:
            return frozenset()
        if protocol is None:
            return None
        said = dict.fromkeys(member.metadata(protocol) for member in roster)  # most members have the same metadata
        said.pop(b"", None)  # from members that joined after the protocol was chosen and do not have it
        try:
            return frozenset(topic for metadata in said for topic in _read_topics(metadata))
        except Malformed:
            return None


def _read_topics(metadata: bytes) -> list[str]:
    """Every version of the subscription begins with the fields of version 0."""
    subscription: ConsumerProtocolSubscription
    subscription, _ = reader(ConsumerProtocolSubscription, 0)(metadata, _VERSION_BYTES)
    return subscription.topics
