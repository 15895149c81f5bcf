"""Settings over the wire: they are described and changed, take effect at once, and survive a restart."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

import ottla.testing
from ottla.errors import ErrorCode
from ottla.records.batch import encode
from ottla.testing import LocalBroker
from ottla.wire.messages import alter_configs as replacing
from ottla.wire.messages import describe_configs as dc
from ottla.wire.messages import incremental_alter_configs as altering
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.list_config_resources import ListConfigResourcesRequest
from tests.patience import PATIENCE_MS, PATIENCE_S
from tests.raw_client import RawClient

TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
LOGGER_NAME = "ottla.tests.scenario"


def describe(
    client: RawClient, resource: int, name: str, *keys: str, version: int = 4, docs: bool = False, all_of: bool = True
) -> Any:
    asked = dc.DescribeConfigsResource(resource_type=resource, resource_name=name)
    asked.configuration_keys = list(keys) or None
    request = dc.DescribeConfigsRequest(resources=[asked], include_synonyms=all_of, include_documentation=docs)
    (result,) = client.request(request, version).results
    assert (result.resource_type, result.resource_name) == (resource, name)
    return result


def value(client: RawClient, resource: int, name: str, key: str) -> tuple[str | None, int]:
    (setting,) = describe(client, resource, name, key).configs
    return setting.value, setting.config_source


def alter(
    client: RawClient, resource: int, name: str, *changes: tuple[str, int, str | None], **options: Any
) -> tuple[int, str | None]:
    version = options.pop("version", 1)
    configs = [
        altering.AlterableConfig(name=key, config_operation=operation, value=text) for key, operation, text in changes
    ]
    asked = altering.AlterConfigsResource(resource_type=resource, resource_name=name, configs=configs)
    answer = client.request(altering.IncrementalAlterConfigsRequest(resources=[asked], **options), version)
    (response,) = answer.responses
    assert (response.resource_type, response.resource_name) == (resource, name)
    return response.error_code, response.error_message


def replace(
    client: RawClient, resource: int, name: str, *, version: int = 2, validate_only: bool = False, **settings: str
) -> int:
    configs = [replacing.AlterableConfig(name=key.replace("_", "."), value=text) for key, text in settings.items()]
    asked = replacing.AlterConfigsResource(resource_type=resource, resource_name=name, configs=configs)
    request = replacing.AlterConfigsRequest(resources=[asked], validate_only=validate_only)
    return int(client.request(request, version).responses[0].error_code)


def produce(client: RawClient, topic: str, size: int) -> int:
    produced = client.produce(topic, 0, encode([(b"key", bytes(size), (), 1)]))
    assert produced is not None
    return produced.error_code


@pytest.fixture
def own_broker() -> Iterator[LocalBroker]:
    """A broker whose settings a test may change, with the topic `orders`."""
    with ottla.testing.broker(log_retention_hours=2) as broker:
        broker.create_topic("orders")
        yield broker


def connect(broker: LocalBroker) -> RawClient:
    return RawClient(broker.host, broker.port)


# DescribeConfigs


@pytest.mark.parametrize("version", range(1, 5))
def test_a_topic_is_described(client: RawClient, topic: str, version: int) -> None:
    """The answer has all settings, or the requested ones. From version 3 on it has types and, on request,
    documentation."""
    everything = describe(client, TOPIC, topic, version=version)
    assert (everything.error_code, len(everything.configs)) == (0, 33)
    (setting,) = describe(client, TOPIC, topic, "max.message.bytes", version=version, docs=True).configs
    assert (setting.name, setting.value, setting.read_only, setting.is_sensitive) == (
        "max.message.bytes",
        "1048588",
        False,
        False,
    )
    ((name, text, source),) = ((each.name, each.value, each.source) for each in setting.synonyms)
    assert (name, text, source) == ("message.max.bytes", "1048588", 5)
    assert setting.config_type == (3 if version >= 3 else 0)
    assert bool(setting.documentation) == (version >= 3)
    (bare,) = describe(client, TOPIC, topic, "max.message.bytes", version=version, all_of=False).configs
    assert (bare.synonyms, bare.documentation) == ([], None)


def test_topics_of_one_request_have_their_own_settings(own_broker: LocalBroker) -> None:
    """The settings of topics without any are encoded once for a request. A topic with settings is not among them, and
    other keys are not either."""
    own_broker.create_topic("kept", retention_ms="1")
    own_broker.create_topic("plain")

    def ask(name: str, *keys: str) -> dc.DescribeConfigsResource:
        return dc.DescribeConfigsResource(resource_type=TOPIC, resource_name=name, configuration_keys=list(keys))

    asked = [ask("orders", "retention.ms"), ask("kept", "retention.ms"), ask("plain", "retention.ms"), ask("plain")]
    with connect(own_broker) as client:
        results = client.request(dc.DescribeConfigsRequest(resources=asked), 4).results
    found = [(each.resource_name, [entry.value for entry in each.configs][:1]) for each in results[:3]]
    assert found == [("orders", ["7200000"]), ("kept", ["1"]), ("plain", ["7200000"])]
    assert len(results[3].configs) == 33


def test_a_broker_is_described(client: RawClient) -> None:
    """Each setting has a type and a source. One that cannot be changed says so, and passwords have no value."""
    result = describe(client, BROKER, "1")
    found = {each.name: each for each in result.configs}
    assert len(found) > 300
    assert (found["listeners"].read_only, found["listeners"].config_source) == (True, 4)
    assert (found["message.max.bytes"].read_only, found["message.max.bytes"].config_source) == (False, 5)
    assert (found["ssl.keystore.password"].value, found["ssl.keystore.password"].is_sensitive) == (None, True)
    assert [each.name for each in describe(client, BROKER, "").configs] == ["min.insync.replicas"]


@pytest.mark.parametrize(
    ("resource", "name", "code"),
    [
        (TOPIC, "nope", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "b d", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (TOPIC, "", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "2", ErrorCode.INVALID_REQUEST),
        (BROKER, "x", ErrorCode.INVALID_REQUEST),
        (LOGGER, "", ErrorCode.INVALID_REQUEST),
        (LOGGER, "2", ErrorCode.INVALID_REQUEST),
        (3, "x", ErrorCode.INVALID_REQUEST),
    ],
)
def test_an_unknown_resource_cannot_be_described_or_changed(
    client: RawClient, resource: int, name: str, code: ErrorCode
) -> None:
    """An unknown resource gets an error code and a message, and the same code when it is to be changed."""
    result = describe(client, resource, name)
    assert (result.error_code, result.configs) == (code, [])
    assert result.error_message
    refused, message = alter(client, resource, name, ("retention.ms", SET, "5"))
    assert refused != 0
    assert message


# IncrementalAlterConfigs


@pytest.mark.parametrize("version", [0, 1])
def test_a_topic_setting_takes_effect_at_once(client: RawClient, topic: str, version: int) -> None:
    """After max.message.bytes is lowered, the next batch is refused; after it is reset, the batch is accepted."""
    assert produce(client, topic, 1000) == 0
    assert alter(client, TOPIC, topic, ("max.message.bytes", SET, "500"), version=version) == (0, None)
    assert value(client, TOPIC, topic, "max.message.bytes") == ("500", 1)
    assert produce(client, topic, 1000) == ErrorCode.MESSAGE_TOO_LARGE
    assert alter(client, TOPIC, topic, ("max.message.bytes", DELETE, None), version=version) == (0, None)
    assert produce(client, topic, 1000) == 0


def test_items_of_a_list_setting_can_be_appended_and_subtracted(client: RawClient, topic: str) -> None:
    """Items of cleanup.policy can be appended and subtracted."""
    assert alter(client, TOPIC, topic, ("cleanup.policy", APPEND, "compact")) == (0, None)
    assert value(client, TOPIC, topic, "cleanup.policy") == ("delete,compact", 1)
    assert alter(client, TOPIC, topic, ("cleanup.policy", SUBTRACT, "delete")) == (0, None)
    assert value(client, TOPIC, topic, "cleanup.policy") == ("compact", 1)


def test_a_refused_setting_leaves_the_others_alone(client: RawClient, topic: str) -> None:
    """All changes of a resource take effect, or none. validate_only checks the same and changes nothing."""
    code, message = alter(client, TOPIC, topic, ("retention.ms", SET, "5"), ("flush.ms", SET, "soon"))
    assert code == ErrorCode.INVALID_CONFIG
    assert "flush.ms" in (message or "")
    assert alter(client, TOPIC, topic, ("retention.ms", SET, "x"), validate_only=True)[0] == ErrorCode.INVALID_CONFIG
    assert alter(client, TOPIC, topic, ("retention.ms", SET, "5"), validate_only=True) == (0, None)
    assert value(client, TOPIC, topic, "retention.ms") == ("604800000", 5)


def test_each_resource_has_its_own_result(client: RawClient, topic: str) -> None:
    """An unknown topic does not affect another one. A topic that is named twice is refused both times."""

    def asked(name: str) -> altering.AlterConfigsResource:
        config = altering.AlterableConfig(name="retention.ms", config_operation=SET, value="9")
        return altering.AlterConfigsResource(resource_type=TOPIC, resource_name=name, configs=[config])

    def codes(*names: str) -> list[int]:
        request = altering.IncrementalAlterConfigsRequest(resources=[asked(name) for name in names])
        return [response.error_code for response in client.request(request, 1).responses]

    assert codes(topic, topic) == [ErrorCode.INVALID_REQUEST] * 2
    assert codes("nope", topic) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0]
    assert value(client, TOPIC, topic, "retention.ms") == ("9", 1)


def test_a_broker_setting_takes_effect_at_once(own_broker: LocalBroker) -> None:
    """The setting holds for existing and new topics. A setting of one broker overrides that of all brokers."""
    with connect(own_broker) as client:
        assert alter(client, BROKER, "", ("message.max.bytes", SET, "500")) == (0, None)
        assert produce(client, "orders", 1000) == ErrorCode.MESSAGE_TOO_LARGE
        own_broker.create_topic("later")
        assert produce(client, "later", 1000) == ErrorCode.MESSAGE_TOO_LARGE
        assert value(client, TOPIC, "orders", "max.message.bytes") == ("500", 3)
        assert [each.value for each in describe(client, BROKER, "").configs] == ["500", "1"]
        assert alter(client, BROKER, "1", ("message.max.bytes", SET, "5000")) == (0, None)
        assert produce(client, "orders", 1000) == 0
        (setting,) = describe(client, BROKER, "1", "message.max.bytes").configs
        assert [(each.value, each.source) for each in setting.synonyms] == [("5000", 2), ("500", 3), ("1048588", 5)]
        assert alter(client, BROKER, "1", ("message.max.bytes", DELETE, None)) == (0, None)
        assert produce(client, "orders", 1000) == ErrorCode.MESSAGE_TOO_LARGE


def test_a_topic_setting_overrides_the_brokers_setting(own_broker: LocalBroker) -> None:
    """A setting of a topic overrides every setting of the broker."""
    with connect(own_broker) as client:
        alter(client, TOPIC, "orders", ("max.message.bytes", SET, "5000"))
        alter(client, BROKER, "", ("message.max.bytes", SET, "500"))
        assert produce(client, "orders", 1000) == 0
        assert value(client, TOPIC, "orders", "max.message.bytes") == ("5000", 1)


def test_a_topic_may_contradict_later_settings_of_the_broker(own_broker: LocalBroker) -> None:
    """The topic keeps its settings. It must not prevent a change of the broker's settings, or a start."""
    with connect(own_broker) as client:
        assert alter(client, TOPIC, "orders", ("min.compaction.lag.ms", SET, "100")) == (0, None)
        assert alter(client, BROKER, "", ("log.cleaner.max.compaction.lag.ms", SET, "50")) == (0, None)
        assert produce(client, "orders", 10) == 0
    own_broker.restart()
    with connect(own_broker) as client:
        assert value(client, TOPIC, "orders", "min.compaction.lag.ms") == ("100", 1)
        assert value(client, TOPIC, "orders", "max.compaction.lag.ms") == ("50", 3)
        assert alter(client, TOPIC, "orders", ("flush.ms", SET, "5"))[0] == ErrorCode.INVALID_CONFIG
        assert produce(client, "orders", 10) == 0


def test_a_created_topic_says_where_its_settings_come_from(own_broker: LocalBroker) -> None:
    """CreateTopics answers with the source of each setting: the topic, all brokers, the file, or the default."""
    with connect(own_broker) as client:
        alter(client, BROKER, "", ("message.max.bytes", SET, "500"))
        topic = CreatableTopic(name="new", num_partitions=1, replication_factor=1)
        (created,) = client.request(CreateTopicsRequest(topics=[topic], timeout_ms=PATIENCE_MS), 7).topics
        sources = {each.name: (each.value, each.config_source) for each in created.configs}
        assert sources["max.message.bytes"] == ("500", 3)
        assert sources["retention.ms"] == ("7200000", 4)
        assert sources["cleanup.policy"] == ("delete", 5)


def test_the_number_of_connections_can_be_limited_at_run_time(own_broker: LocalBroker) -> None:
    """max.connections holds from the next connection on, and an open connection can raise it again."""
    with connect(own_broker) as client:
        assert alter(client, BROKER, "1", ("max.connections", SET, "1")) == (0, None)
        with connect(own_broker) as refused:
            assert refused.is_closed_by_peer()
        assert alter(client, BROKER, "1", ("max.connections", DELETE, None)) == (0, None)
        with connect(own_broker) as admitted:
            assert describe(admitted, BROKER, "").error_code == 0


def test_the_delay_of_deletion_can_be_changed_at_run_time(own_broker: LocalBroker) -> None:
    """log.segment.delete.delay.ms holds from the next removal on."""
    with connect(own_broker) as client:
        assert alter(client, BROKER, "", ("log.segment.delete.delay.ms", SET, "500")) == (0, None)
        own_broker.advance(minutes=2)  # ends the wait that was running when the setting was changed
        directory = Path(own_broker.directory)
        admin = AdminClient({"bootstrap.servers": own_broker.bootstrap})
        admin.delete_topics(["orders"])["orders"].result(PATIENCE_S)
        own_broker.advance(seconds=1)
        assert not list(directory.glob("orders-0*"))


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_settings_survive_a_restart(own_broker: LocalBroker, end: str) -> None:
    """Settings of a topic, of one broker and of all brokers are kept, and take effect again."""
    with connect(own_broker) as client:
        alter(client, TOPIC, "orders", ("retention.ms", SET, "77"))
        alter(client, BROKER, "1", ("message.max.bytes", SET, "500"))
        alter(client, BROKER, "", ("log.flush.interval.messages", SET, "9"))
    getattr(own_broker, end)()
    own_broker.restart()
    with connect(own_broker) as client:
        assert value(client, TOPIC, "orders", "retention.ms") == ("77", 1)
        assert value(client, TOPIC, "orders", "max.message.bytes") == ("500", 2)
        assert value(client, TOPIC, "orders", "flush.messages") == ("9", 3)
        assert produce(client, "orders", 1000) == ErrorCode.MESSAGE_TOO_LARGE


def test_a_deleted_topic_takes_its_settings_along(own_broker: LocalBroker) -> None:
    """A new topic of the same name begins with the defaults."""
    admin = AdminClient({"bootstrap.servers": own_broker.bootstrap})
    with connect(own_broker) as client:
        alter(client, TOPIC, "orders", ("retention.ms", SET, "77"))
        admin.delete_topics(["orders"])["orders"].result(PATIENCE_S)
        own_broker.create_topic("orders")
        assert value(client, TOPIC, "orders", "retention.ms") == ("7200000", 5)


# Loggers


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    found = logging.getLogger(LOGGER_NAME)
    yield found
    found.setLevel(logging.NOTSET)


def test_the_level_of_a_logger_can_be_changed(client: RawClient, logger: logging.Logger) -> None:
    """A level can be set and described, and takes effect. After it is deleted, the logger follows its parent."""
    assert alter(client, LOGGER, "1", (LOGGER_NAME, SET, "DEBUG"), validate_only=True) == (0, None)
    assert logger.level == logging.NOTSET
    assert alter(client, LOGGER, "1", (LOGGER_NAME, SET, "DEBUG")) == (0, None)
    assert logger.isEnabledFor(logging.DEBUG)
    assert value(client, LOGGER, "1", LOGGER_NAME) == ("DEBUG", 6)
    assert alter(client, LOGGER, "1", (LOGGER_NAME, DELETE, None)) == (0, None)
    assert logger.level == logging.NOTSET
    assert alter(client, LOGGER, "1", ("root", DELETE, None))[0] == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ((LOGGER_NAME, SET, "LOUD"), ErrorCode.INVALID_CONFIG),
        ((LOGGER_NAME, SET, None), ErrorCode.INVALID_REQUEST),
        ((LOGGER_NAME, APPEND, "DEBUG"), ErrorCode.INVALID_REQUEST),
        (("there.is.none.such", SET, "DEBUG"), ErrorCode.INVALID_CONFIG),
    ],
)
def test_invalid_levels_are_refused(
    client: RawClient, logger: logging.Logger, change: tuple[str, int, str | None], code: ErrorCode
) -> None:
    """If one level is refused, no level of the same request is set."""
    answer, message = alter(client, LOGGER, "1", ("root", SET, "OFF"), change)
    assert answer == code
    assert message
    assert value(client, LOGGER, "1", "root")[0] != "OFF"


# AlterConfigs


@pytest.mark.parametrize("version", range(3))
def test_all_settings_are_replaced(client: RawClient, topic: str, version: int) -> None:
    """AlterConfigs: settings that are not named go back to their defaults."""
    alter(client, TOPIC, topic, ("retention.ms", SET, "5"), ("flush.ms", SET, "6"))
    assert replace(client, TOPIC, topic, version=version, segment_ms="8", validate_only=True) == 0
    assert value(client, TOPIC, topic, "flush.ms") == ("6", 1)
    assert replace(client, TOPIC, topic, version=version, flush_ms="7") == 0
    assert value(client, TOPIC, topic, "flush.ms") == ("7", 1)
    assert value(client, TOPIC, topic, "retention.ms") == ("604800000", 5)
    assert replace(client, TOPIC, topic, version=version, flush_ms="x") == ErrorCode.INVALID_CONFIG
    assert replace(client, LOGGER, "1", version=version, root="OFF") == ErrorCode.INVALID_REQUEST
    assert replace(client, BROKER, "1", version=version, node_id="5") == ErrorCode.INVALID_REQUEST


# ListConfigResources


def test_resources_are_listed(client: RawClient, topic: str) -> None:
    """Version 0 knows client metrics only; version 1 any type, all of them if none is named."""

    def listed(*types: int, version: int = 1) -> list[tuple[int, str]]:
        answer = client.request(ListConfigResourcesRequest(resource_types=list(types)), version)
        assert answer.error_code == 0
        return [(each.resource_type, each.resource_name) for each in answer.config_resources]

    assert listed(version=0) == []
    assert {(TOPIC, topic), (BROKER, "1"), (LOGGER, "1")} <= set(listed())
    assert listed(BROKER, LOGGER) == [(BROKER, "1"), (LOGGER, "1")]
    assert {kind for kind, _ in listed(TOPIC)} == {TOPIC}
    assert listed(CLIENT_METRICS, GROUP) == []
    answer = client.request(ListConfigResourcesRequest(resource_types=[TOPIC, 3]), 1)
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION


# A client library


def test_a_client_library_changes_and_describes(own_broker: LocalBroker) -> None:
    """confluent-kafka: incremental changes of a topic and a broker, and both described with their sources."""
    admin = AdminClient({"bootstrap.servers": own_broker.bootstrap})
    topic = ConfigResource(ResourceType.TOPIC, "orders")
    topic.add_incremental_config(ConfigEntry("retention.ms", "1000", incremental_operation=AlterConfigOpType.SET))
    topic.add_incremental_config(
        ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.APPEND)
    )
    broker = ConfigResource(ResourceType.BROKER, "1")
    broker.add_incremental_config(ConfigEntry("message.max.bytes", "2000", incremental_operation=AlterConfigOpType.SET))
    for future in admin.incremental_alter_configs([topic, broker]).values():
        future.result(PATIENCE_S)
    described = {
        resource: future.result(PATIENCE_S) for resource, future in admin.describe_configs([topic, broker]).items()
    }
    assert described[topic]["retention.ms"].value == "1000"
    assert described[topic]["cleanup.policy"].value == "delete,compact"
    assert described[topic]["max.message.bytes"].value == "2000"
    assert described[broker]["message.max.bytes"].source == 2
    assert described[broker]["node.id"].is_read_only
