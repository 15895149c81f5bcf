"""The steps of a rebalance of a consumer group: a changed subscription raises the group's epoch, a new epoch needs a
new target assignment, and members move towards their targets.

Each step adds its records to a `GroupChange`, whose state the next step sees.
"""

from collections import Counter
from functools import partial
from typing import Final, NamedTuple

from ottla.coordinators.consumer.assignors import ASSIGNORS, Assignor, Partitions, Subscriber
from ottla.coordinators.consumer.members import Member, MemberState
from ottla.coordinators.consumer.reconciliation import Goal, reconcile
from ottla.coordinators.consumer.regular_expressions import check_pattern
from ottla.coordinators.consumer.state import GroupChange, GroupState
from ottla.coordinators.consumer.topic_hashes import TopicHashes
from ottla.coordinators.consumer.topic_searches import TopicSearch, TopicSearches, store_resolutions
from ottla.coordinators.groups.sessions import Sessions
from ottla.coordinators.machine import Sight, Turn

DEFAULT_ASSIGNOR: Final = "uniform"


class SubscriptionChange(NamedTuple):
    """The result of storing a member's subscription."""

    is_changed: bool
    search: TopicSearch | None = None
    """A search to be run as an errand, to find the topics that a pattern matches."""


class ConsumerRebalance:
    """The steps, and the deadlines by which members have to give up partitions."""

    __slots__ = ("_hashes", "_moving_since_ms", "_seen", "revocations", "searches")

    def __init__(self) -> None:
        self.revocations = Sessions()
        """The deadlines by which members have to give up the partitions that they lose."""
        self.searches = TopicSearches()
        self._hashes = TopicHashes()
        self._seen: tuple[object, object] | None = None
        self._moving_since_ms: int | None = None
        """When the rebalance began that not all members have finished yet."""

    def subscribe(
        self, change: GroupChange, before: Member, member: Member, turn: Turn, sight: Sight | None = None
    ) -> SubscriptionChange:
        """Store a member's subscription, and raise the group's epoch if it changes what the group reads. Patterns are
        matched with the topics that the member's client can see."""
        pattern_changed = before.topic_pattern != member.topic_pattern
        if pattern_changed and member.topic_pattern and member.topic_pattern not in change.state.patterns:
            check_pattern(member.topic_pattern)
        if member != before:
            change.store(member.metadata_record(change.state.id))
        names_changed = before.topic_names != member.topic_names
        bump = names_changed
        if pattern_changed:
            bump |= not member.topic_pattern or member.topic_pattern in change.state.resolutions
            if before.topic_pattern in change.state.resolutions and before.topic_pattern not in change.state.patterns:
                change.store(change.state.resolution_record(before.topic_pattern, None))
        search = self.searches.find_due(change, turn, sight)
        if search is not None:
            change.effects.append(partial(self.searches.begin, search, turn))
            if search.is_short:
                bump |= store_resolutions(change, search.run())
                search = None
        self.raise_epoch(change, turn, bump)
        return SubscriptionChange(names_changed or pattern_changed, search)

    def raise_epoch(self, change: GroupChange, turn: Turn, bump: bool) -> None:
        """Raise the group's epoch if `bump` is set, or if a subscribed topic has changed since the last time."""
        seen = (turn.image.topics_by_name, turn.image.brokers)
        if not bump and self._seen is not None and self._seen[0] is seen[0] and self._seen[1] is seen[1]:
            return
        change.effects.append(partial(self._remember_seen, seen))
        state = change.state
        topics = self._hashes.compute(state.subscribed_topics(), turn.image)
        if bump or topics != state.metadata_hash:
            change.store(state.epoch_record(state.epoch + 1, topics))
            change.effects.append(partial(self._count_raised_epoch, bool(state.members), turn))
        if state.has_partition_metadata:
            change.store(state.partition_metadata_tombstone())

    def _count_raised_epoch(self, moves: bool, turn: Turn) -> None:
        turn.meters.groups.epochs_raised += 1
        if not moves:
            self._moving_since_ms = None  # no member is left
        elif self._moving_since_ms is None:
            self._moving_since_ms = turn.monotonic_ms

    def _count_rebalance(self, turn: Turn) -> None:
        if self._moving_since_ms is not None:
            turn.meters.groups.consumer_rebalances.count_duration((turn.monotonic_ms - self._moving_since_ms) / 1000)
            self._moving_since_ms = None

    def _remember_seen(self, seen: tuple[object, object]) -> None:
        self._seen = seen

    def assign(self, change: GroupChange, turn: Turn) -> None:
        """Compute the target assignment if it is older than the group's epoch, but not more often than configured."""
        state = change.state
        if state.target_epoch >= state.epoch or not _may_assign(state, turn):
            return
        subscribers = _build_subscribers(state, turn)
        topics = frozenset[bytes]().union(*{subscriber.topics for subscriber in subscribers.values()})
        sizes = {id: len(topic.partitions) for id in topics if (topic := turn.image.topic_by_id(id)) is not None}
        targets = _find_assignor(state, turn)(subscribers, sizes)
        for member in state.members_by_id():
            if state.targets.get(member.id) != targets[member.id]:
                change.store(member.target_record(state.id, targets[member.id]))
        change.store(state.target_epoch_record(state.epoch, turn.wall_ms))

    def reconcile(
        self, change: GroupChange, member_id: str, owned: Partitions | None, subscription_changed: bool, turn: Turn
    ) -> Member:
        """Move the member one step towards its target."""
        state = change.state
        member = state.members[member_id]
        if not subscription_changed and member.is_reconciled_to(state.target_epoch):
            return member
        subscribed = state.topic_ids(member, turn.image)
        goal = Goal(state.target_epoch, state.target(member_id), subscribed, state.owners)
        moved = reconcile(member, goal, owned, subscription_changed)
        if moved != member:
            change.store(moved.current_assignment_record(state.id))
            change.effects.append(partial(self.watch_revocation, moved, turn))
            if change.state.is_settled:
                change.effects.append(partial(self._count_rebalance, turn))
        return moved

    def watch_revocation(self, member: Member, turn: Turn) -> None:
        """Set or end the deadline by which the member has to give up partitions. Members of the classic protocol have a
        deadline to join again instead."""
        if member.state is MemberState.UNREVOKED_PARTITIONS and member.classic is None:
            self.revocations.renew(member.id, turn.monotonic_ms + member.rebalance_timeout_ms)
        else:
            self.revocations.end(member.id)


def choose_assignor(state: GroupState, turn: Turn) -> str:
    """The assignor that most members ask for. In a tie, or if no member asks for one, the broker's settings decide: the
    first of them wins."""
    offered = [name for name in turn.config.group_consumer_assignors if name in ASSIGNORS] or [DEFAULT_ASSIGNOR]
    votes = Counter(member.assignor for member in state.members.values())
    return max(offered, key=lambda name: votes[name])


def _find_assignor(state: GroupState, turn: Turn) -> Assignor:
    return ASSIGNORS[choose_assignor(state, turn)]


def _may_assign(state: GroupState, turn: Turn) -> bool:
    """Whether consumer.assignment.interval.ms has passed since the last assignment, or the clock was set back."""
    interval_ms = turn.find_group_setting(state.id, "consumer.assignment.interval.ms")
    return state.assigned_ms == 0 or not 0 <= turn.wall_ms - state.assigned_ms < interval_ms


def _build_subscribers(state: GroupState, turn: Turn) -> dict[str, Subscriber]:
    """The members for the assignor. Equal subscriptions, as most are, are resolved to topics once."""
    topics: dict[tuple[frozenset[str], str], frozenset[bytes]] = {}
    found: dict[str, Subscriber] = {}
    for id, member in state.members.items():
        subscription = (member.topic_names, member.topic_pattern)
        if subscription not in topics:
            topics[subscription] = state.topic_ids(member, turn.image)
        found[id] = Subscriber(topics[subscription], state.target(id), member.instance_id)
    return found
