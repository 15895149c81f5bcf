"""Configurations in Kafka Connect's form, and workers that change them at the same time."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from ottla.client.client import Client
from ottla.connect.worker.configs import (
    Changes,
    ConfigState,
    ConfigTopic,
    RestartRequest,
    delete_connector,
    put_connector,
    put_restart,
    put_target,
    put_tasks,
)
from ottla.connect.worker.runs import TargetState
from ottla.connect.worker.topics import TopicForm, create_store_topic
from ottla.testing import LocalBroker

TOPIC = "connect-configs"


def apply(*changes: tuple[str, object]) -> ConfigState:
    state = ConfigState()
    for key, value in changes:
        state.apply(key, value)
    return state


def test_what_is_written_is_what_kafka_connect_writes() -> None:
    assert put_connector("a-b", {"x": "y"}) == [("connector-a-b", {"properties": {"x": "y"}})]
    assert put_target("a", TargetState.STOPPED) == [("target-state-a", {"state": "PAUSED", "state.v2": "STOPPED"})]
    assert put_tasks("a", [{"x": "1"}, {"x": "2"}]) == [
        ("task-a-0", {"properties": {"x": "1"}}),
        ("task-a-1", {"properties": {"x": "2"}}),
        ("commit-a", {"tasks": 2}),
    ]
    assert put_restart(RestartRequest("a", True, False)) == [
        ("restart-connector-a", {"include-tasks": True, "only-failed": False})
    ]
    assert delete_connector("a") == [("connector-a", None), ("target-state-a", None)]


def test_what_was_written_is_read() -> None:
    state = apply(
        *put_target("a-1", TargetState.PAUSED),
        *put_connector("a-1", {"x": "y"}),
        *put_tasks("a-1", [{"n": "0"}, {"n": "1"}]),
        *put_connector("b", {}),
        *put_target("b", TargetState.STOPPED),
        ("session-key", {"key": "", "algorithm": "", "creation-timestamp": 0}),
        ("tasks-fencing-a-1", {"task-count": 2}),
        ("logger-cluster-org", {"level": "DEBUG"}),
    )
    assert state.connectors == {"a-1": {"x": "y"}, "b": {}}
    assert state.tasks == {"a-1": [{"n": "0"}, {"n": "1"}]}
    assert (state.find_target("a-1"), state.find_target("b")) == (TargetState.PAUSED, TargetState.STOPPED)
    assert state.loggers == {"org": "DEBUG"}
    for key, value in delete_connector("a-1"):
        state.apply(key, value)
    assert (state.connectors, state.tasks, state.find_target("a-1")) == ({"b": {}}, {}, TargetState.STARTED)


def test_tasks_count_when_their_commit_follows() -> None:
    state = apply(*put_connector("a", {"x": "y"}), ("task-a-0", {"properties": {"n": "0"}}))
    assert state.tasks == {}
    state.apply("commit-a", {"tasks": 2})  # the second one was compacted away
    assert state.tasks == {"a": [{"n": "0"}, {"x": "y"}]}


def test_an_old_target_state_and_nonsense_are_understood() -> None:
    state = apply(
        ("target-state-a", {"state": "PAUSED"}),
        ("target-state-b", {"state": "STARTED", "state.v2": None}),
        ("target-state-c", {"state": "FLYING"}),
        ("connector-d", {}),
        ("connector-e", 7),
        ("commit-a", {"tasks": "many"}),
        ("task-a", {"properties": {}}),
    )
    assert state.find_target("a") is TargetState.PAUSED
    assert state.find_target("b") is state.find_target("c") is TargetState.STARTED
    assert (state.connectors, state.tasks) == ({}, {})


@pytest.fixture
def topics(ottla_broker: LocalBroker) -> Iterator[list[ConfigTopic]]:
    """The config topic as four workers see it."""
    clients = [Client({"bootstrap.servers": ottla_broker.bootstrap, "retry.backoff.ms": "5"}) for _ in range(4)]
    create_store_topic(clients[0], TopicForm(TOPIC, 1, -1, {}))
    found = [ConfigTopic(client, TOPIC, "connect-cluster-g") for client in clients]
    yield found
    for each in found:
        each.close()


def test_a_worker_whose_id_was_taken_decides_again(topics: list[ConfigTopic]) -> None:
    """The second worker changes something while the first one decides: the first change is fenced and repeated."""
    first, second = topics[:2]
    seen: list[list[str]] = []

    def decide(state: ConfigState) -> Changes:
        seen.append(sorted(state.connectors))
        if len(seen) == 1:
            second.change(lambda _: put_connector("b", {}))
        return put_connector("a", {"seen": ",".join(seen[-1])})

    first.change(decide)
    assert seen == [[], ["b"]]
    assert first.state.connectors == {"a": {"seen": "b"}, "b": {}}
    second.refresh()
    assert second.state.connectors == first.state.connectors


def test_changes_of_many_workers_have_one_order(topics: list[ConfigTopic]) -> None:
    """Four workers count in one configuration at the same time, and no count is lost."""

    def count(topic: ConfigTopic) -> None:
        for _ in range(5):
            topic.change(
                lambda state: put_connector("a", {"n": str(int(state.connectors.get("a", {"n": "0"})["n"]) + 1)})
            )

    with ThreadPoolExecutor() as pool:
        list(pool.map(count, topics))
    topics[0].refresh()
    assert topics[0].state.connectors == {"a": {"n": "20"}}
