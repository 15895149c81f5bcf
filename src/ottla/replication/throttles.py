"""Throttles of replication: how many bytes per second go to, or come from, replicas that are listed for it.

The rate is a setting of the broker, leader.replication.throttled.rate or follower.replication.throttled.rate. The
replicas are listed in settings of their topics with the same beginning. An operator sets both while replicas are moved,
so that copying them leaves room for clients. In-sync replicas are never held back: producers wait for them.
"""

from collections.abc import Callable, Sequence

UNLIMITED = 2**63 - 1

BURST_S = 1.0
"""Seconds for which unused rate is saved up."""

WAIT_MAX_S = 1.0
"""Longest wait until the rate is looked at again: an operator who raises or removes it wants replicas to go on."""


def is_throttled(listed: Sequence[str], index: int, broker_id: int) -> bool:
    """Whether a topic's list of throttled replicas has this one: `*`, or <partition>:<broker>."""
    return bool(listed) and ("*" in listed or f"{index}:{broker_id}" in listed)


class ReplicationThrottle:
    """A limit on bytes per second. Bytes are counted after they were sent, so a large answer is paid for afterwards."""

    def __init__(self, rate: Callable[[], int], now: Callable[[], float]) -> None:
        """`rate`: the setting, in bytes per second. `now`: the event loop's clock."""
        self._rate = rate
        self._now = now
        self._credit = 0.0
        self._counted_at = now()
        self.bytes = 0
        """Bytes of throttled replicas since the start of the broker."""

    @property
    def is_unlimited(self) -> bool:
        return self._rate() >= UNLIMITED

    def record(self, count: int) -> None:
        """Count bytes of a throttled replica."""
        self.bytes += count
        if not self.is_unlimited:
            self._refill()
            self._credit -= count

    def wait_s(self) -> float:
        """Seconds until throttled replicas may go on, or have to ask again; 0 if they may go on now."""
        rate = self._rate()
        if rate >= UNLIMITED:
            self._credit = 0.0
            return 0.0
        self._refill()
        return 0.0 if self._credit > -1 else min(-self._credit / max(rate, 1), WAIT_MAX_S)

    def _refill(self) -> None:
        rate, now = self._rate(), self._now()
        self._credit = min(self._credit + (now - self._counted_at) * rate, BURST_S * rate)
        self._counted_at = now
