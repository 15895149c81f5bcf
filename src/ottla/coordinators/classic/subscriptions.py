"""Which topics the members of a classic group read, as far as they say it in the consumers' own language."""

from ottla.coordinators.classic.rebalance import Rebalance
from ottla.wire.malformed import Malformed
from ottla.wire.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from ottla.wire.schema import reader

CONSUMER = "consumer"
"""The protocol type of consumers. Others (Connect's workers, registries) have formats of their own."""

_VERSION_BYTES = 2


class Subscriptions:
    """Found when it is asked for, and kept until a member or what it says changes."""

    __slots__ = ("_found", "_found_for", "_rebalance")

    def __init__(self, rebalance: Rebalance) -> None:
        self._rebalance = rebalance
        self._found_for: tuple[int, str | None] | None = None
        self._found: frozenset[str] | None = None

    def topics(self) -> frozenset[str] | None:
        """None where it cannot be known."""
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
        said = dict.fromkeys(member.metadata(protocol) for member in roster)  # most members say the same
        said.pop(b"", None)  # joined since the protocol was chosen, and does not have it
        try:
            return frozenset(topic for metadata in said for topic in _topics(metadata))
        except Malformed:
            return None


def _topics(metadata: bytes) -> list[str]:
    """Every version begins as version 0 does."""
    subscription: ConsumerProtocolSubscription
    subscription, _ = reader(ConsumerProtocolSubscription, 0)(metadata, _VERSION_BYTES)
    return subscription.topics
