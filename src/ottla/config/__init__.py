"""Broker, topic and group settings: Kafka's names, types, defaults and limits, and the files that they are read from.

settings.py    how a setting is declared and checked
broker_table.py  broker.py    a broker's settings       accepted.py   those that are taken and do nothing
topic.py       a topic's settings                       group.py      a group's settings
client_metrics.py  a subscription to clients' metrics   overrides.py  exceptions for single addresses
listeners.py   addresses, typed
description.py settings as a client is told of them     loggers.py    levels of loggers
properties.py  Java's .properties syntax
"""

from ottla.config.broker import BrokerConfig
from ottla.config.group import GroupConfig
from ottla.config.listeners import Listener, Listeners
from ottla.config.properties import read_properties
from ottla.config.settings import ConfigError, ConfigSource, Setting, UpdateMode, render
from ottla.config.topic import TopicConfig

__all__ = [
    "BrokerConfig",
    "ConfigError",
    "ConfigSource",
    "GroupConfig",
    "Listener",
    "Listeners",
    "Setting",
    "TopicConfig",
    "UpdateMode",
    "read_properties",
    "render",
]
