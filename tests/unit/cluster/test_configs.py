"""Settings changed while brokers run: what is refused and why, and what the changes come to."""

import logging

import pytest

from ottla.cluster import changes as change
from ottla.cluster.changes import ConfigResource, SetFeature
from ottla.cluster.configs import (
    ALL_BROKERS,
    ConfigAlteration,
    Operation,
    alter_brokers,
    alter_topic,
    apply_run_time_settings,
    warn_if_min_isr_is_another,
)
from ottla.cluster.features import COMMON_MIN_ISR_FEATURE
from ottla.cluster.image import EMPTY, Image
from ottla.config import BrokerConfig
from ottla.errors import ErrorCode, KafkaError

SET, DELETE, APPEND, SUBTRACT = Operation
CONFIG = BrokerConfig.of({"node.id": "1"})


def cluster(**topic_settings: str) -> Image:
    changes: list[change.Change] = [change.CreateTopic(b"t" * 16, "orders")]
    changes += [
        change.SetConfig(ConfigResource.TOPIC, "orders", name.replace("_", "."), text)
        for name, text in topic_settings.items()
    ]
    return EMPTY.replay(1, changes)


def topic_after(
    image: Image, *alterations: ConfigAlteration, replace: bool = False, config: BrokerConfig = CONFIG
) -> dict[str, str]:
    decision = alter_topic(image, "orders", alterations, config, replace=replace)
    return dict(image.replay(image.version + 1, decision.changes).topic_configs("orders"))


def broker_after(image: Image, *alterations: ConfigAlteration, name: str = "1", replace: bool = False) -> Image:
    decision = alter_brokers(image, name, alterations, CONFIG, replace=replace)
    return image.replay(image.version + 1, decision.changes)


def topic_refusal(*alterations: ConfigAlteration, name: str = "orders") -> KafkaError:
    with pytest.raises(KafkaError) as refused:
        alter_topic(cluster(), name, alterations, CONFIG)
    return refused.value


def broker_refusal(*alterations: ConfigAlteration, name: str = "1") -> KafkaError:
    with pytest.raises(KafkaError) as refused:
        alter_brokers(cluster(), name, alterations, CONFIG)
    return refused.value


# Topics


def test_one_setting_at_a_time() -> None:
    """The others stay; deleting what is not set, or what nobody knows, is nothing to do."""
    image = cluster(retention_ms="5", flush_ms="6")
    assert topic_after(image, ConfigAlteration("retention.ms", SET, "7")) == {"retention.ms": "7", "flush.ms": "6"}
    assert topic_after(image, ConfigAlteration("retention.ms", DELETE)) == {"flush.ms": "6"}
    nothing = alter_topic(
        image, "orders", [ConfigAlteration("nope", DELETE), ConfigAlteration("flush.ms", SET, "6")], CONFIG
    )
    assert nothing.changes == []


def test_all_settings_at_once() -> None:
    """What is not named goes; the same values again are nothing to do."""
    image = cluster(retention_ms="5", flush_ms="6")
    assert topic_after(image, ConfigAlteration("segment.ms", SET, "7"), replace=True) == {"segment.ms": "7"}
    assert topic_after(image, replace=True) == {}


@pytest.mark.parametrize(
    ("before", "operation", "value", "after"),
    [
        ({}, APPEND, "compact", "delete,compact"),
        ({"cleanup_policy": "compact"}, APPEND, "compact", "compact"),
        ({"cleanup_policy": "compact"}, APPEND, " delete , compact,delete", "compact,delete"),
        ({"cleanup_policy": "compact,delete"}, SUBTRACT, "delete", "compact"),
        ({"cleanup_policy": "compact"}, SUBTRACT, "nope", "compact"),
        ({"cleanup_policy": "compact"}, SUBTRACT, "compact", ""),
    ],
)
def test_lists_grow_and_shrink(before: dict[str, str], operation: Operation, value: str, after: str) -> None:
    """Each item once, in its place; a list that was not set begins as what holds."""
    assert (
        topic_after(cluster(**before), ConfigAlteration("cleanup.policy", operation, value))["cleanup.policy"] == after
    )


def test_a_list_begins_as_what_the_broker_gives() -> None:
    """Not as Kafka's default: the client sees the broker's value and adds to it."""
    config = BrokerConfig.of({"log.cleanup.policy": "compact"})
    wait_for_growth = topic_after(cluster(), ConfigAlteration("cleanup.policy", APPEND, "delete"), config=config)
    assert wait_for_growth == {"cleanup.policy": "compact,delete"}


@pytest.mark.parametrize(
    ("alteration", "code", "said"),
    [
        (ConfigAlteration("retention.ms", SET, "abc"), ErrorCode.INVALID_CONFIG, "not a long"),
        (ConfigAlteration("flush.ms", SET, "-5"), ErrorCode.INVALID_CONFIG, "below the minimum"),
        (ConfigAlteration("retension.ms", SET, "5"), ErrorCode.INVALID_CONFIG, "did you mean 'retention.ms'"),
        (ConfigAlteration("retention.ms", APPEND, "5"), ErrorCode.INVALID_CONFIG, "not a list"),
        (ConfigAlteration("cleanup.policy", APPEND, "foo"), ErrorCode.INVALID_CONFIG, "'foo'"),
        (ConfigAlteration("retention.ms", SET, None), ErrorCode.INVALID_REQUEST, "no value"),
        (ConfigAlteration("cleanup.policy", SUBTRACT, None), ErrorCode.INVALID_REQUEST, "no value"),
        (ConfigAlteration("retention.ms", 9, "5"), ErrorCode.INVALID_REQUEST, "no operation 9"),
    ],
)
def test_what_a_topic_cannot_have(alteration: ConfigAlteration, code: ErrorCode, said: str) -> None:
    """Kafka's codes; the message names the setting and says what is wrong with it."""
    error = topic_refusal(alteration)
    assert error.code is code
    assert said in error.message


def test_a_list_does_not_outgrow_the_wire() -> None:
    """Appended to without end it could never be described again."""
    name = "leader.replication.throttled.replicas"
    image = cluster(leader_replication_throttled_replicas=",".join(f"{number}:1" for number in range(4800)))
    more = ",".join(f"{number}:2" for number in range(100))
    with pytest.raises(KafkaError, match="longer than 32767"):
        topic_after(image, ConfigAlteration(name, APPEND, more))


def test_settings_are_checked_together() -> None:
    """One bad setting refuses all of them, and so do two that contradict each other."""
    error = topic_refusal(ConfigAlteration("flush.ms", SET, "5"), ConfigAlteration("retention.ms", SET, "x"))
    assert error.code is ErrorCode.INVALID_CONFIG
    lags = ConfigAlteration("min.compaction.lag.ms", SET, "9"), ConfigAlteration("max.compaction.lag.ms", SET, "5")
    assert "min.compaction.lag.ms" in topic_refusal(*lags).message
    twice = topic_refusal(ConfigAlteration("flush.ms", SET, "5"), ConfigAlteration("flush.ms", DELETE))
    assert twice.code is ErrorCode.INVALID_REQUEST


def test_topics_that_are_not_there() -> None:
    """There is no setting for all topics at once."""
    assert topic_refusal(name="nope").code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert topic_refusal(name="no name").code is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert topic_refusal(name="").code is ErrorCode.INVALID_REQUEST


# Brokers


def test_one_broker_overrules_all_brokers() -> None:
    """And both overrule what it was started with; taking one away uncovers the next."""
    image = broker_after(cluster(), ConfigAlteration("message.max.bytes", SET, "3000"), name=ALL_BROKERS)
    assert apply_run_time_settings(CONFIG, image).message_max_bytes == 3000
    image = broker_after(image, ConfigAlteration("message.max.bytes", SET, "2000"))
    assert apply_run_time_settings(CONFIG, image).message_max_bytes == 2000
    assert apply_run_time_settings(BrokerConfig.of({"node.id": "2"}), image).message_max_bytes == 3000
    image = broker_after(image, replace=True)
    assert apply_run_time_settings(CONFIG, image).message_max_bytes == 3000


def test_topics_get_their_defaults_from_the_changed_settings() -> None:
    """The broker's topic defaults are those of the new settings."""
    image = broker_after(cluster(), ConfigAlteration("log.retention.ms", SET, "5"))
    assert apply_run_time_settings(CONFIG, image).topic_defaults.retention_ms == 5


@pytest.mark.parametrize(
    ("alteration", "said"),
    [
        (ConfigAlteration("node.id", SET, "4"), "cannot be changed while"),
        (ConfigAlteration("listeners", SET, "PLAINTEXT://:1"), "cannot be changed while"),
        (ConfigAlteration("ssl.keystore.password", SET, "x"), "for one listener only"),
        (ConfigAlteration("message.max.bytes", SET, "x"), "not an int"),
        (ConfigAlteration("message.max.bytes", SET, "-5"), "below the minimum"),
        (ConfigAlteration("log.roll.jitter.ms", SET, "-1"), "below the minimum"),
        (ConfigAlteration("num.io.threads", SET, "17"), "not between 4 and 16"),
        (ConfigAlteration("log.cleaner.min.compaction.lag.ms", SET, str((1 << 63) - 1)), ""),
    ],
)
def test_what_a_broker_cannot_have(alteration: ConfigAlteration, said: str) -> None:
    """INVALID_REQUEST as in Kafka, for one broker and for all."""
    if not said:  # two settings together: the lag may not be above the longest lag
        alterations = [alteration, ConfigAlteration("log.cleaner.max.compaction.lag.ms", SET, "5")]
        said = "log.cleaner.min.compaction.lag.ms"
    else:
        alterations = [alteration]
    for name in ("1", ALL_BROKERS):
        error = broker_refusal(*alterations, name=name)
        assert error.code is ErrorCode.INVALID_REQUEST
        assert said in error.message


def test_threads_are_counted_from_those_in_force() -> None:
    """Twice as many twice in a row are fine. Then not all of them can be taken away at once."""
    image = cluster()
    for count, name in ("16", ALL_BROKERS), ("32", "1"):
        image = broker_after(image, ConfigAlteration("num.io.threads", SET, count), name=name)
    assert dict(image.config(ConfigResource.BROKER, "1")) == {"num.io.threads": "32"}
    image = broker_after(image, ConfigAlteration("num.io.threads", SET, "8"), name=ALL_BROKERS)  # has no effect yet
    for replace in (False, True):
        alterations = [] if replace else [ConfigAlteration("num.io.threads", DELETE)]
        with pytest.raises(KafkaError, match=r"num\.io\.threads: 8 is not between 16 and 64"):
            alter_brokers(image, "1", alterations, CONFIG, replace=replace)


def test_names_for_javas_tls_are_kept() -> None:
    """As in Kafka, they need no listener in front, other than the files with keys."""
    change = ConfigAlteration("ssl.provider", SET, "SunJSSE")
    assert dict(broker_after(cluster(), change).config(ConfigResource.BROKER, "1")) == {"ssl.provider": "SunJSSE"}


@pytest.mark.parametrize("key", ["sasl.kerberos.min.time.before.relogin", "sasl.login.refresh.buffer.seconds"])
def test_a_setting_without_effect_is_kept_where_kafka_changes_it(key: str) -> None:
    """Client suites change such settings because nothing depends on them. As in Kafka, one broker has them, not all."""
    image = broker_after(cluster(), ConfigAlteration(key, SET, "58"))
    assert dict(image.config(ConfigResource.BROKER, "1")) == {key: "58"}
    assert "name a broker" in broker_refusal(ConfigAlteration(key, SET, "58"), name=ALL_BROKERS).message
    assert "sasl" in broker_refusal(ConfigAlteration(key, SET, "soon")).message


def test_a_setting_that_nobody_knows_is_kept(caplog: pytest.LogCaptureFixture) -> None:
    """As in Kafka, for plug-ins and tools. The log has the name that may be meant; a listener's is not for all."""
    for name in ("1", ALL_BROKERS):
        image = broker_after(cluster(), ConfigAlteration("mesage.max.bytes", SET, "4"), name=name)
        assert dict(image.config(ConfigResource.BROKER, name)) == {"mesage.max.bytes": "4"}
        assert apply_run_time_settings(CONFIG, image) == CONFIG
    assert "did you mean 'message.max.bytes'" in caplog.text
    of_listener = ConfigAlteration("listener.name.plaintext.my.plugin.key", SET, "4")
    assert dict(broker_after(cluster(), of_listener).config(ConfigResource.BROKER, "1")) == {of_listener.name: "4"}
    assert "name a broker" in broker_refusal(of_listener, name=ALL_BROKERS).message


@pytest.mark.parametrize(
    ("alteration", "name", "said"),
    [
        (ConfigAlteration("min.insync.replicas", SET, "2"), "1", "the same for all brokers"),
        (ConfigAlteration("min.insync.replicas", DELETE), "1", "the same for all brokers"),
        (ConfigAlteration("min.insync.replicas", DELETE), ALL_BROKERS, "always set"),
        (ConfigAlteration("min.insync.replicas", SET, "2"), ALL_BROKERS, ""),
    ],
)
def test_min_insync_replicas_of_a_cluster(alteration: ConfigAlteration, name: str, said: str) -> None:
    """With the feature for it, all brokers have the same one, and cannot lose it. Without, it is as other settings."""
    image = broker_after(cluster(), ConfigAlteration("min.insync.replicas", SET, "1"), name=ALL_BROKERS)
    broker_after(image, alteration, name=name)
    with_feature = image.replay(image.version + 1, [SetFeature(COMMON_MIN_ISR_FEATURE, 1)])
    if said:
        with pytest.raises(KafkaError, match=said) as refused:
            broker_after(with_feature, alteration, name=name)
        assert refused.value.code is ErrorCode.INVALID_CONFIG
    else:
        after = broker_after(with_feature, alteration, name=name)
        assert dict(after.config(ConfigResource.BROKER, "")) == {"min.insync.replicas": "2"}
    with pytest.raises(KafkaError, match="below the minimum") as refused:  # what is no value at all is said first
        broker_after(with_feature, ConfigAlteration("min.insync.replicas", SET, "0"), name=name)
    assert refused.value.code is ErrorCode.INVALID_REQUEST


def test_a_file_does_not_change_the_min_insync_replicas_of_a_cluster(caplog: pytest.LogCaptureFixture) -> None:
    """The log says so, with the number in force."""
    image = broker_after(cluster(), ConfigAlteration("min.insync.replicas", SET, "1"), name=ALL_BROKERS)
    for given, warnings in ({"min.insync.replicas": "2"}, 1), ({"min.insync.replicas": "1"}, 1), ({}, 1):
        config = BrokerConfig.of({"node.id": "1"} | given)
        warn_if_min_isr_is_another(config, apply_run_time_settings(config, image))
        assert len(caplog.records) == warnings
    assert "min.insync.replicas=2 has no effect: the cluster has 1" in caplog.text


def test_a_fixed_setting_may_be_deleted() -> None:
    """Nothing changes by it, and tools that reset everything do so."""
    assert alter_brokers(cluster(), "1", [ConfigAlteration("num.partitions", DELETE)], CONFIG).changes == []


@pytest.mark.parametrize("name", ["2", "x", "01", "-1"])
def test_a_broker_decides_for_itself_and_for_all(name: str) -> None:
    """Not for another one, whose file it does not know."""
    assert broker_refusal(ConfigAlteration("message.max.bytes", SET, "5"), name=name).code is ErrorCode.INVALID_REQUEST


def test_settings_that_no_longer_fit_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    """A broker that is started with other settings than last time starts, and says what it leaves out."""
    image = broker_after(
        cluster(),
        ConfigAlteration("log.cleaner.min.compaction.lag.ms", SET, "100"),
        ConfigAlteration("message.max.bytes", SET, "7"),
    )
    other = BrokerConfig.of({"node.id": "1", "log.cleaner.max.compaction.lag.ms": "50"})
    with caplog.at_level(logging.ERROR):
        config = apply_run_time_settings(other, image)
    assert (config.message_max_bytes, config.log_cleaner_min_compaction_lag_ms) == (7, 0)
    assert "log.cleaner.min.compaction.lag.ms" in caplog.text
