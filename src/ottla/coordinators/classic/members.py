"""The members of a classic group, their leader, and the protocols that they have in common."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from ottla.coordinators.formats import MemberMetadata
from ottla.coordinators.machine import Ticket
from ottla.wire.messages.describe_groups import DescribedGroupMember
from ottla.wire.messages.join_group import JoinGroupRequestProtocol, JoinGroupResponseMember

Protocols = tuple[tuple[str, bytes], ...]
"""The protocols that a member offers, best first, each with its metadata. For a consumer: assignors, subscriptions."""


def read_protocols(offered: Iterable[JoinGroupRequestProtocol]) -> Protocols:
    return tuple((protocol.name, protocol.metadata) for protocol in offered)


@dataclass(slots=True, eq=False)
class Member:
    id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    joining: Ticket | None = None
    """The ticket of a JoinGroup that waits for its reply."""
    syncing: Ticket | None = None
    """The ticket of a SyncGroup that waits for its reply."""
    is_new: bool = False
    """The member has not been in a generation yet. It may not know its id, so it cannot send heartbeats."""

    @property
    def is_waiting(self) -> bool:
        return self.joining is not None or self.syncing is not None

    def metadata(self, protocol: str | None) -> bytes:
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")

    def vote(self, candidates: Collection[str]) -> str | None:
        return next((name for name, _ in self.protocols if name in candidates), None)

    def build_record(self, protocol: str | None, assignment: bytes) -> MemberMetadata:
        return MemberMetadata(
            member_id=self.id,
            group_instance_id=self.instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout=self.rebalance_timeout_ms,
            session_timeout=self.session_timeout_ms,
            subscription=self.metadata(protocol),
            assignment=assignment,
        )

    def restore(self, stored: MemberMetadata) -> None:
        """Take the values of a stored member, except for the protocols, which the roster counts."""
        self.assignment = stored.assignment
        self.client_id, self.client_host = stored.client_id, stored.client_host
        self.session_timeout_ms = stored.session_timeout
        self.rebalance_timeout_ms = choose_rebalance_timeout_ms(stored.rebalance_timeout, stored.session_timeout)

    def describe(self, protocol: str | None) -> DescribedGroupMember:
        return DescribedGroupMember(
            member_id=self.id,
            group_instance_id=self.instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            member_metadata=self.metadata(protocol),
            member_assignment=self.assignment,
        )


def choose_rebalance_timeout_ms(given_ms: int, session_timeout_ms: int) -> int:
    """Old clients and old records have no rebalance time-out; they use their session time-out."""
    return session_timeout_ms if given_ms < 0 else given_ms


def restore_member(stored: MemberMetadata, protocol: str | None) -> Member:
    return Member(
        stored.member_id,
        stored.group_instance_id,
        stored.client_id,
        stored.client_host,
        stored.session_timeout,
        choose_rebalance_timeout_ms(stored.rebalance_timeout, stored.session_timeout),
        ((protocol, stored.subscription),) if protocol is not None else (),
        stored.assignment,
    )


class Roster:
    """The members of a group, with counters, so that a join or a leave need not look at every member."""

    __slots__ = ("_by_id", "_by_instance", "_joining", "_supporters", "changes", "leader", "pending")

    def __init__(self) -> None:
        self._by_id: dict[str, Member] = {}
        self._by_instance: dict[str, Member] = {}
        self._supporters: Counter[str] = Counter()
        self._joining = 0
        self.changes = 0
        """Counts changes of the members and their protocols. Values derived from them are valid until it changes."""
        self.leader: Member | None = None
        self.pending: dict[str, None] = {}
        """Member ids that were given out and not used yet."""

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Member]:
        return iter(self._by_id.values())

    def __contains__(self, member_id: str) -> bool:
        return member_id in self._by_id

    def get(self, member_id: str) -> Member | None:
        return self._by_id.get(member_id)

    def find_instance(self, instance_id: str) -> Member | None:
        return self._by_instance.get(instance_id)

    @property
    def joining_count(self) -> int:
        return self._joining

    @property
    def has_all_joined(self) -> bool:
        return self._joining == len(self._by_id) and not self.pending

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance time-out of all members."""
        return max((member.rebalance_timeout_ms for member in self), default=0)

    # --- membership ---

    def add(self, member: Member) -> None:
        self.pending.pop(member.id, None)
        self._by_id[member.id] = member
        if member.instance_id is not None:
            self._by_instance[member.instance_id] = member
        self._count_protocols(member, 1)
        self._joining += member.joining is not None
        if self.leader is None:
            self.leader = member

    def remove(self, member: Member) -> None:
        del self._by_id[member.id]
        if member.instance_id is not None:
            self._by_instance.pop(member.instance_id, None)
        self._count_protocols(member, -1)
        self._joining -= member.joining is not None
        if self.leader is member:
            self.leader = next(iter(self), None)

    def rename(self, member: Member, new_id: str) -> None:
        """Give a static member that was restarted a new id. It moves to the end of the order."""
        del self._by_id[member.id]
        member.id = new_id
        self._by_id[new_id] = member

    # --- joining ---

    def wait_to_join(self, member: Member, ticket: Ticket) -> Ticket | None:
        """Keep the ticket of a JoinGroup. Returns the ticket that it replaces, if the member has sent one before."""
        before, member.joining = member.joining, ticket
        self._joining += before is None
        return before

    def stop_joining(self, member: Member) -> Ticket | None:
        """Remove and return the ticket of the member's JoinGroup, if there is one."""
        ticket, member.joining = member.joining, None
        self._joining -= ticket is not None
        return ticket

    def elect(self) -> bool:
        """Make sure that the leader has joined. Returns False if no member has."""
        if self.leader is None or self.leader.joining is None:
            joined = next((member for member in self if member.joining is not None), None)
            if joined is None:
                return False
            self.leader = joined
        return True

    # --- protocols ---

    def offer(self, member: Member, protocols: Protocols) -> None:
        self._count_protocols(member, -1)
        member.protocols = protocols
        self._count_protocols(member, 1)

    def restore(self, stored: Iterable[MemberMetadata], protocol: str | None, leader_id: str | None) -> None:
        """Take the members of a stored generation. Members that are connected keep the protocols that were not chosen:
        the log has only the chosen one."""
        by_id = {each.member_id: each for each in stored}
        for member in [member for member in self if member.id not in by_id]:
            self.remove(member)
        for member_id, each in by_id.items():
            known = self._by_id.get(member_id)
            if known is None:
                self.add(restore_member(each, protocol))
                continue
            known.restore(each)
            if protocol is not None and known.metadata(protocol) != each.subscription:
                self.offer(known, ((protocol, each.subscription),))
        self.leader = self._by_id.get(leader_id or "")

    def _count_protocols(self, member: Member, by: int) -> None:
        self.changes += 1
        for name in dict.fromkeys(name for name, _ in member.protocols):
            self._supporters[name] += by
            if not self._supporters[name]:
                del self._supporters[name]

    def supports(self, names: Iterable[str]) -> bool:
        """Whether every member has one of these protocols."""
        return any(self._supporters[name] == len(self._by_id) for name in names)

    def choose_protocol(self) -> str | None:
        """Choose the protocol that most members prefer among those that all members have. In a tie the first by name
        wins."""
        candidates = {name for name, count in self._supporters.items() if count == len(self._by_id)}
        votes = Counter(member.vote(candidates) for member in self)
        return max(sorted(name for name in votes if name is not None), key=votes.__getitem__, default=None)

    def list_members(self, protocol: str | None) -> list[JoinGroupResponseMember]:
        """The members as the leader gets them, to assign partitions."""
        return [
            JoinGroupResponseMember(
                member_id=member.id, group_instance_id=member.instance_id, metadata=member.metadata(protocol)
            )
            for member in self
        ]
