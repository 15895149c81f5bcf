"""Topics that a connector creates when it first writes to them, by the settings `topic.creation.*`."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ottla.client.client import Client
from ottla.connect.errors import BadConfig, ConnectError
from ottla.errors import ErrorCode, KafkaError
from ottla.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest

CREATE_TIMEOUT_MS: Final = 30_000
BROKER_DEFAULT: Final = -1
"""num.partitions or default.replication.factor of the broker."""
PREFIX: Final = "topic.creation."
DEFAULT_GROUP: Final = "default"
_OWN: Final = ("include", "exclude", "partitions", "replication.factor")


@dataclass(frozen=True)
class TopicGroup:
    """How topics of one group are created."""

    include: Sequence[str] = (".*",)
    exclude: Sequence[str] = ()
    partitions: int = BROKER_DEFAULT
    replication_factor: int = BROKER_DEFAULT
    settings: Mapping[str, str] = field(default_factory=dict)

    def has(self, topic: str) -> bool:
        return any(re.fullmatch(each, topic) for each in self.include) and not any(
            re.fullmatch(each, topic) for each in self.exclude
        )


def read_topic_groups(config: Mapping[str, Any]) -> list[TopicGroup]:
    """The groups of a connector's settings, the last one for all other topics.

    What a group does not say, the default group says; without a default group, the broker does.
    """
    default = _read_group(config, DEFAULT_GROUP, TopicGroup())
    named = config.get(f"{PREFIX}groups") or ()
    return [*(_read_group(config, name, default) for name in named if name != DEFAULT_GROUP), default]


def _read_group(config: Mapping[str, Any], name: str, default: TopicGroup) -> TopicGroup:
    prefix = f"{PREFIX}{name}."
    given = {key.removeprefix(prefix): str(text) for key, text in config.items() if key.startswith(prefix)}
    is_default = name == DEFAULT_GROUP
    return TopicGroup(
        _split(given.get("include", ".*" if is_default else "")),
        _split(given.get("exclude", "")),
        _number(prefix, given, "partitions", default.partitions),
        _number(prefix, given, "replication.factor", default.replication_factor),
        {key: text for key, text in given.items() if key not in _OWN},
    )


def _split(text: str) -> list[str]:
    return [each.strip() for each in text.split(",") if each.strip()]


def _number(prefix: str, given: Mapping[str, str], name: str, default: int) -> int:
    try:
        return int(given.get(name, default))
    except ValueError:
        raise BadConfig(f"{prefix}{name}={given[name]!r} is not a number") from None


def count_or_create(client: Client, topic: str, groups: Sequence[TopicGroup]) -> int:
    """How many partitions a topic has. It is created if it does not exist and belongs to a group.

    Raises UnknownTopic if it belongs to none: the task tries again until somebody has created the topic.
    """
    found = client.count_partitions(pattern=re.escape(topic))
    if topic not in found:
        group = next((each for each in groups if each.has(topic)), None)
        if group is not None:
            create_topic(client, topic, group)
        found = client.count_partitions([topic])
    return found[topic]


def create_topic(client: Client, topic: str, group: TopicGroup, replication_setting: str = "") -> None:
    """Create a topic unless it exists. An error names the setting by which its replicas can be chosen."""
    configs = [CreatableTopicConfig(name=name, value=value) for name, value in group.settings.items()]
    wanted = CreatableTopic(
        name=topic,
        num_partitions=group.partitions,
        replication_factor=group.replication_factor,
        configs=configs,
    )
    for result in client.ask_any(CreateTopicsRequest(topics=[wanted], timeout_ms=CREATE_TIMEOUT_MS)).topics:
        code = ErrorCode(result.error_code)
        message = f"cannot create topic {topic!r}: {result.error_message or code.name}"
        if code == ErrorCode.INVALID_REPLICATION_FACTOR and replication_setting:
            message += f" ({replication_setting}={group.replication_factor})"
        if code in (ErrorCode.INVALID_REPLICATION_FACTOR, ErrorCode.INVALID_PARTITIONS, ErrorCode.INVALID_CONFIG):
            raise ConnectError(message)
        if code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            raise KafkaError(code, message)
