"""Settings of a group: names, limits, and sources."""

import pytest

from ottla.config import BrokerConfig, ConfigError, ConfigSource, GroupConfig
from ottla.config.description import describe_group

BROKER = BrokerConfig.of({"group.consumer.session.timeout.ms": "46000", "group.share.delivery.count.limit": "7"})


def test_defaults_come_from_the_broker() -> None:
    """A setting that the group does not have comes from the broker; without one there it is Kafka's default."""
    config = GroupConfig.of({}, BROKER)
    assert config.consumer_session_timeout_ms == 46_000
    assert config.share_delivery_count_limit == 7
    assert config.share_auto_offset_reset == "latest"


def test_all_settings_of_kafka() -> None:
    """There are 17 settings of groups, as in Kafka 4.3."""
    assert len(GroupConfig.table) == 17


def test_each_setting_has_its_source() -> None:
    """The group's own value has the group as its source, and lists what it overrides. The others have their own
    source."""
    found = {each.name: each for each in describe_group({"consumer.session.timeout.ms": "50000"}, BROKER)}
    session = found["consumer.session.timeout.ms"]
    assert (session.value, session.source) == ("50000", ConfigSource.GROUP)
    assert [(each.name, each.value, each.source) for each in session.contributions] == [
        ("consumer.session.timeout.ms", "50000", ConfigSource.GROUP),
        ("group.consumer.session.timeout.ms", "46000", ConfigSource.STARTED_WITH),
        ("group.consumer.session.timeout.ms", "45000", ConfigSource.DEFAULT),
    ]
    assert found["share.delivery.count.limit"].source == ConfigSource.STARTED_WITH
    assert found["share.isolation.level"].source == ConfigSource.DEFAULT
    assert found["consumer.heartbeat.interval.ms"].source == ConfigSource.DEFAULT


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("consumer.session.timeout.ms", "44999", "below group.consumer.min.session.timeout.ms"),
        ("consumer.session.timeout.ms", "60001", "above group.consumer.max.session.timeout.ms"),
        ("consumer.assignment.interval.ms", "15001", "above group.consumer.max.assignment.interval.ms"),
        ("share.record.lock.duration.ms", "60001", "above group.share.max.record.lock.duration.ms"),
        ("streams.num.standby.replicas", "3", "above group.streams.max.standby.replicas"),
        ("consumer.session.timeout.ms", "no", "is not an int"),
        ("share.auto.offset.reset", "by_duration:PT", "is not one of"),
        ("share.auto.offset.reset", "by_duration:-P1D", "is not one of"),
        ("consumer.sesion.timeout.ms", "50000", "did you mean 'consumer.session.timeout.ms'"),
    ],
)
def test_invalid_settings_are_refused(name: str, text: str, problem: str) -> None:
    """A value of the wrong type, outside of the broker's limits or of an unknown setting is refused with the reason."""
    with pytest.raises(ConfigError, match=problem):
        GroupConfig.of({name: text}, BROKER).check_together(BROKER)


@pytest.mark.parametrize("text", ["earliest", "latest", "by_duration:P1D", "by_duration:PT1H", "by_duration:P1DT0.5S"])
def test_offset_resets(text: str) -> None:
    """Every format in which Kafka lets a share group say where it begins."""
    assert GroupConfig.of({"share.auto.offset.reset": text}, BROKER).share_auto_offset_reset == text


def test_a_session_must_be_longer_than_a_heartbeat_interval() -> None:
    """Each value is within its limits, but a session must be longer than a heartbeat interval."""
    broker = BrokerConfig.of(
        {"group.consumer.max.heartbeat.interval.ms": "60000", "group.consumer.min.session.timeout.ms": "1000"}
    )
    with pytest.raises(ConfigError, match=r"is not above consumer\.heartbeat\.interval\.ms"):
        GroupConfig.of({"consumer.heartbeat.interval.ms": "46000"}, broker).check_together(broker)
