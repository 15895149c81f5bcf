"""A rebalance of one large classic group: how long it takes, and the broker's CPU for it.

Each member has a connection of its own. A rebalance begins with the leader's JoinGroup and ends when the last member
has its assignment: all members join, the leader gets the list of members and assigns, all members sync. One member
sends heartbeats until the rebalance has begun, then all others join at once, without waiting for a heartbeat of their
own: what is measured is the broker, not the heartbeat interval of its clients.
"""

from collections.abc import Sequence

from benchmarks.coordinators.failure import BenchmarkFailure
from benchmarks.coordinators.rebalances import make_values
from benchmarks.coordinators.size import Size
from benchmarks.loads.request_client import RequestClient, connect_many
from benchmarks.loads.small_requests import raise_file_limit
from benchmarks.peers.broker_process import BrokerProcess
from benchmarks.report import Row
from ottla.errors import ErrorCode
from ottla.wire.messages.consumer_protocol_assignment import ConsumerProtocolAssignment, TopicPartition
from ottla.wire.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.heartbeat import HeartbeatRequest
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from ottla.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from ottla.wire.schema import encode

GROUP, TOPIC = "large", "work"
JOIN_VERSION, SYNC_VERSION, BEAT_VERSION = 9, 5, 4
SETTINGS = {"group.initial.rebalance.delay.ms": "3000"}
TIMEOUT_MS = 60_000
_VERSION_0 = bytes(2)
SUBSCRIPTION = _VERSION_0 + encode(ConsumerProtocolSubscription, 0, ConsumerProtocolSubscription(topics=[TOPIC]))


class Member:
    """One member and its connection. `join` and `sync` send a request; `read_join` and `read_sync` wait for its
    answer."""

    def __init__(self, client: RequestClient) -> None:
        self._client = client
        self._joining = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=TIMEOUT_MS,
            rebalance_timeout_ms=TIMEOUT_MS,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION)],
        )
        self._syncing = SyncGroupRequest(group_id=GROUP, protocol_type="consumer", protocol_name="range")
        self.joined = JoinGroupResponse()
        client.ask_until_accepted(FindCoordinatorRequest(coordinator_keys=[GROUP]), 4)
        while True:
            answer: JoinGroupResponse = client.ask(self._joining, JOIN_VERSION)
            if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                break
        self._joining.member_id = self._syncing.member_id = answer.member_id

    @property
    def is_leader(self) -> bool:
        return bool(self.joined.members)

    def await_rebalance(self) -> None:
        beat = HeartbeatRequest(
            group_id=GROUP, member_id=self._joining.member_id, generation_id=self.joined.generation_id
        )
        while self._client.ask(beat, BEAT_VERSION).error_code != ErrorCode.REBALANCE_IN_PROGRESS:
            pass

    def join(self) -> None:
        self._client.send(self._joining, JOIN_VERSION)

    def read_join(self) -> None:
        self.joined = self._client.receive(self._joining, JOIN_VERSION)
        if self.joined.error_code:
            raise BenchmarkFailure(f"JoinGroup has error {self.joined.error_code}")

    def sync(self) -> None:
        self._syncing.generation_id = self.joined.generation_id
        self._syncing.assignments = [
            SyncGroupRequestAssignment(member_id=each.member_id, assignment=encode_assignment(number))
            for number, each in enumerate(self.joined.members)
        ]
        self._client.send(self._syncing, SYNC_VERSION)

    def read_sync(self) -> None:
        answer: SyncGroupResponse = self._client.receive(self._syncing, SYNC_VERSION)
        if answer.error_code or not answer.assignment:
            raise BenchmarkFailure(f"SyncGroup has error {answer.error_code}")


def encode_assignment(partition: int) -> bytes:
    partitions = [TopicPartition(topic=TOPIC, partitions=[partition])]
    assignment = ConsumerProtocolAssignment(assigned_partitions=partitions)
    return _VERSION_0 + encode(ConsumerProtocolAssignment, 0, assignment)


def form(group: Sequence[Member]) -> None:
    """The first generation. The broker waits for all members for group.initial.rebalance.delay.ms."""
    for member in group:
        member.join()
    complete(group)


def rebalance(group: Sequence[Member]) -> None:
    """`group[0]` is the leader. Only its JoinGroup begins a rebalance: the same request of another member, sent too
    early,
    would be answered with the present generation."""
    leader, *others = group
    leader.join()
    others[0].await_rebalance()
    for member in others:
        member.join()
    complete(group)


def complete(group: Sequence[Member]) -> None:
    for member in group:
        member.read_join()
    if len({member.joined.generation_id for member in group}) != 1:
        raise BenchmarkFailure("the members are in different generations after a rebalance")
    for member in group:
        member.sync()
    for member in group:
        member.read_sync()


def measure(broker: BrokerProcess, size: Size) -> dict[Row, float]:
    raise_file_limit(size.members + 100)
    with connect_many(broker, size.members) as clients:
        group = [Member(client) for client in clients]
        form(group)
        group.sort(key=lambda member: not member.is_leader)
        return make_values(broker, "classic", size, lambda: rebalance(group))
