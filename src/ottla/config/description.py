"""Settings as DescribeConfigs shows them: the value, where it was set, and the values that it overrides.

A value may come from several places, the strongest first: the topic, this broker at run time, all brokers at run time,
the properties file, Kafka's default. A topic setting gets its default from a broker setting, which may have another
unit; some broker settings replace each other (log.retention.ms, .minutes, .hours).
"""

from collections.abc import Container, Iterator, Mapping
from functools import cached_property
from itertools import dropwhile
from typing import Any, NamedTuple

from ottla.config.accepted import ACCEPTED, Accepted
from ottla.config.broker import BrokerConfig
from ottla.config.client_metrics import ClientMetricsConfig
from ottla.config.group import GroupConfig
from ottla.config.security_table import split_listener_key
from ottla.config.settings import ConfigSource, Setting, UpdateMode, render
from ottla.config.topic import TopicConfig

NO_EFFECT = "Accepted so that files and scripts for Apache Kafka work. It has no effect in Ottla."


UNKNOWN = Accepted("unknown password -", hidden=True)
"""A setting that no table has, such as one of a plug-in for Apache Kafka. It may be a secret."""


class Contribution(NamedTuple):
    """A value of a setting at one of the places where it can be set. Kafka calls it a synonym."""

    name: str
    value: str | None
    source: ConfigSource


class Description(NamedTuple):
    name: str
    value: str | None
    source: ConfigSource
    contributions: tuple[Contribution, ...]
    kind: str
    documentation: str
    read_only: bool = False
    sensitive: bool = False
    origin: ConfigSource = ConfigSource.DEFAULT
    """Of a topic setting: where its value really comes from. As in Kafka, CreateTopics answers with the origin, and
    DescribeConfigs with `source`, which is DEFAULT for retention.ms if only log.retention.hours is set."""


class TopicDescriptions:
    """Describes the settings of any number of topics. The defaults, which all topics share, are looked up once."""

    def __init__(self, broker: BrokerConfig) -> None:
        self.broker = broker

    def of(self, overrides: Mapping[str, str]) -> Iterator[Description]:
        """Every setting of a topic, by name. Settings that are internal to Kafka only if they are set."""
        own = TopicConfig.of(overrides, self.broker)
        for inherited in self._inherited:
            name = inherited.name
            if name in overrides:
                value, source = render(own.value(name)), ConfigSource.TOPIC
                contributions = (Contribution(name, value, source), *inherited.contributions)
                yield inherited._replace(value=value, source=source, contributions=contributions, origin=source)
            elif not name.startswith("internal."):
                yield inherited

    @cached_property
    def _inherited(self) -> list[Description]:
        """The description of a topic without overrides."""
        broker, found = self.broker, []
        for name, value in broker.topic_defaults.items():
            setting = TopicConfig.table[name]
            names = tuple(synonym.name for synonym in setting.synonyms)
            origin = _find_source(next((each for each in names if broker.value(each) is not None), None), broker)
            contributions = _list_contributions(names, broker)
            source = contributions[0].source if contributions else ConfigSource.DEFAULT
            inherited = Description(name, render(value), source, contributions, setting.kind.name, setting.doc)
            found.append(inherited._replace(origin=origin))
        return found


def describe_group(overrides: Mapping[str, str], broker: BrokerConfig) -> Iterator[Description]:
    """Every setting of a group, by name."""
    for name, value in GroupConfig.of(overrides, broker).items():
        setting = GroupConfig.table[name]
        names = tuple(synonym.name for synonym in setting.synonyms)
        contributions: tuple[Contribution, ...] = (Contribution(name, render(setting.default), ConfigSource.DEFAULT),)
        source = ConfigSource.DEFAULT
        if names:
            contributions, source = _list_contributions(names, broker), _find_source(names[0], broker)
        if name in overrides:
            source = ConfigSource.GROUP
            contributions = (Contribution(name, render(value), source), *contributions)
        yield Description(name, render(value), source, contributions, setting.kind.name, setting.doc)


def describe_client_metrics(given: Mapping[str, str]) -> Iterator[Description]:
    """Every setting of a subscription, by name."""
    for name, value in ClientMetricsConfig.of(given).items():
        setting = ClientMetricsConfig.table[name]
        own = (Contribution(name, render(value), ConfigSource.CLIENT_METRICS),) if name in given else ()
        source = own[0].source if own else ConfigSource.DEFAULT
        yield Description(name, render(value), source, own, setting.kind.name, setting.doc)


def describe_broker(config: BrokerConfig, keys: Container[str] | None = None) -> Iterator[Description]:
    """Settings of a broker, all or `keys`, by name. Those that Kafka does not list only if they are set."""
    accepted = (name for name, entry in ACCEPTED.items() if name in config.given or not entry.hidden)
    set_by_somebody = {name for _, given in config.sources for name in given}
    others = (name for name in set_by_somebody if name not in config.table and name not in ACCEPTED)
    for name in sorted((*config.table, *accepted, *others)):
        if keys is not None and name not in keys:
            continue
        setting = _find_setting(name)
        other = _NUMBER_NAMES.get(name)
        shown = name if other is None else "node.id"
        contributions = _list_contributions(_STAND_INS.get(name, (name,)), config)
        if other is not None and name not in config.given:
            by_other_name = (each._replace(name=name) for each in _list_contributions((other,), config))
            contributions = (*(each for each in by_other_name if each.source != ConfigSource.DEFAULT), *contributions)
        yield Description(
            name,
            None if setting.sensitive else render(config.value(shown)),
            contributions[0].source if contributions else ConfigSource.DEFAULT,
            contributions,
            "" if setting is UNKNOWN else setting.kind.name,
            setting.doc if isinstance(setting, Setting) else NO_EFFECT,
            read_only=setting.mode is UpdateMode.READ_ONLY,
            sensitive=setting.sensitive,
        )


def describe_all_brokers(given: Mapping[str, str]) -> Iterator[Description]:
    """The settings that were made for all brokers at run time."""
    for name in sorted(given):
        setting = _find_setting(name)
        contribution = _make_contribution(name, given[name], ConfigSource.ALL_BROKERS)
        yield Description(
            name,
            contribution.value,
            contribution.source,
            (contribution,),
            "" if setting is UNKNOWN else setting.kind.name,
            setting.doc if isinstance(setting, Setting) else NO_EFFECT,
            read_only=setting.mode is UpdateMode.READ_ONLY,
            sensitive=setting.sensitive,
        )


def _list_contributions(names: tuple[str, ...], broker: BrokerConfig) -> tuple[Contribution, ...]:
    """The values of a broker setting, which is the first of `names`, and of those that are used if it is not set.

    As in Kafka, the list begins where the setting itself was set, and is empty if it was not.
    """
    set_by_somebody = [
        _make_contribution(name, given[name], source)
        for source, given in broker.sources
        for name in names
        if name in given
    ]
    defaults = ((name, render(_find_setting(name).default)) for name in names if split_listener_key(name) is None)
    built_in = [_make_contribution(name, text, ConfigSource.DEFAULT) for name, text in defaults if text is not None]
    return tuple(dropwhile(lambda each: each.name != names[0], (*set_by_somebody, *built_in)))


def _make_contribution(name: str, text: str | None, source: ConfigSource) -> Contribution:
    return Contribution(name, None if _find_setting(name).sensitive else text, source)


def _find_source(name: str | None, broker: BrokerConfig) -> ConfigSource:
    """Where the value in force of a broker setting was set."""
    return next((source for source, given in broker.sources if name in given), ConfigSource.DEFAULT)


def _find_setting(name: str) -> Setting[Any] | Accepted:
    key = split_listener_key(name)
    base = name if key is None else key.setting
    return BrokerConfig.table.get(base) or ACCEPTED.get(base) or UNKNOWN


def _find_stand_ins() -> dict[str, tuple[str, ...]]:
    found = {}
    for setting in TopicConfig.table.values():
        names = tuple(synonym.name for synonym in setting.synonyms)
        found.update({name: names[position:] for position, name in enumerate(names)})
    return found


_NUMBER_NAMES = {"broker.id": "node.id", "node.id": "broker.id"}
"""A broker's number has two names. Whichever is set counts for both."""

_STAND_INS = _find_stand_ins()
"""Broker setting -> the setting itself and those that are used if it is not set, in order."""
