"""Time for all members of one large consumer group (KIP-848) to come to another assignment, beside Apache Kafka.

    python -m benchmarks.coordinators.consumer_rebalance [--members 1000] [--rounds 5] [--without-kafka]

Each member has a connection of its own. A round begins when one member leaves and joins again, and ends when the group
is stable: everybody's share was computed anew, given back, and got. Real members would hear of it with a heartbeat
every five seconds; here each sends the next one as soon as all have their answers: what is measured is the broker.
"""

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from benchmarks.coordinators.classic_rebalance import Measured, WrongAnswer, compare, repeat
from benchmarks.coordinators.commits import Client, connected
from benchmarks.loads.small_requests import allow_files
from benchmarks.peers.broker_process import BrokerProcess
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
"""Heartbeats of everybody within which a group must have come to rest."""


class Member:
    def __init__(self, client: Client, number: int) -> None:
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
            raise WrongAnswer(f"ConsumerGroupHeartbeat has error {answer.error_code}: {answer.error_message}")
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


@contextmanager
def members(broker: BrokerProcess, count: int) -> Iterator[list[Member]]:
    allow_files(count + 100)
    clients = [Client(broker) for _ in range(count)]
    try:
        yield [Member(client, number) for number, client in enumerate(clients)]
    finally:
        for client in clients:
            client.close()


def settle(group: Sequence[Member], admin: Client) -> None:
    """Everybody speaks until everybody has what it is to have."""
    for _ in range(ROUNDS_MAX):
        for member in group:
            member.beat()
        for member in group:
            member.read()
        if state_of_group(admin) == "Stable":
            return
    raise WrongAnswer(f"the group is not stable after {ROUNDS_MAX} heartbeats of everybody")


def state_of_group(admin: Client) -> str:
    """`Dead` before there is a group; empty while nobody coordinates it."""
    (group,) = admin.ask(ConsumerGroupDescribeRequest(group_ids=[GROUP]), VERSION).groups
    state: str = group.group_state
    return "Dead" if group.error_code == ErrorCode.GROUP_ID_NOT_FOUND else state


def rebalance(group: Sequence[Member], admin: Client) -> None:
    group[0].leave()
    settle(group, admin)


def measure(broker: BrokerProcess, count: int, rounds: int) -> Measured:
    with broker, connected(broker) as admin, members(broker, count) as group:
        topic = CreatableTopic(name=TOPIC, num_partitions=count * PARTITIONS_PER_MEMBER, replication_factor=1)
        admin.ask_until_fine(CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS), 7)
        admin.ask_until_fine(FindCoordinatorRequest(coordinator_keys=[GROUP]), 4)
        while state_of_group(admin) == "":
            time.sleep(0.01)
        settle(group, admin)
        return repeat(broker, lambda: rebalance(group, admin), rounds)


def main(arguments: Sequence[str] | None = None) -> int:
    return compare(__doc__ or "", SETTINGS, measure, arguments)


if __name__ == "__main__":
    sys.exit(main())
