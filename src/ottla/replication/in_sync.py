"""What the leader of a partition knows about its followers: how far each has copied the log, and who is in sync.

A follower that fetches from offset n has every record below n. The high watermark is the smallest end among the maximal
ISR: the ISR in the metadata, plus every follower that this leader has proposed to add. A proposed addition counts at
once, a proposed removal only when it is in the metadata, so whichever ISR the metadata turns out to have, each of its
members has everything below the high watermark.

The class does no I/O and reads no clock; times are seconds of the event loop's clock.
"""

from collections.abc import Container, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from ottla.cluster.entities import PartitionImage

if TYPE_CHECKING:
    from ottla.replication.partition import Partition

UNKNOWN = -1
NEVER = float("-inf")


class Eligibility(Protocol):
    """What the rest of the broker knows about followers: whether one may join, and how long one may lag."""

    def may_join(self, broker_id: int, broker_epoch: int) -> bool:
        """Whether the broker is registered with this epoch, neither fenced nor about to shut down."""

    @property
    def lag_s_max(self) -> float:
        """Seconds after which a follower that has not caught up is out of sync: replica.lag.time.max.ms."""

    def now(self) -> float:
        """The time of the event loop."""


class IsrProposer(Eligibility, Protocol):
    """Takes proposals for another ISR to the metadata."""

    def add(self, partition: "Partition") -> None:
        """The partition wants another ISR: ask it with `propose_isr`, and say with `settle_isr` when that is over."""

    def note_incomplete(self, partition: "Partition") -> None:
        """A follower of the partition is not in the ISR: ask `wants_other_isr` when its broker may join."""

    def note_full_disk(self, topic_id: bytes, index: int) -> None:
        """The disk of this replica, of a leader or a follower, has no room for its records."""


class Follower:
    """The state of one follower, as its fetches told it."""

    __slots__ = (
        "broker_epoch",
        "caught_up",
        "deletes_removed_before",
        "end_offset",
        "last_fetch",
        "leader_end",
        "log_start_offset",
        "must_fetch",
    )

    def __init__(self, caught_up: float) -> None:
        self.broker_epoch = UNKNOWN
        self.end_offset = UNKNOWN
        self.log_start_offset = UNKNOWN
        self.caught_up = caught_up
        """When the follower last had everything that the leader had at that time."""
        self.last_fetch = NEVER
        self.leader_end = UNKNOWN
        """End of the leader's log at the follower's last fetch."""
        self.must_fetch = False
        """Whether the follower has left the ISR and not fetched since. It may have stopped copying."""
        self.deletes_removed_before = UNKNOWN
        """Up to where the leader's log lacked tombstones when the follower began to copy it from its beginning."""

    def is_caught_up(self, leader_end: int, now: float, lag_s_max: float) -> bool:
        return self.end_offset == leader_end or now - self.caught_up <= lag_s_max


class InSync:
    """The followers of one partition in one leader epoch."""

    __slots__ = ("_counted", "_others", "followers", "leader", "pending", "start_offset", "state")

    def __init__(self, leader: int, state: PartitionImage, start_offset: int, now: float) -> None:
        """`start_offset`: where the leader's epoch begins in its log."""
        self.leader = leader
        self.start_offset = start_offset
        self.state = state
        self.pending: tuple[int, ...] = ()
        """Followers that were proposed for the ISR. Whether the metadata has taken the proposal is not known yet."""
        # A new leader does not know yet how far its followers are: those in the ISR get time to fetch.
        self.followers = {
            broker: Follower(now if broker in state.isr else NEVER) for broker in state.replicas if broker != leader
        }
        self._classify()

    def follow(self, state: PartitionImage, now: float) -> None:
        """The metadata changed within the leader's epoch: other replicas, or another ISR.

        A proposal names the partition epoch that it is based on. So with the next partition epoch its fate is known.
        """
        if state.partition_epoch != self.state.partition_epoch:
            self.pending = ()
        before, self.state = self.state, state
        known = self.followers
        self.followers = {
            broker: known.get(broker) or Follower(NEVER) for broker in state.replicas if broker != self.leader
        }
        for broker, follower in self.followers.items():
            if broker in state.isr and broker not in before.isr:
                follower.caught_up = max(follower.caught_up, now)
            elif broker in before.isr and broker not in state.isr:
                # A follower that left the ISR by itself cannot write now. The high watermark does not wait for it any
                # more, even if it was in sync a moment ago.
                follower.caught_up, follower.leader_end, follower.must_fetch = NEVER, UNKNOWN, True
        self._classify()

    def _classify(self) -> None:
        counted = {*self.state.isr, *self.pending}
        self._counted = [follower for broker, follower in self.followers.items() if broker in counted]
        # A replica whose directory failed cannot join, so nobody waits for it.
        skipped = counted | {*self.state.offline}
        self._others = [(broker, follower) for broker, follower in self.followers.items() if broker not in skipped]

    @property
    def maximal_isr(self) -> tuple[int, ...]:
        """Every broker that is in the ISR, or may be: a proposal to add it is on its way."""
        return (*self.state.isr, *(broker for broker in self.pending if broker not in self.state.isr))

    # Fetches

    def note_fetch(
        self, broker_id: int, broker_epoch: int, offset: int, log_start_offset: int, leader_end: int, now: float
    ) -> bool:
        """A follower fetches from `offset`. Returns False if the fetch comes from an earlier life of its broker."""
        follower = self.followers[broker_id]
        if broker_epoch < follower.broker_epoch:
            return False
        if offset >= leader_end:
            follower.caught_up = max(follower.caught_up, now)
        elif follower.leader_end != UNKNOWN and offset >= follower.leader_end:
            # It now has what the leader had at its last fetch, so at that time it was only a fetch behind.
            follower.caught_up = max(follower.caught_up, follower.last_fetch)
        follower.broker_epoch = broker_epoch
        follower.end_offset = offset
        follower.log_start_offset = log_start_offset
        follower.last_fetch = now
        follower.must_fetch = False
        follower.leader_end = max(follower.leader_end, leader_end)
        return True

    def note_caught_up(self, broker_id: int, fetched: float) -> None:
        """Something happens in the partition. The follower last fetched at the time `fetched`, all partitions at once.

        The leader does not look at every partition in each fetch. If the follower had everything when the leader last
        looked, it had everything at `fetched` too. One that is slow, or whose records the throttle holds back, had not.
        """
        follower = self.followers.get(broker_id)
        if follower is not None and not follower.must_fetch and UNKNOWN != follower.end_offset >= follower.leader_end:
            follower.caught_up = max(follower.caught_up, fetched)
            follower.last_fetch = max(follower.last_fetch, fetched)

    def must_start_anew(self, broker_id: int, offset: int, log_start_offset: int, deletes_removed_before: int) -> bool:
        """Whether a follower at `offset` would keep values whose tombstones the leader has removed.

        `deletes_removed_before`: up to where the leader's log lacks tombstones and markers. A follower that copies the
        log from its beginning does not have the values either. It may go on as long as the leader removes no others,
        and as long as it does not fall behind what it had, as after a power cut.
        """
        if offset >= deletes_removed_before:
            return False
        follower = self.followers[broker_id]
        if offset == log_start_offset:  # it has no records
            follower.deletes_removed_before = deletes_removed_before
            return False
        return follower.deletes_removed_before != deletes_removed_before or offset < follower.end_offset

    def find_committed(self, own_end: int, leader_end: int, eligibility: Eligibility | None) -> int:
        """The smallest end among those that the high watermark waits for; `own_end` is the leader's own.

        A follower that has caught up and may join is waited for before it joins. Otherwise a leader that is alone in
        the ISR would move the high watermark with every record, and a follower could never reach it under load.
        """
        for follower in self._counted:
            if follower.end_offset < own_end:
                own_end = follower.end_offset
        if self._others and eligibility is not None:
            now, lag_s_max = eligibility.now(), eligibility.lag_s_max
            for broker, follower in self._others:
                if (
                    follower.end_offset < own_end
                    and follower.is_caught_up(leader_end, now, lag_s_max)
                    and eligibility.may_join(broker, follower.broker_epoch)
                ):
                    own_end = follower.end_offset
        return own_end

    def low_watermark(self, own_start: int, alive: Container[int]) -> int:
        """The smallest log start of the leader and of those followers that are `alive`."""
        starts = (follower.log_start_offset for broker, follower in self.followers.items() if broker in alive)
        return min((own_start, *starts))

    # The ISR

    def can_join(self, broker_id: int, high_watermark: int, eligibility: Eligibility) -> bool:
        """Whether a follower outside the ISR may be proposed for it.

        It needs everything that is committed, and everything below the leader's epoch: up to there the leader's own
        high watermark may still lag behind what the previous leader committed. One that left the ISR has to fetch
        first: with too few in sync the high watermark stands still, and one that copies nothing would seem to have it.
        """
        follower = self.followers[broker_id]
        return (
            broker_id not in self.state.isr
            and broker_id not in self.state.offline
            and not follower.must_fetch
            and follower.end_offset >= high_watermark
            and follower.end_offset >= self.start_offset
            and eligibility.may_join(broker_id, follower.broker_epoch)
        )

    def has_joining(self, high_watermark: int, eligibility: Eligibility) -> bool:
        """Whether a follower can join that was not proposed yet."""
        return any(self.can_join(broker_id, high_watermark, eligibility) for broker_id, _ in self._others)

    def list_lagging(self, leader_end: int, now: float, lag_s_max: float) -> Iterator[int]:
        """Members of the ISR that have not caught up for too long."""
        for broker in self.state.isr:
            follower = self.followers.get(broker)
            if follower is not None and not follower.is_caught_up(leader_end, now, lag_s_max):
                yield broker

    def choose_isr(self, high_watermark: int, leader_end: int, eligibility: Eligibility) -> tuple[int, ...]:
        """The ISR that the leader wants: without followers that lag, with those that can join. In replica order."""
        lagging = tuple(self.list_lagging(leader_end, eligibility.now(), eligibility.lag_s_max))
        return tuple(
            broker
            for broker in self.state.replicas
            if broker == self.leader
            or (broker in self.state.isr and broker not in lagging)
            or (broker in self.followers and self.can_join(broker, high_watermark, eligibility))
        )

    def begin_proposal(self, isr: Sequence[int]) -> None:
        """`isr` is being proposed. Its new members count from now on."""
        added = (broker for broker in isr if broker not in self.state.isr and broker not in self.pending)
        self.pending = (*self.pending, *added)
        self._classify()

    def end_proposal(self) -> None:
        """No proposal is on its way any more: the ISR is the one in the metadata."""
        if self.pending:
            self.pending = ()
            self._classify()
