"""Statuses in Kafka Connect's form, and levels of loggers."""

import logging

import pytest

from ottla.connect.worker.herder import LoggerLevel, NotFound
from ottla.connect.worker.loggers import Loggers
from ottla.connect.worker.runs import State
from ottla.connect.worker.statuses import StatusState, StoredStatus, connector_key, task_key, topic_key, topic_status


def test_statuses_have_the_keys_and_values_of_kafka_connect() -> None:
    status = StoredStatus(State.FAILED, "why", "host:8083", 3, "1.0")
    assert connector_key("a-b") == "status-connector-a-b"
    assert task_key("a-b", 2) == "status-task-a-b-2"
    assert topic_key("a", "t") == "status-topic-t:connector-a"
    assert status.to_json() == {
        "state": "FAILED",
        "trace": "why",
        "worker_id": "host:8083",
        "generation": 3,
        "version": "1.0",
    }
    assert topic_status("a", "t", 7) == {"topic": {"name": "t", "connector": "a", "task": 0, "discoverTimestamp": 7}}


def test_what_was_written_is_read_and_forgotten() -> None:
    status = StoredStatus(State.RUNNING, None, "w", 1)
    state = StatusState()
    state.apply(connector_key("a"), status.to_json())
    state.apply(task_key("a-1", 0), status.to_json())
    state.apply(topic_key("a", "x:connector-y"), {"topic": {}})
    state.apply(topic_key("a", "t"), {"topic": {}})
    state.apply(connector_key("b"), {"state": "DESTROYED"})
    assert state.connectors == {"a": status}
    assert state.tasks == {"a-1": {0: status}}
    assert state.topics["a"] == {"t"}
    for key in (connector_key("a"), task_key("a-1", 0), topic_key("a", "t")):
        state.apply(key, None)
    assert (state.connectors, state.tasks, state.topics["a"]) == ({}, {"a-1": {}}, set())


def test_an_older_generation_does_not_overwrite_the_status_of_another_worker() -> None:
    state = StatusState()
    state.apply(connector_key("a"), StoredStatus(State.RUNNING, None, "w", 5).to_json())
    assert state.may_write(connector_key("a"), "w", 1)
    assert state.may_write(connector_key("a"), "other", 5)
    assert not state.may_write(connector_key("a"), "other", 4)
    assert state.may_write(task_key("a", 0), "other", 4)


def test_a_level_is_that_of_a_logger_and_those_below_it() -> None:
    names = ["test_statuses.top", "test_statuses.top.below", "test_statuses.topmost"]
    for name in names:
        logging.getLogger(name).setLevel(logging.INFO)
    loggers = Loggers(lambda: 7)
    assert loggers.set_level("test_statuses.top", "debug") == names[:2]
    found = loggers.list_levels()
    assert [found[name] for name in names] == [
        LoggerLevel("DEBUG", 7),
        LoggerLevel("DEBUG", 7),
        LoggerLevel("INFO", None),
    ]
    assert "root" in found
    loggers.set_once("test_statuses.top", "WARN")
    loggers.set_level("test_statuses.top", "TRACE")
    loggers.set_once("test_statuses.top", "WARN")
    assert loggers.get_level("test_statuses.top").level == "TRACE"
    with pytest.raises(NotFound):
        loggers.get_level("test_statuses.nobody")
