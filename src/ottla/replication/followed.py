"""One partition that this broker copies from a leader: what was asked for, how far it is, and whether it waits."""

import asyncio

from ottla.replication.following import next_backoff_s
from ottla.replication.partition import Partition
from ottla.replication.throttles import is_throttled
from ottla.topic_partition import TopicIdPartition
from ottla.wire.fetch import FetchPartition


class Followed:
    """A partition that is copied from a leader, in one leader epoch."""

    __slots__ = (
        "asked",
        "asked_in",
        "backoff_s",
        "fetcher_number",
        "is_paused",
        "is_told",
        "key",
        "leader",
        "leader_epoch",
        "leader_high_watermark",
        "partition",
        "timer",
    )

    def __init__(self, partition: Partition, leader: int, leader_epoch: int, fetcher_number: int) -> None:
        """`fetcher_number`: which of the connections to the leader the partition is copied over."""
        self.partition = partition
        self.key: TopicIdPartition = (partition.topic_id, partition.index)
        self.leader = leader
        self.leader_epoch = leader_epoch
        self.fetcher_number = fetcher_number
        self.asked: FetchPartition | None = None
        """What the leader's session holds for this partition; None if the session does not have it."""
        self.asked_in = 0
        """The number of the request that said so."""
        self.is_paused = False
        """Whether the partition is not asked for now."""
        self.backoff_s = 0.0
        """How long the partition waits, or waited last, after errors; 0 if its last answer was applied."""
        self.is_told = False
        """Whether the log of this broker tells why the partition waits."""
        self.timer: asyncio.TimerHandle | None = None
        """Ends the wait after an error."""
        self.leader_high_watermark = 0

    @property
    def lag(self) -> int:
        return max(self.leader_high_watermark - self.partition.log.end_offset, 0)

    def is_throttled(self, broker_id: int) -> bool:
        """Whether this broker's replica is listed as throttled, and not in sync: producers wait for those that are."""
        partition = self.partition
        state = partition.state
        listed = partition.config.follower_replication_throttled_replicas
        return (
            bool(listed)
            and is_throttled(listed, partition.index, broker_id)
            and (state is None or broker_id not in state.isr)
        )

    def note_success(self) -> None:
        """An answer was applied."""
        self.backoff_s, self.is_told = 0.0, False

    def lengthen_backoff(self, backoff_s_max: float) -> None:
        """After an error: wait twice as long as after the last one."""
        self.backoff_s = next_backoff_s(self.backoff_s, backoff_s_max)

    def pause(self) -> None:
        self.is_paused = True
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
