"""Broker settings: Kafka's names and syntax, refusals in one line."""

import re
from pathlib import Path

import pytest

from ottla.config import BrokerConfig, ConfigError, UpdateMode, read_properties, render
from ottla.config.accepted import ACCEPTED
from ottla.config.topic import TopicConfig

ROOT = Path(__file__).parents[3]

REFUSALS = [
    ({"log.segmnet.bytes": "1"}, "unknown setting 'log.segmnet.bytes'; did you mean 'log.segment.bytes'?"),
    ({"qqqqqqqqqqqqqqq": "1"}, "unknown setting 'qqqqqqqqqqqqqqq'"),
    ({"log.segment.bytes": "abc"}, "log.segment.bytes: 'abc' is not an int"),
    ({"log.segment.bytes": "1_048_576"}, "log.segment.bytes: '1_048_576' is not an int"),
    ({"log.segment.bytes": "2147483648"}, "log.segment.bytes: '2147483648' is not an int"),
    ({"log.segment.bytes": ""}, "log.segment.bytes: '' is not an int"),
    ({"log.segment.bytes": "12"}, "log.segment.bytes: 12 is below the minimum 1048576"),
    ({"log.retention.ms": "99999999999999999999"}, "log.retention.ms: '99999999999999999999' is not a long"),
    ({"offsets.topic.replication.factor": "40000"}, "offsets.topic.replication.factor: '40000' is not a short"),
    ({"auto.create.topics.enable": "yes"}, "auto.create.topics.enable: 'yes' is not a boolean (true or false)"),
    ({"log.cleaner.min.cleanable.ratio": "x"}, "log.cleaner.min.cleanable.ratio: 'x' is not a double"),
    ({"log.cleaner.min.cleanable.ratio": "1.5"}, "log.cleaner.min.cleanable.ratio: 1.5 is not between 0 and 1"),
    ({"log.cleanup.policy": "keep"}, "log.cleanup.policy: 'keep' is not one of compact, delete"),
    ({"log.message.timestamp.type": "x"}, "log.message.timestamp.type: 'x' is not one of CreateTime, LogAppendTime"),
    ({"compression.gzip.level": "0"}, "compression.gzip.level: 0 is not between 1 and 9 or -1"),
    ({"num.io.threads": "many"}, "num.io.threads: 'many' is not an int"),
    ({"num.io.threads": "0"}, "num.io.threads: 0 is below the minimum 1"),
    ({"log.cleaner.threads": "-1"}, "log.cleaner.threads: -1 is below the minimum 0"),
    ({"node.id": "1", "broker.id": "2"}, "broker.id: 2 differs from node.id (1)"),
    ({"log.retention.ms": "0"}, "log.retention.ms: 0 is not a length of time; -1 means no limit"),
    ({"log.roll.ms": "-1"}, "log.roll.ms: -1 is below the minimum 1"),
    (
        {"group.min.session.timeout.ms": "5", "group.max.session.timeout.ms": "4"},
        "group.min.session.timeout.ms: 5 is above group.max.session.timeout.ms (4)",
    ),
]


@pytest.mark.parametrize(("given", "message"), REFUSALS, ids=lambda value: str(value)[:60])
def test_a_wrong_setting_is_refused_in_one_line(given: dict[str, str], message: str) -> None:
    """The line names the setting, the problem, and the nearest correct name."""
    with pytest.raises(ConfigError) as refusal:
        BrokerConfig.of(given)
    assert str(refusal.value) == message


@pytest.mark.parametrize(
    ("name", "value"), [("zookeeper.ssl.keystore.type", "JKS"), ("replica.selector.class", "com.example.Chooser")]
)
def test_what_would_change_safety_or_placement_is_refused(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=name):
        BrokerConfig.of({name: value})


def test_kafka_syntax_of_values() -> None:
    """Blanks around a value never count, booleans have no case, lists are split at commas."""
    config = BrokerConfig.of(
        {
            "auto.create.topics.enable": " FALSE ",
            "num.partitions": " +7 ",
            "log.cleanup.policy": "compact , delete",
            "log.cleaner.min.cleanable.ratio": "2.5e-1",
            "log.dirs": "",
        }
    )
    assert config.auto_create_topics_enable is False
    assert config.num_partitions == 7
    assert config.log_cleanup_policy == ("compact", "delete")
    assert config.log_cleaner_min_cleanable_ratio == 0.25
    assert config.log_dirs == ()
    assert config.value("num.partitions") == 7


def test_every_setting_of_kafka_is_accepted_with_its_default() -> None:
    """A file that spells out every default reads into the same values as an empty one."""
    empty = BrokerConfig.of({})
    text = {name: render(value) for name, value in (*empty.items(), *((name, empty.value(name)) for name in ACCEPTED))}
    spelled = {name: value for name, value in text.items() if value is not None and value != ""}
    spelled.pop("security.inter.broker.protocol")  # naming both this and the listener is refused, as in Kafka
    assert BrokerConfig.of(spelled) == empty
    assert len(spelled) > 300
    assert not set(BrokerConfig.table) & set(ACCEPTED)


def test_a_kraft_file_works() -> None:
    """KRaft's own names are accepted; its controller listener is not opened."""
    config = BrokerConfig.of(
        {
            "process.roles": "broker,controller",
            "node.id": "3",
            "controller.quorum.voters": "3@localhost:9093",
            "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
            "advertised.listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "listener.name.plaintext.sasl.enabled.mechanisms": "PLAIN",
        }
    )
    assert config.node_id == 3
    assert [listener.port for listener in config.endpoints.bound] == [9092]
    assert config.endpoints.advertised is not None
    assert [listener.host for listener in config.endpoints.advertised] == ["localhost"]


def test_old_names_are_accepted_for_new_ones() -> None:
    """broker.id gives node.id, log.dir gives log.dirs."""
    config = BrokerConfig.of({"broker.id": "7", "log.dir": "/data", "zookeeper.connect": "one:2181"})
    assert (config.node_id, config.log_dirs, config.zookeeper_connect) == (7, ("/data",), "one:2181")
    assert BrokerConfig.of({"broker.id": "-1"}).node_id == BrokerConfig.of({}).node_id


def test_a_zookeeper_file_works() -> None:
    """The server.properties that came with Apache Kafka 3 starts a broker of a cluster."""
    file = """
    broker.id=0
    num.network.threads=3
    num.io.threads=8
    socket.send.buffer.bytes=102400
    log.dirs=/tmp/kafka-logs
    num.partitions=1
    offsets.topic.replication.factor=1
    zookeeper.connect=localhost:2181/kafka
    zookeeper.connection.timeout.ms=18000
    controlled.shutdown.max.retries=2
    leader.imbalance.per.broker.percentage=20
    """
    config = BrokerConfig.of(read_properties(file))
    assert (config.node_id, config.zookeeper_connect) == (0, "localhost:2181/kafka")
    assert config.zookeeper_connection_timeout_ms == 18_000
    assert config.controlled_shutdown_max_retries == 2
    assert config.value("leader.imbalance.per.broker.percentage") == 20


def test_settings_are_frozen_and_compare_by_value() -> None:
    """A setting cannot be changed in place; a change makes a new object."""
    config = BrokerConfig.of({})
    with pytest.raises(AttributeError):
        config.num_partitions = 3
    changed = config.with_changes({"num.partitions": "3"})
    assert (config.num_partitions, changed.num_partitions) == (1, 3)
    assert changed != config
    assert changed.with_changes({"num.partitions": None}) == config
    assert hash(changed.with_changes({"num.partitions": None})) == hash(config)


def test_the_table_describes_each_setting() -> None:
    """DescribeConfigs finds type, default, doc, update mode; every row has a doc."""
    setting = BrokerConfig.table["log.segment.bytes"]
    assert (setting.kind.name, setting.default, setting.mode) == ("int", 1 << 30, UpdateMode.CLUSTER_WIDE)
    assert BrokerConfig.num_partitions is BrokerConfig.table["num.partitions"]
    assert all(entry.doc for entry in BrokerConfig.table.values())
    assert not setting.sensitive


CHECKED_ONLY = {
    "principal.builder.class",
    "sasl.server.callback.handler.class",
    "ssl.engine.factory.class",
    "ssl.protocol",
    "zookeeper.ssl.keystore.type",
    "zookeeper.ssl.truststore.type",
}
"""Settings whose effect is that a broker with another value, which would ask for what is not there, does not start."""


def test_every_setting_of_the_table_is_read() -> None:
    """A setting that nothing reads has no effect, and belongs to the accepted ones."""
    sources = [path for path in (ROOT / "src").rglob("*.py") if not path.name.endswith("_table.py")]
    attributes: set[str] = set()
    names = set(CHECKED_ONLY)
    for path in sources:
        text = path.read_text()
        attributes.update(re.findall(r"\.(\w+)", text))
        if path.parent.name != "config":  # where each table and what belongs together is named
            names.update(re.findall(r'"([a-z0-9.]+)"', text))
    synonyms = (synonym for setting in TopicConfig.table.values() for synonym in setting.synonyms)
    names.update(synonym.name for synonym in synonyms)
    for name in ("assignment.interval.ms", "heartbeat.interval.ms", "session.timeout.ms"):  # GroupConfig.in_force
        names.update(f"group.consumer.{limit}{name}" for limit in ("", "min.", "max."))
    unread = [
        name
        for name, setting in BrokerConfig.table.items()
        if name not in names and setting.attribute not in attributes
    ]
    assert unread == []


def test_a_value_renders_as_kafka_writes_it() -> None:
    """DescribeConfigs answers with this text."""
    rendered = [render(value) for value in (True, None, 5, ("a", "b"), (), "x", 0.5, 1.7976931348623157e308)]
    assert rendered == ["true", None, "5", "a,b", "", "x", "0.5", "1.7976931348623157E308"]
