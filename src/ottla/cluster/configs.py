"""Deciders that change settings while brokers run, with Kafka's checks and error codes.

Broker settings are for one broker, named by its id, or for all brokers, under the empty name. Both override what a
broker was started with, and of the settings that a broker knows, only those that can take effect at once may be
changed; others are kept without effect, as by Kafka, whose plug-ins may know them. A group can have settings before
it exists. A subscription to client metrics consists of nothing but its settings. Passwords and keys among the settings
of a broker are encrypted in the metadata (`security/passwords.py`).
"""

import logging
from collections.abc import Container, Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Any, NamedTuple

from ottla.cluster.changes import Change, ConfigResource, SetConfig
from ottla.cluster.decision import Decision
from ottla.cluster.features import has_common_min_isr
from ottla.cluster.image import Image
from ottla.cluster.leadership import MIN_INSYNC_REPLICAS
from ottla.cluster.topics import check_name, check_topic_configs
from ottla.config import BrokerConfig, ConfigError, GroupConfig, Setting, TopicConfig, UpdateMode
from ottla.config.accepted import ACCEPTED, Accepted
from ottla.config.change_limits import check_change
from ottla.config.client_metrics import ClientMetricsConfig
from ottla.config.security_table import split_listener_key
from ottla.config.settings import Settings, suggest_name
from ottla.errors import ErrorCode, KafkaError
from ottla.security import passwords

logger = logging.getLogger(__name__)

ALL_BROKERS = ""

BROKER_LOGGER = 8
"""A resource type of the protocol like those of ConfigResource. Levels of loggers are never in the metadata."""

VALUE_BYTES_MAX = (1 << 15) - 1
"""Most versions of the protocol have no longer strings: a longer value could never be described."""

Table = Mapping[str, Setting[Any] | Accepted]

BROKER_TABLE: Table = {**ACCEPTED, **BrokerConfig.table}


class Operation(IntEnum):
    """What to do with a setting, with Kafka's numbers."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigAlteration(NamedTuple):
    name: str
    operation: int
    value: str | None = None


def alter_topic(
    image: Image, name: str, alterations: Sequence[ConfigAlteration], config: BrokerConfig, *, replace: bool = False
) -> Decision[None]:
    """Change single settings of a topic, or (`replace`) replace all its settings by these."""
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "name a topic: there are no settings for all topics")
    check_name(name)
    if image.topic(name) is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic '{name}'")
    before = image.topic_configs(name)
    effective = TopicConfig.of(before, config)
    after = _alter({} if replace else before, alterations, TopicConfig.table, effective)
    check_topic_configs(after, config)
    return _decide_changes(ConfigResource.TOPIC, name, before, after)


def alter_brokers(
    image: Image, name: str, alterations: Sequence[ConfigAlteration], config: BrokerConfig, *, replace: bool = False
) -> Decision[None]:
    """Like `alter_topic`, for the broker with this `config` or for all brokers."""
    check_broker(name, config.node_id)
    stored = image.config(ConfigResource.BROKER, name)
    before = _decrypt(stored, name, config)
    in_force = apply_run_time_settings(config, image)
    after = _alter({} if replace else before, alterations, BROKER_TABLE, in_force)
    for key in sorted(after):
        if before.get(key) != after[key]:
            _check_changeable(key, name)
    all_brokers, this_broker = read_run_time_settings(image, config)
    layers = (after, this_broker) if name == ALL_BROKERS else (all_brokers, after)
    try:
        check_change(in_force, config.with_run_time_settings(*layers))
        texts = {
            key: stored[key] if before.get(key) == value else _encrypt(image, name, key, value, config)
            for key, value in after.items()
        }
    except ConfigError as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from None
    named = {alteration.name for alteration in alterations}
    _check_min_isr(image, name, before, after, named)
    if not replace:  # what cannot be decrypted stays, unless it is named
        texts |= {key: text for key, text in stored.items() if key not in before and key not in named}
    return _decide_changes(ConfigResource.BROKER, name, stored, texts)


def renew_encryption(image: Image, config: BrokerConfig) -> Decision[int]:
    """Encrypt the secrets among the settings of this broker that are not encrypted, or with the old secret.

    Returns their number.
    """
    name = str(config.node_id)
    stored = image.config(ConfigResource.BROKER, name)
    readable = _decrypt(stored, name, config)
    changes = [
        SetConfig(ConfigResource.BROKER, name, key, _encrypt(image, name, key, readable[key], config))
        for key, text in sorted(stored.items())
        if key in readable and is_secret(key) and passwords.needs_renewal(config, name, key, text)
    ]
    return Decision(list(changes), len(changes))


def is_secret(key: str) -> bool:
    """Whether the value of a broker setting is a password or a key."""
    of_listener = split_listener_key(key)
    setting = BROKER_TABLE.get(key if of_listener is None else of_listener.setting)
    return setting is not None and setting.sensitive


def _encrypt(image: Image, broker: str, key: str, value: str, config: BrokerConfig) -> str:
    return passwords.encrypt(config, image.cluster_id or "", broker, key, value) if is_secret(key) else value


def _decrypt(stored: Mapping[str, str], broker: str, config: BrokerConfig) -> Mapping[str, str]:
    """The settings of a broker in clear text. Those that cannot be decrypted are logged and left out."""
    if not any(map(passwords.is_encrypted, stored.values())):
        return stored
    found = {}
    for key, text in stored.items():
        try:
            found[key] = passwords.decrypt(config, broker, key, text) if is_secret(key) else text
        except ConfigError as error:
            logger.error("a setting that was made at run time is ignored: %s", error)
    return found


def alter_group(
    image: Image, name: str, alterations: Sequence[ConfigAlteration], config: BrokerConfig, *, replace: bool = False
) -> Decision[None]:
    """Like `alter_topic`, for a group, within the limits that the broker sets for groups."""
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "name a group: there are no settings for all groups")
    before = image.config(ConfigResource.GROUP, name)
    try:
        effective = GroupConfig.of(before, config)
        after = _alter({} if replace else before, alterations, GroupConfig.table, effective)
        GroupConfig.of(after, config).check_together(config)
    except ConfigError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None
    return _decide_changes(ConfigResource.GROUP, name, before, after)


def alter_client_metrics(
    image: Image, name: str, alterations: Sequence[ConfigAlteration], config: BrokerConfig, *, replace: bool = False
) -> Decision[None]:
    """Like `alter_topic`, for a subscription to client metrics. It exists as long as it has settings."""
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "name a subscription: there are no settings for all of them")
    before = image.config(ConfigResource.CLIENT_METRICS, name)
    no_lists: Table = {}  # Kafka's controller does not know the types of these settings: it refuses APPEND
    after = _alter({} if replace else before, alterations, no_lists, ClientMetricsConfig.of(before))
    try:
        wanted = ClientMetricsConfig.of(after)
    except ConfigError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None
    try:
        wanted.check_limits()
    except ConfigError as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from None
    return _decide_changes(ConfigResource.CLIENT_METRICS, name, before, after)


def apply_run_time_settings(config: BrokerConfig, image: Image) -> BrokerConfig:
    """The settings in force: those that the broker was started with, overridden by those in the metadata.

    A setting in the metadata that is not valid any more is logged and left out, so that a broker that was started with
    other settings than last time can start.
    """
    layers = read_run_time_settings(image, config)
    try:
        return config.with_run_time_settings(*layers)
    except ConfigError:
        pass
    fitting: tuple[dict[str, str], dict[str, str]] = ({}, {})
    found = config.with_run_time_settings(*fitting)
    for layer, target in zip(layers, fitting, strict=True):
        for name in sorted(layer):
            target[name] = layer[name]
            try:
                found = config.with_run_time_settings(*fitting)
            except ConfigError as error:
                del target[name]
                logger.error("a setting that was made at run time is ignored: %s", error)
    return found


def warn_if_min_isr_is_another(started_with: BrokerConfig, in_force: BrokerConfig) -> None:
    """Log that the min.insync.replicas of a properties file has no effect, because the cluster has another one."""
    wanted, found = started_with.min_insync_replicas, in_force.min_insync_replicas
    if MIN_INSYNC_REPLICAS in started_with.given and wanted != found:
        logger.warning(
            "min.insync.replicas=%d has no effect: the cluster has %d. `ottla config set broker --default` changes it.",
            wanted,
            found,
        )


Layers = tuple[Mapping[str, str], Mapping[str, str]]


def read_run_time_settings(image: Image, config: BrokerConfig) -> Layers:
    """The settings in the metadata for all brokers, and those for this one, in clear text."""
    all_brokers, this_broker = find_stored_settings(image, config)
    return _decrypt(all_brokers, ALL_BROKERS, config), _decrypt(this_broker, str(config.node_id), config)


def find_stored_settings(image: Image, config: BrokerConfig) -> Layers:
    """Like `read_run_time_settings`, with secrets encrypted, as they are in the metadata."""
    return (
        image.config(ConfigResource.BROKER, ALL_BROKERS),
        image.config(ConfigResource.BROKER, str(config.node_id)),
    )


def preview(image: Image, config: BrokerConfig, changes: Iterable[Change]) -> BrokerConfig:
    """The settings of this broker after these changes of its own settings. ConfigError if they do not fit."""
    all_brokers, this_broker = find_stored_settings(image, config)
    after = dict(this_broker)
    for change in changes:
        if isinstance(change, SetConfig):
            after.pop(change.key, None)
            if change.value is not None:
                after[change.key] = change.value
    name = str(config.node_id)
    return config.with_run_time_settings(_decrypt(all_brokers, ALL_BROKERS, config), _decrypt(after, name, config))


def check_broker(name: str, broker_id: int) -> None:
    """A broker answers for itself and, under the empty name, for all brokers, but not for another broker."""
    if name not in (ALL_BROKERS, str(broker_id)):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"this is broker {broker_id}: ask broker {name!r} itself")


def _alter(
    before: Mapping[str, str], alterations: Sequence[ConfigAlteration], table: Table, effective: Settings
) -> dict[str, str]:
    if len({alteration.name for alteration in alterations}) != len(alterations):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a setting is named more than once")
    after = dict(before)
    for name, operation, value in alterations:
        if operation == Operation.DELETE:
            after.pop(name, None)
        elif operation not in tuple(Operation):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{name}: there is no operation {operation}")
        elif value is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{name}: there is no value; use DELETE to remove the setting")
        elif operation == Operation.SET:
            after[name] = value
        else:
            after[name] = _alter_list(name, operation, value, table, effective)
        if len(after.get(name, "").encode()) > VALUE_BYTES_MAX:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"{name}: the value is longer than {VALUE_BYTES_MAX} bytes")
    return after


def _alter_list(name: str, operation: int, value: str, table: Table, effective: Settings) -> str:
    """The list in force with items added that are not in it, or with items removed."""
    setting = table.get(name)
    if setting is None or setting.kind.name != "list":
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{name} is not a list: it can only be set or deleted")
    items = list(effective.value(name) or ())
    named = list(dict.fromkeys(item for item in (part.strip() for part in value.split(",")) if item))
    if operation == Operation.APPEND:
        return ",".join(items + [item for item in named if item not in items])
    return ",".join(item for item in items if item not in named)


def _check_changeable(key: str, broker: str) -> None:
    of_listener = split_listener_key(key)
    setting = BROKER_TABLE.get(key if of_listener is None else of_listener.setting)
    in_table = BrokerConfig.table.get(key)
    if key.startswith("ssl.") and in_table is not None and in_table.mode is UpdateMode.PER_BROKER:
        problem = f"{key} can be changed for one listener only: listener.name.<listener>.{key}"
    elif setting is None and of_listener is None:
        logger.warning("broker %s gets a setting without effect: %r%s", broker, key, suggest_name(key, BROKER_TABLE))
        return
    elif setting is not None and setting.mode is UpdateMode.READ_ONLY:
        problem = f"{key} cannot be changed while the broker runs: set it in the properties file and restart the broker"
    elif broker == ALL_BROKERS and (setting is None or setting.mode is UpdateMode.PER_BROKER):
        problem = f"{key} cannot be set for all brokers at once: name a broker"
    else:
        return
    raise KafkaError(ErrorCode.INVALID_REQUEST, problem)


def _check_min_isr(
    image: Image, broker: str, before: Mapping[str, str], after: Mapping[str, str], named: Container[str]
) -> None:
    """A cluster with the feature for it has one min.insync.replicas, which can be changed but not removed."""
    was, wanted = before.get(MIN_INSYNC_REPLICAS), after.get(MIN_INSYNC_REPLICAS)
    if not has_common_min_isr(image):
        return
    if broker != ALL_BROKERS and (was != wanted or MIN_INSYNC_REPLICAS in named):
        problem = "is the same for all brokers: set it for all of them, or for a topic"
    elif was is not None and wanted is None:
        problem = "is always set for all brokers: change its value instead of removing it"
    else:
        return
    raise KafkaError(ErrorCode.INVALID_CONFIG, f"{MIN_INSYNC_REPLICAS} {problem}")


def _decide_changes(
    resource: ConfigResource, name: str, before: Mapping[str, str], after: Mapping[str, str]
) -> Decision[None]:
    return Decision(
        [
            SetConfig(resource, name, key, after.get(key))
            for key in sorted({**before, **after})
            if before.get(key) != after.get(key)
        ],
        None,
    )
