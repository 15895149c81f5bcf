"""A configuration is checked whole, with the names, groups and sentences of Kafka Connect."""

from typing import Any

import pytest

from ottla.connect.errors import BadConfig
from ottla.connect.plugins.installed import InstalledPlugins, UnknownPlugin
from tests.unit.connect.rest.herders import SINK, SOURCE, make_plugins

RIGHT = {"connector.class": "FileStreamSource", "name": "c", "topic": "t"}
JSON_CONVERTER = "org.apache.kafka.connect.json.JsonConverter"


def find_errors(config: dict[str, str | None], worker: dict[str, str] | None = None) -> dict[str, list[str]]:
    report = make_plugins(worker).validate(config)
    found = {each["value"]["name"]: each["value"]["errors"] for each in report["configs"]}
    assert report["error_count"] == sum(map(len, found.values()))
    return {name: errors for name, errors in found.items() if errors}


def find_entries(config: dict[str, str | None], worker: dict[str, str] | None = None) -> dict[str, Any]:
    return {each["value"]["name"]: each for each in make_plugins(worker).validate(config)["configs"]}


@pytest.mark.parametrize("name", [SOURCE, "FileStreamSourceConnector", "FileStreamSource", " FileStreamSource "])
def test_a_connector_has_its_full_name_and_short_ones(name: str) -> None:
    plugins = make_plugins()
    assert plugins.find_type({"connector.class": name}) == "source"
    assert plugins.find_version({"connector.class": name}) == "1.0"
    assert find_errors({**RIGHT, "connector.class": name}) == {}


def test_a_class_that_is_not_there_is_named_with_those_that_are() -> None:
    with pytest.raises(BadConfig) as raised:
        make_plugins().check({"connector.class": "Nope"})
    assert str(raised.value) == (
        "Failed to find any class that implements Connector and which name matches Nope, available connectors are: "
        f"{SINK}, {SOURCE}"
    )
    assert make_plugins().find_type({"connector.class": "Nope"}) == "unknown"


@pytest.mark.parametrize(
    "name", ["org.apache.iceberg.connect.IcebergSinkConnector", "IcebergSink", "io.delta.DeltaLakeSourceConnector"]
)
def test_connectors_that_are_refused_by_name(name: str) -> None:
    with pytest.raises(BadConfig, match=f"^{name} is not supported: tables of .*DeltaLakeSink"):
        make_plugins().check({"connector.class": name})


def test_the_report_has_kafkas_form() -> None:
    report = make_plugins().validate(dict(RIGHT))
    assert (report["name"], report["error_count"]) == ("FileStreamSource", 0)
    assert report["groups"] == [
        "Common",
        "Transforms",
        "Predicates",
        "Error Handling",
        "Topic Creation",
        "Exactly Once Support",
        "offsets.topic",
    ]
    by_name = {each["definition"]["name"]: each for each in report["configs"]}
    assert by_name["tasks.max"] == {
        "definition": {
            "name": "tasks.max",
            "type": "INT",
            "required": False,
            "default_value": "1",
            "importance": "HIGH",
            "documentation": "How many tasks of the connector may run at once.",
            "group": "Common",
            "order_in_group": 4,
            "width": "SHORT",
            "display_name": "Tasks max",
            "dependents": [],
        },
        "value": {"name": "tasks.max", "value": "1", "recommended_values": [], "errors": [], "visible": True},
    }
    assert by_name["topic"]["value"]["value"] == "t"


def test_unknown_settings_pass() -> None:
    assert find_errors({**RIGHT, "anything.else": "7"}) == {}


def test_wrong_values_of_common_settings_are_found() -> None:
    wrong = {"tasks.max": "0", "errors.tolerance": "some", "exactly.once.support": "x", "transforms": "a,a"}
    found = find_errors({**RIGHT, **wrong})
    assert found["tasks.max"] == ["Invalid value 0 for configuration tasks.max: Value must be at least 1"]
    assert found["errors.tolerance"] == [
        "Invalid value some for configuration errors.tolerance: String must be one of: none, all"
    ]
    assert found["exactly.once.support"] == [
        "Invalid value x for configuration exactly.once.support: String must be one of (case insensitive): REQUIRED,"
        " REQUESTED"
    ]
    assert found["transforms"] == ["Invalid value [a, a] for configuration transforms: Duplicate alias provided."]


@pytest.mark.parametrize(
    ("config", "names", "part"),
    [
        ({}, {"topics", "topics.regex"}, "Must configure one of topics or topics.regex"),
        ({"topics": "a", "topics.regex": "b"}, {"topics", "topics.regex"}, "are mutually exclusive options"),
        ({"topics": "a,a"}, {"topics"}, "Configuration 'topics' values must not be duplicated."),
        ({"topics": "a,,b"}, {"topics"}, "Configuration 'topics' values must not be empty."),
        ({"topics.regex": "["}, {"topics.regex"}, "Invalid regex"),
        ({"topics": "a", "errors.deadletterqueue.topic.name": "a"}, {"topics"}, "('topics=[a]') consumed by"),
        ({"topics.regex": "a.*", "errors.deadletterqueue.topic.name": "ab"}, {"topics.regex"}, "may not be matched by"),
    ],
)
def test_a_sink_names_its_topics_in_one_way(config: dict[str, str | None], names: set[str], part: str) -> None:
    found = find_errors({"connector.class": "FileStreamSink", "name": "c", **config})
    assert set(found) == names
    assert all(part in error for errors in found.values() for error in errors)


def test_converters_have_settings_of_their_own() -> None:
    entries = find_entries(
        {**RIGHT, "key.converter": "JsonConverter", "key.converter.schemas.enable": "maybe", "header.converter": "no"}
    )
    assert entries["key.converter"]["value"]["value"] == JSON_CONVERTER
    assert JSON_CONVERTER in entries["key.converter"]["value"]["recommended_values"]
    assert "either true or false" in entries["key.converter.schemas.enable"]["value"]["errors"][0]
    assert entries["header.converter"]["value"]["errors"] == [
        "Invalid value no for configuration header.converter: Class no could not be found."
    ]
    assert entries["header.converter.plugin.version"]["value"]["visible"] is False


def test_the_workers_converters_are_the_defaults() -> None:
    entries = find_entries(dict(RIGHT), {"key.converter": "StringConverter"})
    default = "org.apache.kafka.connect.storage.StringConverter"
    assert entries["key.converter"]["definition"]["default_value"] == default
    assert entries["key.converter"]["value"]["value"] == default


def test_only_the_installed_version_can_be_asked_for() -> None:
    found = find_errors({**RIGHT, "connector.plugin.version": "9"})
    text = f"Plugin {SOURCE} not found that matches the version range [9,9], available versions: [1.0]"
    assert found == {"connector.class": [text], "connector.plugin.version": [text]}
    assert find_errors({**RIGHT, "connector.plugin.version": "1.0"}) == {}


def test_groups_of_topics_are_checked() -> None:
    found = find_errors(
        {
            **RIGHT,
            "topic.creation.groups": "g",
            "topic.creation.default.partitions": "0",
            "topic.creation.g.include": "a,[",
        }
    )
    assert set(found) == {
        "topic.creation.default.partitions",
        "topic.creation.default.replication.factor",
        "topic.creation.g.include",
    }


@pytest.mark.parametrize(
    ("policy", "refused"),
    [
        (None, set()),
        ("All", set()),
        ("None", {"sasl.mechanism", "linger.ms"}),
        ("Principal", {"linger.ms"}),
        ("org.apache.kafka.connect.connector.policy.AllowlistConnectorClientConfigOverridePolicy", {"sasl.mechanism"}),
    ],
)
def test_a_policy_decides_about_overrides(policy: str | None, refused: set[str]) -> None:
    worker = {"connector.client.config.override.allowlist": "linger.ms, acks"}
    if policy is not None:
        worker["connector.client.config.override.policy"] = policy
    found = find_errors(
        {**RIGHT, "producer.override.linger.ms": "5", "producer.override.sasl.mechanism": "PLAIN"}, worker
    )
    assert set(found) == {f"producer.override.{name}" for name in refused}
    for name in refused:
        assert f"policy does not allow '{name}' to be overridden" in found[f"producer.override.{name}"][0]


def test_a_worker_with_an_unknown_policy_does_not_start() -> None:
    with pytest.raises(BadConfig, match="there are All, None, Principal, Allowlist"):
        InstalledPlugins({"connector.client.config.override.policy": "Some"})


def test_a_plugin_describes_its_settings() -> None:
    plugins = make_plugins()
    names = [each["name"] for each in plugins.describe("FileStreamSource")]
    assert names[:4] == ["file", "topic", "batch.size", "secret"]
    assert {"tasks.max", "topic.creation.groups"} < set(names)
    assert {"schemas.enable"} < {each["name"] for each in plugins.describe(JSON_CONVERTER)}
    with pytest.raises(UnknownPlugin, match=r"Unknown plugin Nope\."):
        plugins.describe("Nope")
    with pytest.raises(BadConfig, match="version range"):
        plugins.describe("FileStreamSource", "9")


def test_all_kinds_of_plugins_are_listed() -> None:
    plugins = make_plugins()
    assert plugins.list_plugins(connectors_only=True) == [
        {"class": SINK, "type": "sink", "version": "1.0"},
        {"class": SOURCE, "type": "source", "version": "1.0"},
    ]
    listed = {(each["class"], each["type"]) for each in plugins.list_plugins(connectors_only=False)}
    assert {(JSON_CONVERTER, "converter"), (JSON_CONVERTER, "header_converter")} < listed


def test_no_policy_lets_a_connector_name_files_and_urls_that_the_worker_would_read() -> None:
    # CVE-2025-27817: whoever may create a connector could read files of the worker and ask addresses of its network.
    name = "consumer.override.sasl.oauthbearer.token.endpoint.url"
    found = find_errors({**RIGHT, name: "file:///etc/passwd"}, {"connector.client.config.override.policy": "All"})
    assert "in the worker's properties only" in found[name][0]
