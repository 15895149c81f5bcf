"""Topic settings: the broker's defaults, a topic's own overrides, and what is refused."""

import pytest

from ottla.config import BrokerConfig, ConfigError, TopicConfig

REFUSALS = [
    ({"segment.byte": "1"}, "unknown topic setting 'segment.byte'; did you mean 'segment.bytes'?"),
    ({"segment.bytes": "100"}, "segment.bytes: 100 is below the minimum 1048576"),
    ({"retention.ms": "-2"}, "retention.ms: -2 is below the minimum -1"),
    ({"cleanup.policy": "Compact"}, "cleanup.policy: 'Compact' is not one of compact, delete"),
    (
        {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"},
        "min.compaction.lag.ms: 10 is above max.compaction.lag.ms (5)",
    ),
    (
        {"leader.replication.throttled.replicas": "x:1"},
        "leader.replication.throttled.replicas: 'x:1' is neither * nor a list of <partition>:<broker>",
    ),
    ({"remote.storage.enable": "true"}, "remote.storage.enable: there is no tiered storage in this cluster"),
]


@pytest.mark.parametrize(("overrides", "message"), REFUSALS, ids=lambda value: str(value)[:60])
def test_a_wrong_override_is_refused_in_one_line(overrides: dict[str, str], message: str) -> None:
    """What Apache Kafka 4.3.1's own validation refuses is refused here."""
    with pytest.raises(ConfigError) as refusal:
        TopicConfig.of(overrides, BrokerConfig.of({})).check_together()
    assert str(refusal.value) == message


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("cleanup.policy", ""),
        ("cleanup.policy", " compact , delete "),
        ("cleanup.policy", "delete,delete"),
        ("preallocate", "TRUE"),
        ("flush.ms", "+5"),
        ("leader.replication.throttled.replicas", "*"),
        ("follower.replication.throttled.replicas", "1:2,3:4"),
        ("retention.bytes", "-5"),
        ("min.cleanable.dirty.ratio", "5e-1f"),
    ],
)
def test_values_that_kafka_accepts_are_accepted(name: str, value: str) -> None:
    """Apache Kafka 4.3.1's own validation accepts these values."""
    TopicConfig.of({name: value}, BrokerConfig.of({})).check_together()


def test_a_value_that_a_list_names_twice_counts_once() -> None:
    """Such a topic is compacted only, so its records cannot be deleted."""
    assert TopicConfig.of({"cleanup.policy": "compact, compact"}, BrokerConfig.of({})).cleanup_policy == ("compact",)


def test_topics_without_overrides_share_one_object() -> None:
    """100,000 plain topics cost one set of values."""
    broker = BrokerConfig.of({})
    assert TopicConfig.of({}, broker) is TopicConfig.of({}, broker)
    own = TopicConfig.of({"segment.bytes": "2097152"}, broker)
    assert (own.segment_bytes, own.retention_ms) == (2097152, 604_800_000)
    assert own.given == {"segment.bytes": "2097152"}
    assert TopicConfig.of({}, broker).segment_bytes == 1 << 30


@pytest.mark.parametrize(
    ("broker", "retention_ms"),
    [
        ({}, 604_800_000),
        ({"log.retention.hours": "2"}, 7_200_000),
        ({"log.retention.hours": "-1"}, -1),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, 180_000),
        ({"log.retention.minutes": "3", "log.retention.ms": "4"}, 4),
    ],
)
def test_the_finer_unit_wins(broker: dict[str, str], retention_ms: int) -> None:
    """log.retention.ms before minutes before hours; below zero is unlimited in every unit."""
    assert TopicConfig.of({}, BrokerConfig.of(broker)).retention_ms == retention_ms


def test_every_default_comes_from_a_broker_setting_that_exists() -> None:
    """A synonym that no broker has would fail at the first topic. Defaults agree with Kafka's table."""
    defaults = BrokerConfig.of({}).topic_defaults
    for name, setting in TopicConfig.table.items():
        assert defaults.value(name) == setting.default, name
        assert all(synonym.name in BrokerConfig.table for synonym in setting.synonyms), name
    assert len(TopicConfig.table) == 34


def test_broker_settings_reach_topics() -> None:
    """Each kind of synonym: the same name, another name, another unit."""
    broker = BrokerConfig.of(
        {"min.insync.replicas": "2", "message.max.bytes": "5", "log.roll.hours": "1", "log.flush.interval.ms": "9"}
    )
    topic = TopicConfig.of({}, broker)
    assert (topic.min_insync_replicas, topic.max_message_bytes, topic.segment_ms) == (2, 5, 3_600_000)
    assert topic.flush_ms == 9
