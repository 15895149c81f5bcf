"""Committed offsets per second, and the time to load many groups after a restart, beside Apache Kafka in one run.

    python -m benchmarks.coordinators.commits [--groups 10000] [--seconds 5] [--without-kafka]

Each group has one committed offset. Loaded means that ListGroups names every group: the time is counted from the first
answer of the restarted broker, and, in a second number, from the start of its process.
"""

import argparse
import socket
import struct
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from benchmarks.loads.small_requests import Frame, errors_in, run
from benchmarks.peers.apache_kafka import ApacheKafka, Unavailable
from benchmarks.peers.broker_process import HOST, BrokerProcess
from benchmarks.peers.ottla_broker import OttlaBroker
from ottla.wire import frames as wire
from ottla.wire.message import Message
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.list_groups import ListGroupsRequest
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

TOPIC = "committed"
COMMITTERS = 50
IN_FLIGHT = 100
PATIENCE_S = 60.0
COMMIT_VERSION = 8


class Measured(NamedTuple):
    name: str
    commits_per_second: float
    broker_us_per_commit: float
    loaded_s: float
    restarted_s: float


class Client:
    """One socket; answers in the order of the requests."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._socket = socket.create_connection((HOST, broker.port), timeout=PATIENCE_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = self._socket.makefile("rb")

    def close(self) -> None:
        self._reader.close()
        self._socket.close()

    def send(self, message: Message, version: int) -> None:
        self._socket.sendall(wire.encode_request(message, version, 1, "benchmark"))

    def receive(self, message: Message, version: int) -> Any:
        (size,) = struct.unpack(">i", self._reader.read(4))
        return wire.decode_response(wire.api_of(message).response, version, self._reader.read(size))[1]

    def ask(self, message: Message, version: int) -> Any:
        self.send(message, version)
        return self.receive(message, version)

    def ask_until_fine(self, message: Message, version: int) -> Any:
        """A coordinator that has just been made, or is loading, has to be asked again."""
        end = time.monotonic() + PATIENCE_S
        while errors := errors_in(answer := self.ask(message, version)):
            if time.monotonic() > end:
                raise TimeoutError(f"{type(message).__name__} has error {errors[0]} for {PATIENCE_S:g} s")
            time.sleep(0.002)
        return answer


@contextmanager
def connected(broker: BrokerProcess) -> Iterator[Client]:
    client = Client(broker)
    try:
        yield client
    finally:
        client.close()


def commit_of(group: str, offset: int) -> OffsetCommitRequest:
    partition = OffsetCommitRequestPartition(committed_offset=offset, committed_metadata="")
    return OffsetCommitRequest(group_id=group, topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=[partition])])


def prepare(broker: BrokerProcess) -> None:
    with connected(broker) as client:
        client.ask(CreateTopicsRequest(topics=[CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1)]), 5)
        for number in range(COMMITTERS):
            group = f"committer-{number:02}"
            client.ask_until_fine(FindCoordinatorRequest(coordinator_keys=[group]), 4)
            client.ask_until_fine(commit_of(group, 1), COMMIT_VERSION)


def commits(broker: BrokerProcess, seconds: float, connections: int = 8) -> tuple[float, float]:
    """Per second, and the broker's CPU microseconds for each."""
    kinds = [Frame(commit_of(f"committer-{number:02}", 7), COMMIT_VERSION) for number in range(COMMITTERS)]
    answered = run((HOST, broker.port), kinds, connections, seconds, broker.process_id)
    return answered.requests / answered.seconds, answered.broker_cpu_seconds / answered.requests * 1e6


def make_groups(broker: BrokerProcess, count: int) -> None:
    with connected(broker) as client:
        requests = [commit_of(f"group-{number:06}", number) for number in range(count)]
        for start in range(0, count, IN_FLIGHT):
            window = requests[start : start + IN_FLIGHT]
            for request in window:
                client.send(request, COMMIT_VERSION)
            for request in window:
                if errors := errors_in(client.receive(request, COMMIT_VERSION)):
                    raise RuntimeError(f"a commit has error {errors[0]}")


def reload(broker: BrokerProcess, groups: int) -> tuple[float, float]:
    """Seconds until all groups are there, after the broker's first answer and after its start."""
    BrokerProcess.stop(broker)  # not that of its class, which would remove its directory
    began = time.monotonic()
    broker.start()
    answered = time.monotonic()
    with connected(broker) as client:
        while True:
            listed = client.ask(ListGroupsRequest(), 3)
            if not listed.error_code and len(listed.groups) >= groups:
                break
            if time.monotonic() - answered > PATIENCE_S:
                raise TimeoutError(f"{len(listed.groups)} of {groups} groups after {PATIENCE_S:g} s")
            time.sleep(0.002)
    return time.monotonic() - answered, time.monotonic() - began


def measure(broker: BrokerProcess, groups: int, seconds: float) -> Measured:
    with broker:
        prepare(broker)
        commits(broker, seconds / 2)
        per_second, microseconds = commits(broker, seconds)
        make_groups(broker, groups)
        return Measured(broker.name, per_second, microseconds, *reload(broker, groups + COMMITTERS))


def report(results: Sequence[Measured], groups: int) -> str:
    head = f"| | commits/s | broker us/commit | {groups} groups loaded, s | since its start, s |"
    lines = [head, "|---|---|---|---|---|"]
    lines += [
        f"| {each.name} | {each.commits_per_second:,.0f} | {each.broker_us_per_commit:.0f} | "
        f"{each.loaded_s:.2f} | {each.restarted_s:.2f} |"
        for each in results
    ]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--groups", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--without-kafka", action="store_true")
    options = parser.parse_args(arguments)
    results = [measure(OttlaBroker(), options.groups, options.seconds)]
    if not options.without_kafka:
        try:
            results.append(measure(ApacheKafka(), options.groups, options.seconds))
        except Unavailable as missing:
            print(f"without Apache Kafka: {missing}", file=sys.stderr)
    print(report(results, options.groups))
    return 0


if __name__ == "__main__":
    sys.exit(main())
