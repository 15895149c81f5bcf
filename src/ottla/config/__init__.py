"""Broker, topic and group settings: Kafka's names, types, defaults and limits, and the files that they are read from.

settings.py        how a setting is declared, parsed and checked
broker_table.py    the broker settings that have an effect
authorizer_table.py  settings of the authorizer
quota_table.py     those of them about quotas and client telemetry
security_table.py  those about TLS, SASL and delegation tokens
broker.py          the settings of one broker, checked together, with where each was set
change_limits.py   limits of changes while a broker runs, which depend on the values in force
accepted.py        broker settings that are accepted and have no effect
topic.py           topic settings
group.py           group settings
client_metrics.py  settings of a subscription to client metrics
listeners.py       the listener settings as typed addresses
overrides.py       max.connections.per.ip.overrides
zookeeper_addresses.py  zookeeper.connect
description.py     settings as DescribeConfigs shows them
loggers.py         levels of loggers
properties.py      the syntax of Java's .properties files
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
