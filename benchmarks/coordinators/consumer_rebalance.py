"""A rebalance of one large consumer group (KIP-848): how long it takes, and the broker's CPU for it.

Each member has a connection of its own. A rebalance begins when one member leaves and joins again, and ends when the
group is stable: the broker has computed a new assignment, and every member has given back and got its partitions. Real
members would hear of it with a heartbeat every five seconds; here they send the next heartbeat as soon as all have
their answers: what is measured is the broker.
"""

import time
from collections.abc import Sequence

from benchmarks.coordinators.failure import BenchmarkFailure
from benchmarks.coordinators.rebalances import make_values
from benchmarks.coordinators.size import Size
from benchmarks.loads.request_client import RequestClient, connect, connect_many
from benchmarks.loads.small_requests import raise_file_limit
from benchmarks.peers.broker_process import BrokerProcess
from benchmarks.report import Row
from ottla.errors import ErrorCode
from ottla.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from ottla.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
    ConsumerGroupHeartbeatResponse,
)
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest

GROUP, TOPIC = "large", "work"
PARTITIONS_PER_MEMBER = 1
VERSION = 1
LEAVING = -1
SETTINGS = {"group.consumer.assignment.interval.ms": "0"}
TIMEOUT_MS = 60_000
ROUNDS_MAX = 50
"""The group must be stable after so many heartbeats of every member."""


class Member:
    """One member and its connection. `beat` sends a heartbeat, `read` waits for its answer."""

    def __init__(self, client: RequestClient, number: int) -> None:
        self._client = client
        self._id = f"member-{number}"
        self._epoch = 0
        self._owned: list[ConsumerGroupHeartbeatRequestTopicPartitions] = []

    def beat(self) -> None:
        joining = self._epoch == 0
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=self._id,
            member_epoch=self._epoch,
            rebalance_timeout_ms=TIMEOUT_MS if joining else -1,
            subscribed_topic_names=[TOPIC] if joining else None,
            topic_partitions=self._owned,
        )
        self._client.send(request, VERSION)

    def read(self) -> None:
        answer: ConsumerGroupHeartbeatResponse = self._client.receive(ConsumerGroupHeartbeatRequest(), VERSION)
        if answer.error_code:
            raise BenchmarkFailure(f"ConsumerGroupHeartbeat has error {answer.error_code}: {answer.error_message}")
        self._epoch = answer.member_epoch
        if answer.assignment is not None:
            self._owned = [
                ConsumerGroupHeartbeatRequestTopicPartitions(topic_id=row.topic_id, partitions=row.partitions)
                for row in answer.assignment.topic_partitions
            ]

    def leave(self) -> None:
        self._epoch = LEAVING
        self.beat()
        self.read()
        self._epoch, self._owned = 0, []


def settle(group: Sequence[Member], admin: RequestClient) -> None:
    """Send heartbeats of all members until the group is stable."""
    for _ in range(ROUNDS_MAX):
        for member in group:
            member.beat()
        for member in group:
            member.read()
        if read_group_state(admin) == "Stable":
            return
    raise BenchmarkFailure(f"the group is not stable after {ROUNDS_MAX} heartbeats of every member")


def read_group_state(admin: RequestClient) -> str:
    """The state in ConsumerGroupDescribe: `Dead` before there is a group, empty while its coordinator is not ready."""
    (group,) = admin.ask(ConsumerGroupDescribeRequest(group_ids=[GROUP]), VERSION).groups
    state: str = group.group_state
    return "Dead" if group.error_code == ErrorCode.GROUP_ID_NOT_FOUND else state


def rebalance(group: Sequence[Member], admin: RequestClient) -> None:
    """One member leaves and joins again, and the group becomes stable."""
    group[0].leave()
    settle(group, admin)


def measure(broker: BrokerProcess, size: Size) -> dict[Row, float]:
    raise_file_limit(size.members + 100)
    with connect(broker) as admin, connect_many(broker, size.members) as clients:
        topic = CreatableTopic(name=TOPIC, num_partitions=size.members * PARTITIONS_PER_MEMBER, replication_factor=1)
        admin.ask_until_accepted(CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS), 7)
        admin.ask_until_accepted(FindCoordinatorRequest(coordinator_keys=[GROUP]), 4)
        while read_group_state(admin) == "":
            time.sleep(0.01)
        group = [Member(client, number) for number, client in enumerate(clients)]
        settle(group, admin)
        return make_values(broker, "consumer", size, lambda: rebalance(group, admin))
