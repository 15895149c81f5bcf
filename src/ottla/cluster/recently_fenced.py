"""Brokers that were fenced a moment ago. Clients that ask for the metadata of their topics still find them in the list
of brokers, and no longer as leaders.

In Apache Kafka a broker that dies stays in the list until its session ends, nine seconds later. Here others lead
within milliseconds, and the list would change as fast. That is too fast for librdkafka, which gives up a broker at once
that an answer does not list. If a partition is still with that broker while its position is being checked
(OffsetForLeaderEpoch), two threads of librdkafka 2.16.0 wait for each other: one has the lock of the partition and
wants that of the client, the other has them the other way round (its issue 5476). The consumer reads nothing any more,
without an error. An answer may also come from a broker that does not know yet that others are back. After a few seconds
no partition is left with the broker, and most brokers that restart are back by then.
"""

from collections.abc import Callable

from ottla.cluster.image import Image

LISTED_S = 9.0
"""How long a fenced broker stays in the list: the default of broker.session.timeout.ms in Apache Kafka."""


class RecentlyFenced:
    def __init__(self, now: Callable[[], float], image: Image) -> None:
        """`now` is a monotonic clock, in seconds. Nobody knows since when those are fenced that are so in `image`, the
        metadata at the start of this broker, which may be one of them."""
        self._now = now
        self._fenced_at = {broker.id: now() for broker in image.brokers.values() if broker.fenced}

    def note(self, broker_id: int) -> None:
        self._fenced_at[broker_id] = self._now()

    def follow(self, before: Image, after: Image) -> None:
        """Note which brokers were fenced by a change of the metadata, and which are back or unregistered."""
        if before.brokers is after.brokers:
            return
        for broker in after.brokers.values():
            known = before.brokers.get(broker.id)
            if not broker.fenced:
                self._fenced_at.pop(broker.id, None)
            elif known is not None and not known.fenced:
                self.note(broker.id)
        for broker_id in self._fenced_at.keys() - after.brokers.keys():
            del self._fenced_at[broker_id]

    def list_ids(self) -> tuple[int, ...]:
        """The brokers that were fenced within the last LISTED_S, by id."""
        if not self._fenced_at:
            return ()  # nearly always
        since = self._now() - LISTED_S
        self._fenced_at = {broker_id: at for broker_id, at in self._fenced_at.items() if at > since}
        return tuple(sorted(self._fenced_at))
