"""Committed offsets per second, and the time to load many groups after a restart.

Each group has one committed offset. Groups are loaded when ListGroups names every one of them. The time counts from the
first answer of the restarted broker, and in another row from the start of its process.
"""

import time

from benchmarks.coordinators.failure import BenchmarkFailure
from benchmarks.coordinators.size import Size
from benchmarks.loads.request_client import PATIENCE_SECONDS, RETRY_SECONDS, connect
from benchmarks.loads.small_requests import Frame, find_errors, run_requests
from benchmarks.peers.broker_process import HOST, BrokerProcess
from benchmarks.report import Row
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.list_groups import ListGroupsRequest
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

SETTINGS: dict[str, str] = {}
TOPIC = "committed"
COMMITTERS = 50
CONNECTIONS = 8
IN_FLIGHT = 100
COMMIT_VERSION = 8


def measure(broker: BrokerProcess, size: Size) -> dict[Row, float]:
    prepare(broker)
    measure_commits(broker, size.commit_seconds / 2)  # warms the broker up
    per_second, microseconds = measure_commits(broker, size.commit_seconds)
    create_groups(broker, size.groups)
    loaded, restarted = measure_restart(broker, size.groups + COMMITTERS)
    groups = f"load of {size.groups:,} groups"
    return {
        Row("offset commits", "1/s", more_is_better=True): per_second,
        Row("offset commits: broker CPU", "us each", more_is_better=False): microseconds,
        Row(f"{groups}, after the first answer", "s", more_is_better=False): loaded,
        Row(f"{groups}, after the start of the process", "s", more_is_better=False): restarted,
    }


def build_commit(group: str, offset: int) -> OffsetCommitRequest:
    partition = OffsetCommitRequestPartition(committed_offset=offset, committed_metadata="")
    return OffsetCommitRequest(group_id=group, topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=[partition])])


def prepare(broker: BrokerProcess) -> None:
    """Create the topic, and a group for each committer."""
    with connect(broker) as client:
        client.ask(CreateTopicsRequest(topics=[CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1)]), 5)
        for number in range(COMMITTERS):
            group = f"committer-{number:02}"
            client.ask_until_accepted(FindCoordinatorRequest(coordinator_keys=[group]), 4)
            client.ask_until_accepted(build_commit(group, 1), COMMIT_VERSION)


def measure_commits(broker: BrokerProcess, seconds: float) -> tuple[float, float]:
    """Commits per second, and the CPU microseconds of the broker for each."""
    kinds = [Frame(build_commit(f"committer-{number:02}", 7), COMMIT_VERSION) for number in range(COMMITTERS)]
    done = run_requests((HOST, broker.port), kinds, CONNECTIONS, seconds, broker.process_id)
    return done.requests / done.seconds, done.broker_cpu_seconds / done.requests * 1e6


def create_groups(broker: BrokerProcess, count: int) -> None:
    with connect(broker) as client:
        requests = [build_commit(f"group-{number:06}", number) for number in range(count)]
        for start in range(0, count, IN_FLIGHT):
            window = requests[start : start + IN_FLIGHT]
            for request in window:
                client.send(request, COMMIT_VERSION)
            for request in window:
                if errors := find_errors(client.receive(request, COMMIT_VERSION)):
                    raise BenchmarkFailure(f"a commit of {broker.name} has error {errors[0]}")


def measure_restart(broker: BrokerProcess, groups: int) -> tuple[float, float]:
    """Seconds until all groups are loaded, after the first answer of the broker and after the start of its process."""
    BrokerProcess.stop(broker)  # not the method of the subclass, which would remove the data directory
    began = time.monotonic()
    broker.start()
    answered = time.monotonic()
    with connect(broker) as client:
        while True:
            listed = client.ask(ListGroupsRequest(), 3)
            if not listed.error_code and len(listed.groups) >= groups:
                break
            if time.monotonic() - answered > PATIENCE_SECONDS:
                raise BenchmarkFailure(f"{len(listed.groups)} of {groups} groups after {PATIENCE_SECONDS:g} s")
            time.sleep(RETRY_SECONDS)
    return time.monotonic() - answered, time.monotonic() - began
