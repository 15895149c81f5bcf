"""Descriptions of settings for clients: which source set which value, in which order, and what is never shown."""

import pytest

from ottla.config import BrokerConfig, ConfigSource, TopicConfig, UpdateMode
from ottla.config.accepted import ACCEPTED
from ottla.config.description import (
    NO_EFFECT,
    Description,
    TopicDescriptions,
    describe_all_brokers,
    describe_broker,
    describe_client_metrics,
    describe_group,
)

TOPIC, ONE, ALL = ConfigSource.TOPIC, ConfigSource.ONE_BROKER, ConfigSource.ALL_BROKERS
FILE, DEFAULT = ConfigSource.STARTED_WITH, ConfigSource.DEFAULT


def of_topic(name: str, broker: BrokerConfig, **overrides: str) -> Description:
    own = {key.replace("_", "."): text for key, text in overrides.items()}
    (found,) = (each for each in TopicDescriptions(broker).of(own) if each.name == name)
    return found


def of_broker(name: str, config: BrokerConfig) -> Description:
    (found,) = (each for each in describe_broker(config) if each.name == name)
    return found


def test_each_layer_overrides_the_ones_below() -> None:
    """The layers are topic, this broker, all brokers, the file, Kafka's default. The strongest is the value, and all
    are listed."""
    broker = BrokerConfig.of({"message.max.bytes": "4000"}).with_run_time_settings(
        {"message.max.bytes": "3000"}, {"message.max.bytes": "2000"}
    )
    layers = [
        ("message.max.bytes", "2000", ONE),
        ("message.max.bytes", "3000", ALL),
        ("message.max.bytes", "4000", FILE),
        ("message.max.bytes", "1048588", DEFAULT),
    ]
    own = of_topic("max.message.bytes", broker, max_message_bytes="1000")
    assert (own.value, own.source) == ("1000", TOPIC)
    assert list(own.contributions) == [("max.message.bytes", "1000", TOPIC), *layers]
    inherited = of_topic("max.message.bytes", broker)
    assert (inherited.value, inherited.source) == ("2000", ONE)
    assert list(inherited.contributions) == layers
    assert of_broker("message.max.bytes", broker).contributions == inherited.contributions


MS, MINUTES, HOURS = "log.retention.ms", "log.retention.minutes", "log.retention.hours"


@pytest.mark.parametrize(
    ("file", "all_brokers", "this_broker", "value", "origin", "contributions"),
    [
        ({}, {}, {}, "604800000", DEFAULT, []),
        ({HOURS: "1"}, {}, {}, "3600000", FILE, []),
        ({HOURS: "1", MINUTES: "1"}, {}, {}, "60000", FILE, []),
        ({MS: "9"}, {}, {}, "9", FILE, [(MS, "9", FILE), (HOURS, "168", DEFAULT)]),
        ({HOURS: "1"}, {MS: "5"}, {}, "5", ALL, [(MS, "5", ALL), (HOURS, "1", FILE), (HOURS, "168", DEFAULT)]),
        (
            {MS: "7", MINUTES: "2"},
            {MS: "5"},
            {MS: "3"},
            "3",
            ONE,
            [(MS, "3", ONE), (MS, "5", ALL), (MS, "7", FILE), (MINUTES, "2", FILE), (HOURS, "168", DEFAULT)],
        ),
    ],
)
def test_a_topic_setting_has_synonyms_of_the_broker(
    file: dict[str, str],
    all_brokers: dict[str, str],
    this_broker: dict[str, str],
    value: str,
    origin: ConfigSource,
    contributions: list[tuple[str, str, ConfigSource]],
) -> None:
    """retention.ms comes from the broker's ms, minutes or hours. CreateTopics answers with where it comes from;
    DescribeConfigs, as in Kafka, lists minutes and hours only below ms, and calls the rest a default."""
    broker = BrokerConfig.of(file).with_run_time_settings(all_brokers, this_broker)
    found = of_topic("retention.ms", broker)
    assert (found.value, found.origin, list(found.contributions)) == (value, origin, contributions)
    assert found.source == (contributions[0][2] if contributions else DEFAULT)
    own = of_topic("retention.ms", broker, retention_ms=" 8 ")
    assert (own.source, own.origin) == (TOPIC, TOPIC)
    assert list(own.contributions) == [("retention.ms", "8", TOPIC), *contributions]
    assert list(of_broker(MS, broker).contributions) == contributions


def test_a_broker_setting_lists_its_synonyms() -> None:
    """log.retention.minutes lists the settings that would count without it, in their own units, and no stronger ones.
    It lists none if it is not set itself."""
    config = BrokerConfig.of({MINUTES: "4", HOURS: "2"}).with_run_time_settings({MS: "5"}, {})
    hours = [(HOURS, "2", FILE), (HOURS, "168", DEFAULT)]
    assert list(of_broker(MINUTES, config).contributions) == [(MINUTES, "4", FILE), *hours]
    assert list(of_broker(HOURS, config).contributions) == hours
    unset = of_broker(MINUTES, BrokerConfig.of({HOURS: "2"}))
    assert (unset.source, unset.contributions) == (DEFAULT, ())


def test_values_of_groups_and_subscriptions_are_shown_as_they_are_understood() -> None:
    """A synonym of a group or of client metrics has no blanks around it, though it was set with some."""
    (timeout,) = (
        each
        for each in describe_group({"consumer.session.timeout.ms": " 50000 "}, BrokerConfig.of({}))
        if each.name == "consumer.session.timeout.ms"
    )
    assert timeout.contributions[0] == (timeout.name, "50000", ConfigSource.GROUP)
    (metrics,) = (each for each in describe_client_metrics({"metrics": "a. , b."}) if each.name == "metrics")
    assert metrics.contributions == (("metrics", "a.,b.", ConfigSource.CLIENT_METRICS),)


def test_a_setting_without_effect_shows_its_default() -> None:
    """Also one whose name begins like those of plug-ins, which have no default."""
    interval = of_broker("kafka.metrics.polling.interval.secs", BrokerConfig.of({}))
    assert (interval.value, interval.source) == ("10", DEFAULT)
    assert of_broker("kafka.metrics.reporters", BrokerConfig.of({})).value == ""


def test_passwords_are_never_shown() -> None:
    """Neither the value nor its sources contain a password (CVE-2019-12399)."""
    config = BrokerConfig.of({"ssl.keystore.password": "swordfish"})
    found = of_broker("ssl.keystore.password", config)
    assert (found.value, found.sensitive, found.source) == (None, True, FILE)
    assert found.contributions == (("ssl.keystore.password", None, FILE),)
    everything = repr([*describe_broker(config), *describe_all_brokers({"ssl.keystore.password": "swordfish"})])
    assert "swordfish" not in everything


def test_a_setting_that_nobody_knows_may_be_a_secret() -> None:
    """It is listed with its source, without value and type, and as one that no broker can change: as by Kafka."""
    config = BrokerConfig.of({}).with_run_time_settings({}, {"my.plugin.key": "swordfish"})
    found = of_broker("my.plugin.key", config)
    assert (found.value, found.sensitive, found.read_only, found.kind) == (None, True, True, "")
    assert found.contributions == (("my.plugin.key", None, ConfigSource.ONE_BROKER),)
    (found,) = describe_all_brokers({"my.plugin.key": "swordfish"})
    assert (found.value, found.source, found.kind) == (None, ALL, "")


def test_every_setting_is_described() -> None:
    """All settings of Kafka 4.3 are described, with type and text. A setting is read-only unless the table says
    otherwise."""
    described = {each.name: each for each in describe_broker(BrokerConfig.of({}))}
    assert set(BrokerConfig.table) < set(described)
    assert {name for name, entry in ACCEPTED.items() if not entry.hidden} < set(described)
    for hidden in ("zookeeper.sync.time.ms", "unstable.api.versions.enable", "internal.metadata.log.segment.bytes"):
        assert hidden not in described
    assert all(each.kind and each.documentation for each in described.values())
    for name, setting in BrokerConfig.table.items():
        assert described[name].read_only == (setting.mode is UpdateMode.READ_ONLY), name
    assert described["num.io.threads"].documentation == NO_EFFECT
    assert not described["num.io.threads"].read_only
    assert len(list(TopicDescriptions(BrokerConfig.of({})).of({}))) == len(TopicConfig.table) - 1


def test_some_settings_are_hidden_until_they_are_set() -> None:
    """Kafka's internal settings, and broker settings that Kafka itself no longer lists."""
    broker = BrokerConfig.of({"port": "7", "unstable.api.versions.enable": "true"})
    assert of_broker("port", broker).value == "7"
    assert of_broker("unstable.api.versions.enable", broker).value == "true"
    assert of_topic("internal.segment.bytes", broker, internal_segment_bytes="99").value == "99"


def test_topics_do_not_see_each_other() -> None:
    """One object describes many topics. A setting of one topic does not appear at the next."""
    topics = TopicDescriptions(BrokerConfig.of({}))
    first = {each.name: each.value for each in topics.of({"flush.ms": "5"})}
    second = {each.name: each.value for each in topics.of({"retention.ms": "6"})}
    assert (first["flush.ms"], first["retention.ms"]) == ("5", "604800000")
    assert (second["flush.ms"], second["retention.ms"]) == ("9223372036854775807", "6")


def test_only_requested_settings_are_described() -> None:
    """The other settings of the broker are not computed."""
    found = describe_broker(BrokerConfig.of({}), {"node.id", "num.io.threads", "nope"})
    assert [each.name for each in found] == ["node.id", "num.io.threads"]


def test_all_brokers_show_only_what_was_set() -> None:
    """They are sorted by name, and each has only that source."""
    found = list(describe_all_brokers({"message.max.bytes": "5", "log.retention.ms": "6"}))
    assert [(each.name, each.value, each.source) for each in found] == [
        ("log.retention.ms", "6", ALL),
        ("message.max.bytes", "5", ALL),
    ]
    assert found[0].contributions == (("log.retention.ms", "6", ALL),)


def test_run_time_layers_are_replaced_not_piled_up() -> None:
    """A second call starts from the settings with which the broker was started."""
    config = BrokerConfig.of({"num.partitions": "3"}).with_run_time_settings({"message.max.bytes": "5"}, {})
    again = config.with_run_time_settings({}, {"log.retention.ms": "9"})
    assert again.message_max_bytes == BrokerConfig.of({}).message_max_bytes
    assert (again.num_partitions, again.log_retention_ms) == (3, 9)
    assert again.with_run_time_settings({}, {}) == BrokerConfig.of({"num.partitions": "3"})


@pytest.mark.parametrize("given", ["node.id", "broker.id"])
def test_a_broker_shows_its_number_by_both_names(given: str) -> None:
    found = {each.name: each for each in describe_broker(BrokerConfig.of({given: "7"}))}
    assert (found["node.id"].value, found["broker.id"].value) == ("7", "7")
    assert {found[name].source for name in ("node.id", "broker.id")} == {ConfigSource.STARTED_WITH}
    assert found["node.id"].contributions == (("node.id", "7", FILE), ("node.id", "1", DEFAULT))
    assert found["broker.id"].contributions == (("broker.id", "7", FILE), ("broker.id", "-1", DEFAULT))
