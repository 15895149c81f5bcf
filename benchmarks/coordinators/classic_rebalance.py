"""Time for all members of one large classic group to rebalance, beside Apache Kafka in one run.

    python -m benchmarks.coordinators.classic_rebalance [--members 1000] [--rounds 5] [--without-kafka]

Each member has a connection of its own. A round begins with the leader's JoinGroup and ends when the last member has
its assignment: everybody joins, the leader is told of everybody and assigns, everybody syncs. One heartbeat after the
other asks whether the rebalance has begun, and then all others join at once, not with a heartbeat of their own: what is
measured is the broker, and not the clients' patience.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from benchmarks.coordinators.commits import Client, connected
from benchmarks.loads.small_requests import allow_files
from benchmarks.peers.apache_kafka import ApacheKafka, Unavailable
from benchmarks.peers.broker_process import HOST, BrokerProcess, usage_of
from benchmarks.peers.ottla_broker import OttlaBroker
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


class WrongAnswer(Exception):
    """A member was told something that a rebalance of well-behaved members does not lead to."""


class Measured(NamedTuple):
    name: str
    seconds: list[float]
    broker_cpu_seconds: float
    """Of one rebalance, on average."""


Measure = Callable[[BrokerProcess, int, int], Measured]
"""Of a broker, with so many members, so many rounds."""


class Member:
    def __init__(self, client: Client) -> None:
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
        client.ask_until_fine(FindCoordinatorRequest(coordinator_keys=[GROUP]), 4)
        while True:
            answer: JoinGroupResponse = client.ask(self._joining, JOIN_VERSION)
            if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                break
        self._joining.member_id = self._syncing.member_id = answer.member_id

    @property
    def leads(self) -> bool:
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
            raise WrongAnswer(f"JoinGroup has error {self.joined.error_code}")

    def sync(self) -> None:
        self._syncing.generation_id = self.joined.generation_id
        self._syncing.assignments = [
            SyncGroupRequestAssignment(member_id=each.member_id, assignment=assignment(number))
            for number, each in enumerate(self.joined.members)
        ]
        self._client.send(self._syncing, SYNC_VERSION)

    def read_sync(self) -> None:
        answer: SyncGroupResponse = self._client.receive(self._syncing, SYNC_VERSION)
        if answer.error_code or not answer.assignment:
            raise WrongAnswer(f"SyncGroup has error {answer.error_code}")


def assignment(partition: int) -> bytes:
    partitions = [TopicPartition(topic=TOPIC, partitions=[partition])]
    given = ConsumerProtocolAssignment(assigned_partitions=partitions)
    return _VERSION_0 + encode(ConsumerProtocolAssignment, 0, given)


@contextmanager
def members(broker: BrokerProcess, count: int) -> Iterator[list[Member]]:
    allow_files(count + 100)
    clients = [Client(broker) for _ in range(count)]
    try:
        yield [Member(client) for client in clients]
    finally:
        for client in clients:
            client.close()


def form(group: Sequence[Member]) -> None:
    """For the first time: they are all waited for."""
    for member in group:
        member.join()
    complete(group)


def rebalance(group: Sequence[Member]) -> None:
    """The leader first: its JoinGroup is what begins it. One that comes too early would be told that all is well."""
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
        raise WrongAnswer("not everybody is in one generation")
    for member in group:
        member.sync()
    for member in group:
        member.read_sync()


def measure(broker: BrokerProcess, count: int, rounds: int) -> Measured:
    with broker, connected(broker), members(broker, count) as group:
        form(group)
        group.sort(key=lambda member: not member.leads)
        return repeat(broker, lambda: rebalance(group), rounds)


def repeat(broker: BrokerProcess, rebalance_once: Callable[[], None], rounds: int) -> Measured:
    """What rebalances take of a broker, after one that does not count."""
    rebalance_once()
    seconds = []
    before = usage_of(broker.process_id).cpu_seconds
    for _ in range(rounds):
        began = time.perf_counter()
        rebalance_once()
        seconds.append(time.perf_counter() - began)
    spent = usage_of(broker.process_id).cpu_seconds - before
    return Measured(broker.name, seconds, spent / rounds)


def report(results: Sequence[Measured], count: int) -> str:
    lines = [f"| {count} members on {HOST} | rebalance, s | slowest, s | broker CPU, s |", "|---|---|---|---|"]
    lines += [
        f"| {each.name} | {statistics.median(each.seconds):.2f} | {max(each.seconds):.2f} | "
        f"{each.broker_cpu_seconds:.2f} |"
        for each in results
    ]
    return "\n".join(lines)


def compare(description: str, settings: Mapping[str, str], measured: Measure, arguments: Sequence[str] | None) -> int:
    """What a benchmark of rebalances does when it is called: both brokers, one after the other, and a table."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--members", type=int, default=1000, help="two or more")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--without-kafka", action="store_true")
    options = parser.parse_args(arguments)
    results = [measured(OttlaBroker(settings), options.members, options.rounds)]
    if not options.without_kafka:
        try:
            results.append(measured(ApacheKafka(settings=settings), options.members, options.rounds))
        except Unavailable as missing:
            print(f"without Apache Kafka: {missing}", file=sys.stderr)
    print(report(results, options.members))
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    return compare(__doc__ or "", SETTINGS, measure, arguments)


if __name__ == "__main__":
    sys.exit(main())
