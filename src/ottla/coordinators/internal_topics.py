"""The topics in which coordinators keep their state. They are created on first use, with Kafka's settings."""

from collections.abc import Callable, Mapping
from functools import lru_cache
from random import Random
from typing import NamedTuple

from ottla.cluster.decision import Decision
from ottla.cluster.image import Image
from ottla.cluster.topics import CONSUMER_OFFSETS, TRANSACTION_STATE, NewTopic, create_topic, limit_replicas
from ottla.config import BrokerConfig

_INT_MIN = -(1 << 31)


class InternalTopic(NamedTuple):
    name: str
    partitions: Callable[[BrokerConfig], int]
    replicas: Callable[[BrokerConfig], int]
    settings: Callable[[BrokerConfig], Mapping[str, str]]

    def create(self, image: Image, config: BrokerConfig, random: Random, *, is_member: bool = False) -> Decision[None]:
        """Decide the creation of the topic. Nothing is to be done if it exists already.

        `is_member`: the broker belongs to a cluster that may grow. Then, as in Kafka, the topic is not created before
        there are as many brokers as it is to have replicas (INVALID_REPLICATION_FACTOR): the first broker of three that
        start one after the other would otherwise keep the only replica for ever. A broker alone has one replica.
        """
        if image.topic(self.name) is not None:
            return Decision((), None)
        wanted = self.replicas(config)
        topic = NewTopic(
            self.name,
            self.partitions(config),
            wanted if is_member else limit_replicas(image, wanted),
            configs=self.settings(config),
        )
        return Decision(create_topic(image, topic, config, random).changes, None)


def _offsets_settings(config: BrokerConfig) -> dict[str, str]:
    settings = {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": _find_segment_bytes(config.offsets_topic_segment_bytes),
    }
    if config.min_insync_replicas > 1:
        # Who may be elected is decided by the metadata alone, and the settings of a broker are not part of it.
        settings["min.insync.replicas"] = str(config.min_insync_replicas)
    return settings


def _transaction_settings(config: BrokerConfig) -> dict[str, str]:
    return {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        "min.insync.replicas": str(config.transaction_state_log_min_isr),
        "segment.bytes": _find_segment_bytes(config.transaction_state_log_segment_bytes),
        "unclean.leader.election.enable": "false",
    }


def _find_segment_bytes(wanted: int) -> str:
    """segment.bytes of a topic has a minimum; the broker settings that it comes from have none."""
    return str(max(wanted, 1 << 20))


OFFSETS_TOPIC = InternalTopic(
    CONSUMER_OFFSETS,
    lambda config: config.offsets_topic_num_partitions,
    lambda config: config.offsets_topic_replication_factor,
    _offsets_settings,
)

TRANSACTIONS_TOPIC = InternalTopic(
    TRANSACTION_STATE,
    lambda config: config.transaction_state_log_num_partitions,
    lambda config: config.transaction_state_log_replication_factor,
    _transaction_settings,
)


@lru_cache(maxsize=16_384)
def key_hash(key: str) -> int:
    """The absolute value of Java's String.hashCode, which decides the partition that keeps a group or id."""
    found = 0
    units = key.encode("utf-16-be", "surrogatepass")
    for position in range(0, len(units), 2):
        found = (31 * found + (units[position] << 8 | units[position + 1])) & 0xFFFFFFFF
    if found & 0x80000000:
        found -= 1 << 32
    return 0 if found == _INT_MIN else abs(found)
