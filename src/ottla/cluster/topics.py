"""Deciders that create and delete topics, with Kafka's checks and error codes."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from ottla.cluster.changes import (
    NO_LEADER,
    ZERO_ID,
    Change,
    ConfigResource,
    CreatePartition,
    CreateTopic,
    DeleteTopic,
    SetConfig,
)
from ottla.cluster.cordons import is_cordoned
from ottla.cluster.decision import Decision
from ottla.cluster.encoding import ENTRY_BYTES_MAX, encode
from ottla.cluster.image import Image, TopicImage, normalize
from ottla.cluster.placement import place
from ottla.config import BrokerConfig, ConfigError, TopicConfig
from ottla.errors import ErrorCode, KafkaError

CONSUMER_OFFSETS = "__consumer_offsets"
TRANSACTION_STATE = "__transaction_state"
SHARE_GROUP_STATE = "__share_group_state"
CLUSTER_METADATA = "__cluster_metadata"
INTERNAL_TOPICS = frozenset((CONSUMER_OFFSETS, TRANSACTION_STATE, SHARE_GROUP_STATE))

NAME_LENGTH_MAX = 249
"""The directory of a partition is the name, a dash and a number. 255 bytes must leave room for a suffix."""

PARTITIONS_MAX = 10_000
"""New partitions of one topic in one request. The size of a metadata entry is limited too."""

REPLICAS_UNCHECKED_MAX = 100_000
"""Replicas of new partitions that fit a metadata entry in any case."""

TOPICS_BYTES_MAX = ENTRY_BYTES_MAX // 2
"""Estimated size of the topics of one entry."""

_NAME = re.compile(r"[a-zA-Z0-9._-]+", re.ASCII)
_METADATA_TOPIC_ID = bytes(15) + b"\x01"


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create. -1 means the default of the broker; a config of None is ignored."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    assignments: Mapping[int, Sequence[int]] = field(default_factory=dict)
    configs: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    """A topic that was created."""

    topic_id: bytes
    name: str
    partitions: int
    replication_factor: int
    configs: Mapping[str, str]


def is_internal(name: str) -> bool:
    return name in INTERNAL_TOPICS


def check_name(name: str) -> None:
    """Kafka's rules for a topic's name."""
    if not name:
        problem = "it is empty"
    elif name in (".", ".."):
        problem = "it is '.' or '..'"
    elif len(name) > NAME_LENGTH_MAX:
        problem = f"it has {len(name)} characters, {NAME_LENGTH_MAX} are the limit"
    elif _NAME.fullmatch(name) is None:
        problem = "only ASCII letters, digits, '.', '_' and '-' are allowed"
    else:
        return
    raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name!r} cannot be the name of a topic: {problem}")


def create_topic(image: Image, topic: NewTopic, config: BrokerConfig, random: Random) -> Decision[CreatedTopic]:
    """Create the topic, its partitions and its settings, all in one entry. KafkaError if that is not possible."""
    check_name(topic.name)
    _check_free(image, topic.name)
    configs = check_topic_configs(topic.configs, config)
    assignments = _assign_replicas(image, topic, config, random)
    topic_id = new_topic_id(image, random)
    changes: list[Change] = [CreateTopic(topic_id, topic.name)]
    changes.extend(SetConfig(ConfigResource.TOPIC, topic.name, key, configs[key]) for key in sorted(configs))
    for number, replicas in enumerate(assignments):
        changes.append(new_partition(image, topic_id, number, replicas))
    if sum(map(len, assignments)) > REPLICAS_UNCHECKED_MAX:
        _check_size(topic.name, len(assignments), changes)
    return Decision(changes, CreatedTopic(topic_id, topic.name, len(assignments), len(assignments[0]), configs))


def create_topics(
    image: Image, topics: Sequence[NewTopic], config: BrokerConfig, random: Random
) -> Decision[list[CreatedTopic | KafkaError]]:
    """Create topics in one entry, each of them completely or not at all.

    The result has what became of each topic, in the order of `topics`. It may be shorter than `topics`: the others
    need another entry.
    """
    changes: list[Change] = []
    results: list[CreatedTopic | KafkaError] = []
    taken: dict[str, str] = {}
    size = 0
    for topic in topics:
        try:
            like = taken.get(normalize(topic.name))
            if like is not None:
                raise _make_collision_error(topic.name, like)
            decision = create_topic(image, topic, config, random)
        except KafkaError as error:
            results.append(error)
            continue
        size += _estimate_size(decision.changes)
        if changes and size > TOPICS_BYTES_MAX:
            break
        taken[normalize(topic.name)] = topic.name
        changes.extend(decision.changes)
        results.append(decision.result)
    return Decision(changes, results)


def _estimate_size(changes: Sequence[Change]) -> int:
    """No less than the bytes that the changes take in an entry, which is compressed."""
    size = 0
    for change in changes:
        if isinstance(change, CreatePartition):
            size += 8 + 4 * len(change.replicas)
        elif isinstance(change, SetConfig):
            size += 100 + len(change.key) + 4 * len(change.value or "")
        else:
            size += 100 + NAME_LENGTH_MAX
    return size


def delete_topic(image: Image, topic_id: bytes) -> Decision[TopicImage]:
    """Delete a topic with its partitions and settings. Returns its last image."""
    topic = image.topic_by_id(topic_id)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "there is no topic with this id")
    return Decision([DeleteTopic(topic_id)], topic)


def check_topic_configs(overrides: Mapping[str, str | None], config: BrokerConfig) -> dict[str, str]:
    """Check the settings of a topic, and return them. INVALID_CONFIG names the one that is wrong or has no value."""
    given = {name: value for name, value in overrides.items() if value is not None}
    if len(given) < len(overrides):
        missing = ", ".join(sorted(overrides.keys() - given.keys()))
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"no value for {missing}; leave out a setting to have its default")
    try:
        TopicConfig.of(given, config).check_together()
    except ConfigError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None
    return given


def limit_replicas(image: Image, wanted: int) -> int:
    """The replication factor of an internal topic: `wanted`, but no more than there are brokers for it."""
    return max(1, min(wanted, sum(not is_cordoned(image, broker) for broker in image.alive_brokers())))


def new_topic_id(image: Image, random: Random) -> bytes:
    """A random id that is free. Kafka reserves some, and base64 that begins with a dash looks like an option."""
    while True:
        topic_id = random.randbytes(16)
        reserved = topic_id in (ZERO_ID, _METADATA_TOPIC_ID) or topic_id[0] >> 2 == 0b111110
        if not reserved and topic_id not in image.topic_names:
            return topic_id


def _check_free(image: Image, name: str) -> None:
    if image.topic(name) is not None:
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic '{name}' already exists")
    if name == CLUSTER_METADATA:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"'{name}' is the metadata log of the broker")
    like = image.topic_like(name)
    if like is not None:
        raise _make_collision_error(name, like)


def _make_collision_error(name: str, like: str) -> KafkaError:
    if name == like:
        return KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic '{name}' already exists")
    message = f"topic '{name}' collides with topic '{like}': '.' and '_' count as the same character"
    return KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, message)


def _assign_replicas(image: Image, topic: NewTopic, config: BrokerConfig, random: Random) -> list[tuple[int, ...]]:
    if topic.assignments:
        return _check_assignments(image, topic)
    partitions = config.num_partitions if topic.partitions == -1 else topic.partitions
    factor = config.default_replication_factor if topic.replication_factor == -1 else topic.replication_factor
    if factor < 1:  # Kafka checks this first
        raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, f"a topic needs at least 1 replica, not {factor}")
    if partitions < 1:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"a topic needs at least 1 partition, not {partitions}")
    if partitions > PARTITIONS_MAX:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, f"{partitions} partitions; {PARTITIONS_MAX} are the limit")
    return place_replicas(image, partitions, factor, random)


def place_replicas(image: Image, partitions: int, factor: int, random: Random) -> list[tuple[int, ...]]:
    """Choose the replicas of new partitions. INVALID_REPLICATION_FACTOR if there are not enough brokers.

    As in Kafka, brokers that are away for now are chosen if the others do not suffice, but never as leaders. Brokers
    that are cordoned are not chosen.
    """
    brokers = [broker for broker in image.all_brokers() if not is_cordoned(image, broker)]
    serving = [broker for broker in brokers if broker.serves]
    if not serving:
        message = "no broker is alive that could keep a replica, and has a directory that is not cordoned"
        raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, message)
    if factor > len(brokers):
        count = f"{len(brokers)} {'is' if len(brokers) == 1 else 'are'} registered"
        cordoned = len(image.all_brokers()) - len(brokers)
        count += f", besides {cordoned} whose directories are all cordoned" if cordoned else ""
        raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, f"{factor} replicas need {factor} brokers; {count}")
    return place(serving, partitions, factor, random, [broker for broker in brokers if not broker.serves])


def _check_assignments(image: Image, topic: NewTopic) -> list[tuple[int, ...]]:
    if topic.partitions != -1 or topic.replication_factor != -1:
        message = "give either an assignment of replicas, or numbers of partitions and replicas, not both"
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)
    if sorted(topic.assignments) != list(range(len(topic.assignments))):
        raise _make_assignment_error("partitions must be numbered from 0 without a gap")
    assignments = [tuple(topic.assignments[number]) for number in range(len(topic.assignments))]
    for number, replicas in enumerate(assignments):
        check_replicas(image, number, replicas)
        if len(replicas) != len(assignments[0]):
            raise _make_assignment_error("every partition must have the same number of replicas")
    return assignments


def check_replicas(image: Image, number: int, replicas: Sequence[int]) -> None:
    """KafkaError if these brokers cannot be the replicas of a new partition."""
    if not replicas:
        raise _make_assignment_error(f"partition {number} has no replica")
    if len(set(replicas)) != len(replicas):
        raise _make_assignment_error(f"partition {number} names a broker twice: {list(replicas)}")
    for broker_id in replicas:
        broker = image.broker(broker_id)
        if broker is None:
            raise _make_assignment_error(f"partition {number}: there is no broker {broker_id}")
        if is_cordoned(image, broker):
            raise _make_assignment_error(f"partition {number}: all directories of broker {broker_id} are cordoned")
    if not any(image.serves(broker_id) for broker_id in replicas):
        raise _make_assignment_error(f"partition {number}: none of the brokers {list(replicas)} is alive")


def _make_assignment_error(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)


def new_partition(image: Image, topic_id: bytes, number: int, replicas: tuple[int, ...]) -> CreatePartition:
    """A new partition: the replicas that are alive are in sync, and the first of them leads."""
    isr = tuple(broker_id for broker_id in replicas if image.serves(broker_id))
    return CreatePartition(topic_id, number, replicas, isr, isr[0] if isr else NO_LEADER)


def _check_size(name: str, partitions: int, changes: Sequence[Change]) -> None:
    size = len(encode(changes))
    if size > ENTRY_BYTES_MAX:
        message = f"topic '{name}' with {partitions} partitions is too large to create at once; add partitions later"
        raise KafkaError(ErrorCode.POLICY_VIOLATION, message)
