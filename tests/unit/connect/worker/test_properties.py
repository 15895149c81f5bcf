"""Properties of a worker, connector files, and what is wrong with them in one line."""

import json

import pytest

from ottla.connect.errors import BadConfig
from ottla.connect.worker.properties import WorkerProperties
from ottla.connect.worker.runs import TargetState
from ottla.connect.worker.standalone import ConnectorFile, read_connector_file

DISTRIBUTED = {
    "bootstrap.servers": "one:9092,two:9092",
    "group.id": "g",
    "config.storage.topic": "c",
    "offset.storage.topic": "o",
    "status.storage.topic": "s",
}


def read(**changes: str) -> WorkerProperties:
    changed = {name.replace("_", "."): value for name, value in changes.items()}
    return WorkerProperties.of({**DISTRIBUTED, **changed}, is_distributed=True)


def test_topics_have_their_settings() -> None:
    found = read(
        offset_storage_partitions="7", offset_storage_replication_factor="3", config_storage_min_insync_replicas="2"
    )
    assert (found.offsets.name, found.offsets.partitions, found.offsets.replication_factor) == ("o", 7, 3)
    assert (found.configs.name, found.configs.partitions, found.configs.replication_factor) == ("c", 1, -1)
    assert found.configs.settings == {"min.insync.replicas": "2"}
    assert (found.statuses.name, found.statuses.partitions) == ("s", 5)


def test_clients_get_what_clients_know() -> None:
    login = {"sasl_username": "user", "sasl_password": "hush"}
    found = read(
        security_protocol="SASL_PLAINTEXT", sasl_mechanism="PLAIN", key_converter="json", producer_acks="1", **login
    )
    assert found.client == {
        "bootstrap.servers": "one:9092,two:9092",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "user",
        "sasl.password": "hush",
    }
    assert found.list_warnings() == []


def test_lost_connectors_are_taken_over_at_once_unless_a_delay_is_set() -> None:
    assert read().takeover_delay_s == 0
    assert read(scheduled_rebalance_max_delay_ms="2500").takeover_delay_s == 2.5


def test_settings_without_effect_and_unknown_ones_are_named() -> None:
    found = WorkerProperties.of(
        {"offset.storage.file.filename": "/tmp/x", "key.convertor": "json", "zzz": "1"}, is_distributed=False
    )
    file_name, unknown = found.list_warnings()
    assert file_name.startswith("offset.storage.file.filename has no effect: offsets are kept in the topic")
    assert unknown == "unknown settings of the worker are ignored: key.convertor, zzz"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"group_id": ""}, "group.id is missing"),
        ({"bootstrap_servers": "nowhere"}, "'nowhere' is not host:port"),
        ({"offset_storage_partitions": "many"}, "offset.storage.partitions: 'many'"),
        ({"task_shutdown_graceful_timeout_ms": "-5"}, "task.shutdown.graceful.timeout.ms: '-5'"),
        ({"topic_tracking_enable": "maybe"}, "topic.tracking.enable: 'maybe'"),
    ],
)
def test_bad_settings_are_named(changes: dict[str, str], message: str) -> None:
    with pytest.raises(BadConfig) as raised:
        read(**changes)
    assert message in str(raised.value)


def test_heartbeats_are_more_frequent_than_sessions_are_long() -> None:
    with pytest.raises(BadConfig, match=r"heartbeat\.interval\.ms=10000"):
        _ = read(heartbeat_interval_ms="10000").membership


@pytest.mark.parametrize(
    ("text", "initial_state"),
    [
        ("name=a\nx = 1,\\\n    2\n", TargetState.STARTED),
        (json.dumps({"name": "a", "x": "1,2"}), TargetState.STARTED),
        (json.dumps({"name": "a", "config": {"x": "1,2"}}), TargetState.STARTED),
        (json.dumps({"config": {"name": "a", "x": "1,2"}, "initial_state": "paused"}), TargetState.PAUSED),
    ],
)
def test_connector_files_have_several_forms(text: str, initial_state: TargetState) -> None:
    assert read_connector_file(text, "a.json") == ConnectorFile("a", {"name": "a", "x": "1,2"}, initial_state)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x=1", "a.json: the connector has no name"),
        ("name=\\u00", "a.json: line 1: a \\u escape"),
        ('{"name": "a", "x": 1}', "the value of 'x' has to be a text"),
        ('{"name": "a", "config": {"name": "b"}}', "the name 'a' differs"),
        ('{"name": "a", "config": {}, "initial_state": "flying"}', "not 'FLYING'"),
    ],
)
def test_what_is_no_connector_file_is_refused(text: str, message: str) -> None:
    with pytest.raises(BadConfig) as raised:
        read_connector_file(text, "a.json")
    assert message in str(raised.value)
