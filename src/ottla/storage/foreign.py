"""Topics of a data directory without Ottla's metadata: names, ids, partitions and epochs, from its files alone."""

from collections.abc import Sequence
from hashlib import sha256

from ottla.storage import names
from ottla.storage.directories import DataDirectory
from ottla.storage.epochs import UNDEFINED, LeaderEpochs
from ottla.storage.files import Disk
from ottla.storage.partition_metadata import NO_TOPIC_ID, read_topic_id, write_topic_id

CLUSTER_METADATA = "__cluster_metadata"
QUORUM_STATE = "quorum-state"
"""Beside the metadata log of Apache Kafka's controllers, and never beside ours."""

FoundTopics = dict[tuple[str, bytes], dict[int, int]]
"""Name and id -> partition -> the last leader epoch in its log."""


def is_foreign(disk: Disk, metadata_directory: str) -> bool:
    """Whether this metadata log, if there is one, is Apache Kafka's."""
    return disk.exists(f"{metadata_directory}/{QUORUM_STATE}")


def find_topics(disk: Disk, directories: Sequence[DataDirectory]) -> FoundTopics:
    """Find every topic with its partitions. A directory of an old Kafka, without a topic id, is given one."""
    found: FoundTopics = {}
    for directory in directories:
        for partition in directory.partitions():
            if partition.marker or partition.topic == CLUSTER_METADATA:
                continue
            topic_id = read_topic_id(disk, partition.path)
            if topic_id == NO_TOPIC_ID:
                topic_id = sha256(partition.topic.encode()).digest()[:16]
                write_topic_id(disk, partition.path, topic_id)
            found.setdefault((partition.topic, topic_id), {})[partition.index] = _find_last_epoch(disk, partition.path)
    return found


def _find_last_epoch(disk: Disk, directory: str) -> int:
    try:
        return LeaderEpochs.load(disk, f"{directory}/{names.EPOCHS}").latest
    except (FileNotFoundError, ValueError):
        return UNDEFINED
