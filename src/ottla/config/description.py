"""Settings as a client is told of them: value, who set it, and everything that this overrules, the strongest first.

A setting may be set by many: the topic itself, this broker while it runs, all brokers while they run, the file that
the broker was started with, and Kafka's own default. A topic's setting gets its default from one of the broker's, in
the broker's unit; some of the broker's stand in for each other (log.retention.ms, .minutes, .hours).
"""

from collections.abc import Container, Iterator, Mapping
from functools import cached_property
from typing import Any, NamedTuple

from ottla.config.accepted import ACCEPTED, Accepted
from ottla.config.broker import BrokerConfig
from ottla.config.client_metrics import ClientMetricsConfig
from ottla.config.group import GroupConfig
from ottla.config.settings import ConfigSource, Setting, UpdateMode, render
from ottla.config.topic import TopicConfig

NO_EFFECT = "Accepted so that files and scripts for Apache Kafka work; it has no effect here."


class Contribution(NamedTuple):
    """One of the places that a value could have come from."""

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


class TopicDescriptions:
    """Settings of any number of topics: what the broker gives to all of them is looked up once."""

    def __init__(self, broker: BrokerConfig) -> None:
        self.broker = broker

    def of(self, overrides: Mapping[str, str]) -> Iterator[Description]:
        """Every setting of a topic, by name; Kafka's internal one only where it is set."""
        own = TopicConfig.of(overrides, self.broker)
        for inherited in self._inherited:
            name = inherited.name
            if name in overrides:
                contribution = Contribution(name, overrides[name], ConfigSource.TOPIC)
                yield inherited._replace(
                    value=render(own.value(name)),
                    source=ConfigSource.TOPIC,
                    contributions=(contribution, *inherited.contributions),
                )
            elif not name.startswith("internal."):
                yield inherited

    @cached_property
    def _inherited(self) -> list[Description]:
        """A topic without settings of its own."""
        broker, found = self.broker, []
        for name, value in broker.topic_defaults.items():
            setting = TopicConfig.table[name]
            names = tuple(synonym.name for synonym in setting.synonyms)
            source = _source(next((each for each in names if broker.value(each) is not None), None), broker)
            contributions = _contributions(names, broker)
            found.append(Description(name, render(value), source, contributions, setting.kind.name, setting.doc))
        return found


def describe_group(overrides: Mapping[str, str], broker: BrokerConfig) -> Iterator[Description]:
    """Every setting of a group, by name."""
    for name, value in GroupConfig.of(overrides, broker).items():
        setting = GroupConfig.table[name]
        names = tuple(synonym.name for synonym in setting.synonyms)
        contributions: tuple[Contribution, ...] = (Contribution(name, render(setting.default), ConfigSource.DEFAULT),)
        source = ConfigSource.DEFAULT
        if names:
            contributions, source = _contributions(names, broker), _source(names[0], broker)
        if name in overrides:
            source = ConfigSource.GROUP
            contributions = (Contribution(name, overrides[name], source), *contributions)
        yield Description(name, render(value), source, contributions, setting.kind.name, setting.doc)


def describe_client_metrics(given: Mapping[str, str]) -> Iterator[Description]:
    """Every setting of a subscription, by name."""
    for name, value in ClientMetricsConfig.of(given).items():
        setting = ClientMetricsConfig.table[name]
        own = (Contribution(name, given[name], ConfigSource.CLIENT_METRICS),) if name in given else ()
        source = own[0].source if own else ConfigSource.DEFAULT
        yield Description(name, render(value), source, own, setting.kind.name, setting.doc)


def describe_broker(config: BrokerConfig, keys: Container[str] | None = None) -> Iterator[Description]:
    """Settings of a broker, all or these, by name; those that Kafka itself no longer has only where they are set."""
    accepted = (name for name, entry in ACCEPTED.items() if name in config.given or not entry.former)
    for name in sorted((*config.table, *accepted)):
        if keys is not None and name not in keys:
            continue
        setting = _setting(name)
        yield Description(
            name,
            None if setting.sensitive else render(config.value(name)),
            _source(name, config),
            _contributions(_STAND_INS.get(name, (name,)), config),
            setting.kind.name,
            setting.doc if isinstance(setting, Setting) else NO_EFFECT,
            read_only=setting.mode is UpdateMode.READ_ONLY,
            sensitive=setting.sensitive,
        )


def describe_all_brokers(given: Mapping[str, str]) -> Iterator[Description]:
    """What was set for all brokers while they run, and nothing else."""
    for name in sorted(given):
        setting = _setting(name)
        contribution = _contribution(name, given[name], ConfigSource.ALL_BROKERS)
        yield Description(
            name,
            contribution.value,
            contribution.source,
            (contribution,),
            setting.kind.name,
            setting.doc if isinstance(setting, Setting) else NO_EFFECT,
            sensitive=setting.sensitive,
        )


def _contributions(names: tuple[str, ...], broker: BrokerConfig) -> tuple[Contribution, ...]:
    set_by_somebody = [
        _contribution(name, given[name], source) for source, given in broker.sources for name in names if name in given
    ]
    defaults = ((name, render(_setting(name).default)) for name in names)
    built_in = [_contribution(name, text, ConfigSource.DEFAULT) for name, text in defaults if text is not None]
    return (*set_by_somebody, *built_in)


def _contribution(name: str, text: str | None, source: ConfigSource) -> Contribution:
    return Contribution(name, None if _setting(name).sensitive else text, source)


def _source(name: str | None, broker: BrokerConfig) -> ConfigSource:
    """Who has the last word on a broker's setting."""
    return next((source for source, given in broker.sources if name in given), ConfigSource.DEFAULT)


def _setting(name: str) -> Setting[Any] | Accepted:
    return BrokerConfig.table.get(name) or ACCEPTED[name]


def _stand_ins() -> dict[str, tuple[str, ...]]:
    found = {}
    for setting in TopicConfig.table.values():
        names = tuple(synonym.name for synonym in setting.synonyms)
        found.update({name: names[place:] for place, name in enumerate(names)})
    return found


_STAND_INS = _stand_ins()
"""A broker's setting and those that count when it is not set, in order."""
