"""Workers with runs that move nothing, against a real broker: two of a group, and one that is alone."""

import time
from collections.abc import Callable, Iterator
from typing import Self

import pytest

from ottla.client.client import Client
from ottla.connect.errors import ConnectError
from ottla.connect.worker import membership
from ottla.connect.worker.herder import AlreadyExists, BadRequest, ConnectorOffset, Forbidden, NotFound, TaskId
from ottla.connect.worker.herding import WorkerHerder
from ottla.connect.worker.membership import PROTOCOL, PROTOCOL_TYPE
from ottla.connect.worker.runs import RunStatus, State, TargetState, TaskState
from ottla.connect.worker.starting import make_distributed_herder, make_standalone_herder
from ottla.errors import ErrorCode
from ottla.testing import LocalBroker, broker
from ottla.topic_partition import TopicPartition
from ottla.wire.messages.describe_groups import DescribeGroupsRequest
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from ottla.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.patience import PATIENCE_S
from tests.unit.connect.worker.fakes import SINK, SOURCE, FakePlugins, FakeRuns, FakeSink

GROUP = "workers"


def wait_until(is_done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_done():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def find_state(herder: WorkerHerder, name: str) -> State | None:
    try:
        status = herder.get_status(name)
    except NotFound:
        return None
    return status.tasks[0].state if status.tasks else status.connector.state


def count_tasks(herder: WorkerHerder, name: str) -> int:
    """How many tasks have a status, as this worker has heard."""
    try:
        return len(herder.get_status(name).tasks)
    except NotFound:
        return 0


class Workers:
    """Workers of one group, and what runs on each of them."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.herders: list[WorkerHerder] = []
        self.runs: list[FakeRuns] = []

    def add(self, **settings: str) -> WorkerHerder:
        herder = self.start(**settings)
        wait_until(lambda: herder.get_health().status == "healthy")
        return herder

    def start(self, **settings: str) -> WorkerHerder:
        properties = {
            "bootstrap.servers": self.bootstrap,
            "group.id": GROUP,
            "config.storage.topic": "connect-configs",
            "offset.storage.topic": "connect-offsets",
            "offset.storage.partitions": "2",
            "status.storage.topic": "connect-status",
            "status.storage.partitions": "2",
            "heartbeat.interval.ms": "50",
            "session.timeout.ms": str(PATIENCE_S * 1000),
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
        runs = FakeRuns()
        herder = make_distributed_herder(properties, f"worker-{len(self.herders)}:8083", FakePlugins(), runs)
        herder.start()
        self.herders.append(herder)
        self.runs.append(runs)
        return herder

    def remove(self, number: int) -> None:
        self.runs.pop(number)
        self.herders.pop(number).close()

    def close(self) -> None:
        for herder in self.herders:
            herder.close()

    def wait_for(self, *counts: int) -> None:
        """Until so many connectors run on each worker."""
        wait_until(lambda: tuple(len(runs.running) for runs in self.runs) == counts)


@pytest.fixture(scope="module")
def long_sessions() -> Iterator[LocalBroker]:
    with broker(group_max_session_timeout_ms=PATIENCE_S * 1000) as found:
        yield found


@pytest.fixture
def workers(long_sessions: LocalBroker) -> Iterator[Workers]:
    found = Workers(long_sessions.bootstrap)
    yield found
    for name in found.herders[0].list_connectors() if found.herders else []:
        found.herders[0].delete_connector(name)
    found.close()


def test_connectors_are_shared_and_handed_over(workers: Workers) -> None:
    """Created at one worker, seen at the other, balanced between them, and all on the last one."""
    first = workers.add()
    for number in range(6):
        first.create_connector(f"c{number}", SOURCE)
    workers.wait_for(6)
    stayed = [*workers.runs[0].made]
    second = workers.add()
    workers.wait_for(3, 3)
    assert not workers.runs[0].running & workers.runs[1].running
    assert [run.calls for run in stayed if run.is_running] == [["start"]] * 3
    for name in workers.runs[1].running:
        wait_until(lambda name=name: find_state(first, name) is State.RUNNING)  # type: ignore[misc]
        wait_until(lambda name=name: first.get_status(name).connector.worker_id == "worker-1:8083")  # type: ignore[misc]
    second.create_connector("c6", SOURCE)
    wait_until(lambda: sum(len(runs.running) for runs in workers.runs) == 7)
    workers.remove(0)
    workers.wait_for(7)
    assert second.list_connectors() == [f"c{number}" for number in range(7)]


def test_a_worker_that_the_group_has_removed_stops_its_runs_before_it_joins_again(workers: Workers) -> None:
    herder = workers.add()
    herder.create_connector("a", SOURCE)
    workers.wait_for(1)
    first = workers.runs[0].find("a")
    first.ends_when_asked = False
    client = Client({"bootstrap.servers": workers.bootstrap})

    def list_members() -> list[str]:
        answer = client.ask_coordinator("group", GROUP, DescribeGroupsRequest(groups=[GROUP]))
        return [member.member_id for member in answer.groups[0].members]

    (member,) = list_members()
    request = LeaveGroupRequest(group_id=GROUP, members=[MemberIdentity(member_id=member)], member_id=member)
    client.ask_coordinator("group", GROUP, request)
    wait_until(lambda: "stop" in first.calls)
    assert list_members() == []
    assert herder.get_health().status == "unhealthy"
    first.is_running = False
    wait_until(lambda: workers.runs[0].find("a") is not first)
    workers.wait_for(1)
    client.close()


class Stranger:
    """A member of the group that is no worker. The group accepts whoever names the workers' protocol."""

    def __init__(self, bootstrap: str) -> None:
        self._client = Client({"bootstrap.servers": bootstrap})
        self.joined = JoinGroupResponse()

    def join(self, metadata: bytes) -> None:
        """Join the group, or join it again."""
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=PATIENCE_S * 1000,
            rebalance_timeout_ms=PATIENCE_S * 1000,
            member_id=self.joined.member_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[JoinGroupRequestProtocol(name=PROTOCOL, metadata=metadata)],
        )
        self.joined = self._client.ask_coordinator("group", GROUP, request)
        if self.joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.join(metadata)
        assert self.joined.error_code == ErrorCode.NONE

    def sync(self, assignment: bytes | None = None) -> bytes | None:
        """The stranger's own assignment, after it has told, as leader, the same to all members.

        None if somebody has joined the group in the meantime.
        """
        members = self.joined.members if assignment is not None else []
        request = SyncGroupRequest(
            group_id=GROUP,
            generation_id=self.joined.generation_id,
            member_id=self.joined.member_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=PROTOCOL,
            assignments=[
                SyncGroupRequestAssignment(member_id=each.member_id, assignment=assignment or b"") for each in members
            ],
        )
        synced = self._client.ask_coordinator("group", GROUP, request)
        if synced.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            return None
        assert synced.error_code == ErrorCode.NONE
        return bytes(synced.assignment)

    def lead(self, assignment: bytes, *, count: int) -> None:
        """Rebalance the group until this many members get the assignment."""
        while True:
            self.join(b"")
            assert self.joined.leader == self.joined.member_id
            if self.sync(assignment) is not None and len(self.joined.members) == count:
                return

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        gone = MemberIdentity(member_id=self.joined.member_id)
        request = LeaveGroupRequest(group_id=GROUP, members=[gone], member_id=self.joined.member_id)
        self._client.ask_coordinator("group", GROUP, request)
        self._client.close()


def test_a_member_that_is_no_worker_gets_nothing_and_stops_nothing(workers: Workers) -> None:
    herder = workers.add()
    herder.create_connector("a", SOURCE)
    workers.wait_for(1)
    for metadata in (b"\xff", b"[1]", b'{"owned": 1}', b'{"owned": [["a"]]}', b"[" * 100_000):
        with Stranger(workers.bootstrap) as stranger:
            stranger.join(metadata)
            assert stranger.sync() == b""
    herder.create_connector("b", SOURCE)
    workers.wait_for(2)
    assert workers.runs[0].find("a").calls == ["start"]
    wait_until(lambda: herder.get_health().status == "healthy")


def test_a_leader_that_is_no_worker_is_told_of_and_stops_nothing(
    workers: Workers, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker keeps what it runs, says who leads the group instead of a worker, and goes on when that one leaves."""
    monkeypatch.setattr(membership, "RETRY_S", 0.05)
    with Stranger(workers.bootstrap) as stranger:
        stranger.join(b"")
        stranger.sync(b"")
        herder = workers.start()
        stranger.lead(b"", count=2)
        wait_until(lambda: "is no worker" in herder.get_health().message)
        assert herder.get_health().status == "starting"
        herder.create_connector("a", SOURCE)
        stranger.lead(b'{"connectors": ["a"], "known": ["a"]}', count=2)
        workers.wait_for(1)
        wait_until(lambda: herder.get_health().status == "healthy")
        for assignment in (b"", b"\xff", b"[1]", b"{}", b'{"connectors": 1, "known": []}', b"[" * 100_000):
            caplog.clear()
            stranger.lead(assignment, count=2)
            generation = stranger.joined.generation_id
            wait_until(lambda: herder.get_health().status == "unhealthy")
            assert f"leader {stranger.joined.member_id!r} is no worker" in herder.get_health().message
            herder.put_config("b", SOURCE)  # a new connector, for which the worker wants a rebalance
            for _ in range(3):
                confirmed_s = herder._worker.group.confirmed_s
                wait_until(lambda before_s=confirmed_s: herder._worker.group.confirmed_s != before_s)  # type: ignore[misc]
            stranger.lead(b'{"connectors": ["a"], "known": ["a", "b"]}', count=2)
            assert stranger.joined.generation_id == generation + 1  # the worker has made none
            wait_until(lambda: herder.get_health().status == "healthy")
            assert len([each for each in caplog.messages if "is no worker" in each]) == 1
            assert not any(record.exc_info for record in caplog.records)
    workers.wait_for(2)
    assert workers.runs[0].find("a").calls == ["start"]
    wait_until(lambda: herder.get_health().status == "healthy")


def test_what_users_ask_for_at_one_worker_happens_at_the_other(workers: Workers) -> None:
    first, second = workers.add(), workers.add()
    first.create_connector("a", SOURCE)
    wait_until(lambda: find_state(second, "a") is State.RUNNING)
    (owner,) = [number for number, runs in enumerate(workers.runs) if runs.running]
    runs, other = workers.runs[owner], workers.herders[1 - owner]
    wait_until(lambda: len(other.get_connector("a").tasks) == 2)
    assert other.get_connector("a").config == {**SOURCE, "name": "a"}
    assert [task.id for task in other.list_tasks("a")] == [TaskId("a", 0), TaskId("a", 1)]
    wait_until(lambda: count_tasks(other, "a") == 2)
    assert other.get_task_status(TaskId("a", 1)).version == "7"
    wait_until(lambda: other.get_topics("a") == ["topic-of-a"])
    other.pause("a")
    wait_until(lambda: find_state(other, "a") is State.PAUSED)
    other.resume("a")
    wait_until(lambda: find_state(other, "a") is State.RUNNING)
    made = len(runs.made)
    answer = other.restart("a", include_tasks=True, only_failed=False)
    assert [answer.connector.state, *(task.state for task in answer.tasks)] == [State.RESTARTING] * 3
    wait_until(lambda: len(runs.made) == made + 1)
    other.patch_config("a", {"x": "y", "tasks.max": "1"})
    wait_until(lambda: "x" in runs.find("a").spec.config)
    wait_until(lambda: len(other.get_status("a").tasks) == len(other.get_connector("a").tasks) == 1)
    runs.find("a").report(State.FAILED, "it broke")
    wait_until(lambda: other.get_status("a").tasks[0].trace == "it broke")
    other.restart_task(TaskId("a", 0))
    wait_until(lambda: find_state(other, "a") is State.RUNNING)
    other.stop("a")
    wait_until(lambda: find_state(other, "a") is State.STOPPED)
    assert other.get_connector("a").tasks == []
    other.delete_connector("a")
    workers.wait_for(0, 0)
    wait_until(lambda: workers.herders[owner].list_connectors() == [])
    other.create_connector("a", SOURCE, TargetState.PAUSED)
    wait_until(lambda: find_state(first, "a") is State.PAUSED)


def test_a_connector_that_is_deleted_and_created_again_is_another_one(workers: Workers) -> None:
    herder = workers.add()
    herder.create_connector("a", SOURCE)
    workers.wait_for(1)
    first = workers.runs[0].find("a")
    herder.delete_connector("a")
    herder.create_connector("a", SOURCE)
    wait_until(lambda: workers.runs[0].find("a") is not first)
    wait_until(lambda: find_state(herder, "a") is State.RUNNING)
    assert not first.is_running


def test_runs_go_on_while_the_broker_is_away() -> None:
    with broker(group_max_session_timeout_ms=PATIENCE_S * 1000) as local:
        workers = Workers(local.bootstrap)
        herder = workers.add(default_api_timeout_ms="300", retry_backoff_ms="10")
        herder.create_connector("a", SOURCE)
        workers.wait_for(1)
        run = workers.runs[0].find("a")
        local.stop()
        wait_until(lambda: herder.get_health().status == "unhealthy")
        run.report(State.FAILED, "while it was away")
        local.restart()
        wait_until(lambda: herder.get_health().status == "healthy")
        wait_until(lambda: find_state(herder, "a") is State.FAILED)
        assert run.calls == ["start"]
        workers.close()


def test_requests_that_cannot_be_fulfilled(workers: Workers) -> None:
    herder = workers.add(topic_tracking_enable="false")
    herder.create_connector("a", SOURCE)
    with pytest.raises(AlreadyExists):
        herder.create_connector("a", SOURCE)
    with pytest.raises(BadRequest, match="no connector class 'Other'"):
        herder.put_config("a", {"connector.class": "Other"})
    for ask in (herder.get_connector, herder.get_status, herder.pause, herder.stop, herder.get_offsets):
        with pytest.raises(NotFound):
            ask("b")
    with pytest.raises(NotFound):
        herder.patch_config("b", {})
    with pytest.raises(NotFound):
        herder.restart_task(TaskId("a", 7))
    with pytest.raises(BadRequest, match="STOPPED"):
        herder.reset_offsets("a")
    with pytest.raises(Forbidden):
        herder.get_topics("a")
    with pytest.raises(BadRequest, match="no level"):
        herder.set_logger("root", "LOUD", whole_cluster=False)
    assert herder.put_config("a", SOURCE)[0] is False
    assert herder.put_config("c", SOURCE)[0] is True


def test_offsets_of_stopped_connectors_are_changed(workers: Workers) -> None:
    herder = workers.add()
    herder.create_connector("source", SOURCE, TargetState.STOPPED)
    herder.create_connector("sink", SINK, TargetState.STOPPED)
    wait_until(lambda: find_state(herder, "source") is find_state(herder, "sink") is State.STOPPED)
    given = [ConnectorOffset({"file": "x"}, {"position": 3}), ConnectorOffset({"file": "y"}, {"position": 4})]
    herder.alter_offsets("source", given)
    assert sorted(herder.get_offsets("source"), key=str) == given
    herder.alter_offsets("source", [ConnectorOffset({"file": "x"}, None)])
    assert herder.get_offsets("source") == given[1:]
    herder.reset_offsets("source")
    assert herder.get_offsets("source") == []
    committed = [ConnectorOffset({"kafka_partition": 0, "kafka_topic": "connect-offsets"}, {"kafka_offset": 2})]
    herder.alter_offsets("sink", committed)
    assert herder.get_offsets("sink") == committed
    herder.reset_offsets("sink")
    assert herder.get_offsets("sink") == []
    with pytest.raises(BadRequest, match="kafka_topic"):
        herder.alter_offsets("sink", given)


def test_sinks_whose_targets_keep_offsets_are_asked_to_change_them(workers: Workers) -> None:
    herder = workers.add()
    topic = {"topics": "connect-offsets"}
    for name, config in (("none", SINK), ("own", {**SINK, "keeps": "own"}), ("fixed", {**SINK, "keeps": "fixed"})):
        herder.create_connector(name, {**config, **topic}, TargetState.STOPPED)
    wait_until(lambda: all(find_state(herder, name) is State.STOPPED for name in ("none", "own", "fixed")))
    where, wanted = TopicPartition("connect-offsets", 0), {"kafka_partition": 0, "kafka_topic": "connect-offsets"}
    change = [ConnectorOffset(wanted, {"kafka_offset": 2})]
    assert "if this connector manages offsets externally" in herder.alter_offsets("none", change)
    FakeSink.altered.clear()
    message = "The offsets for this connector have been %s successfully"
    assert herder.alter_offsets("own", change) == message % "altered"
    assert herder.reset_offsets("own") == message % "reset"
    assert FakeSink.altered[0] == {where: 2}
    assert FakeSink.altered[1][where] is None
    with pytest.raises(ConnectError, match="fixed"):
        herder.alter_offsets("fixed", change)
    assert herder.get_offsets("fixed") == []


def test_tasks_of_a_paused_connector_are_shown_after_its_worker_was_restarted(workers: Workers) -> None:
    herder = workers.add()
    herder.create_connector("a", SOURCE)
    wait_until(lambda: find_state(herder, "a") is State.RUNNING and len(herder.get_connector("a").tasks) == 2)
    workers.runs[0].find("a").listener(RunStatus(TaskState(State.PAUSED)))
    wait_until(lambda: [each.state for each in herder.get_status("a").tasks] == [State.PAUSED] * 2)


def test_a_standalone_worker_forgets_configurations(long_sessions: LocalBroker) -> None:
    runs = FakeRuns()
    properties = {"bootstrap.servers": long_sessions.bootstrap, "offset.storage.partitions": "1"}
    for _ in range(2):
        herder = make_standalone_herder(properties, "me:8083", FakePlugins(), runs)
        herder.start()
        wait_until(lambda herder=herder: herder.get_health().status == "healthy")  # type: ignore[misc]
        assert herder.list_connectors() == []
        herder.create_connector("a", SOURCE)
        wait_until(lambda herder=herder: find_state(herder, "a") is State.RUNNING)  # type: ignore[misc]
        assert herder.get_status("a").connector.worker_id == "me:8083"
        assert herder.get_cluster_info().kafka_cluster_id
        herder.close()
        assert runs.running == set()
