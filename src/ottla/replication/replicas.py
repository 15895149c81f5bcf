"""The partitions that this broker keeps: find one by topic and partition, or learn which error answers for it.

Every request that touches a partition comes through here. The other parts of this package add partitions, remove them
and iterate over them; nothing else holds a list of its own.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from ottla.cluster.image import EMPTY, Image, TopicImage
from ottla.errors import ErrorCode, KafkaError
from ottla.observability.metrics import TopicMeters
from ottla.replication.in_sync import IsrProposer
from ottla.replication.offline import OfflinePartitions
from ottla.replication.partition import Partition
from ottla.storage.directories import DataDirectory
from ottla.topic_partition import TopicPartition

Partitions = dict[int, Partition]
"""The partitions of one topic by their number."""


class Replicas:
    def __init__(self, directories: Sequence[DataDirectory]) -> None:
        self.directories = directories
        self.offline = OfflinePartitions()
        self.meters = TopicMeters()
        self.image: Image = EMPTY
        """The metadata that the partitions were last brought in line with."""
        self.isr_proposer: IsrProposer | None = None
        """For the leaders among the partitions. A member of a cluster sets it before it adds a partition."""
        self._by_name: dict[str, Partitions] = {}
        self._by_id: dict[bytes, Partitions] = {}
        self._homes: dict[Partition, DataDirectory] = {}
        self._counts = dict.fromkeys(directories, 0)
        self.preferred: dict[TopicPartition, DataDirectory] = {}
        """Where replicas are created that are not here yet, if an administrator chose it."""

    # Lookup

    def get(self, topic: str, index: int) -> Partition:
        """The local replica, or the KafkaError that answers for it.

        KAFKA_STORAGE_ERROR: its disk failed. NOT_LEADER_OR_FOLLOWER: other brokers keep it. UNKNOWN_TOPIC_OR_PARTITION:
        there is no such partition.
        """
        try:
            return self._by_name[topic][index]
        except KeyError:
            self.offline.require_online(topic, index)
            self._refuse_if_elsewhere(self.image.topic(topic), index)
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) from None

    def get_by_id(self, topic_id: bytes, index: int) -> Partition:
        """Like `get`, but a topic id that is not known here is UNKNOWN_TOPIC_ID."""
        try:
            partitions = self._by_id[topic_id]
        except KeyError:
            self.offline.require_online_by_id(topic_id, index)
            topic = self.image.topic_by_id(topic_id)
            self._refuse_if_elsewhere(topic, index)
            unknown = ErrorCode.UNKNOWN_TOPIC_ID if topic is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            raise KafkaError(unknown) from None
        try:
            return partitions[index]
        except KeyError:
            self.offline.require_online_by_id(topic_id, index)
            self._refuse_if_elsewhere(self.image.topic_by_id(topic_id), index)
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) from None

    def _refuse_if_elsewhere(self, topic: TopicImage | None, index: int) -> None:
        """NOT_LEADER_OR_FOLLOWER if the partition exists: a client then asks for metadata, and finds its leader."""
        if topic is not None and 0 <= index < len(topic.partitions):
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def topics(self) -> Iterable[str]:
        """Names of the topics that have a partition here."""
        return self._by_name.keys()

    def topic_ids(self) -> Iterable[bytes]:
        """Ids of the topics that have a partition here."""
        return self._by_id.keys()

    def of_topic(self, topic: str) -> Mapping[int, Partition]:
        return self._by_name.get(topic, {})

    def of_topic_id(self, topic_id: bytes) -> Mapping[int, Partition]:
        return self._by_id.get(topic_id, {})

    def __iter__(self) -> Iterator[Partition]:
        return iter(self._homes)

    def __contains__(self, partition: Partition) -> bool:
        """Whether this very replica is still served: not one of the same name that was created since."""
        return partition in self._homes

    # Data directories

    def home(self, partition: Partition) -> DataDirectory | None:
        """The data directory that holds the partition; None if the partition is no longer served."""
        return self._homes.get(partition)

    def group_by_directory(self) -> dict[DataDirectory, list[Partition]]:
        """Every data directory with the partitions in it."""
        found: dict[DataDirectory, list[Partition]] = {directory: [] for directory in self.directories}
        for partition, directory in self._homes.items():
            found[directory].append(partition)
        return found

    def list_in(self, directory: DataDirectory) -> list[Partition]:
        """The partitions in one data directory."""
        return [partition for partition, home in self._homes.items() if home is directory]

    def count_in(self, directory: DataDirectory) -> int:
        """How many partitions are in one data directory."""
        return self._counts[directory]

    def list_moving_to(self, directory: DataDirectory) -> list[Partition]:
        """The partitions that are on their way from another data directory to this one."""
        return [partition for partition in self._homes if partition.moving_to is directory]

    def directories_in_service(self) -> list[DataDirectory]:
        return [directory for directory in self.directories if directory.failure is None]

    # Changes

    def add(self, partition: Partition, directory: DataDirectory) -> None:
        partitions = self._by_id.setdefault(partition.topic_id, {})
        self._by_name[partition.topic] = partitions
        self._homes[partition] = directory
        self._counts[directory] += 1
        partitions[partition.index] = partition

    def remove_topic(self, topic: str | None, topic_id: bytes) -> list[tuple[Partition, DataDirectory]]:
        """Stop serving a deleted topic. Returns its partitions and where each of them lies."""
        partitions = self._by_id.pop(topic_id, {})
        if topic is not None:
            self._by_name.pop(topic, None)
            self.meters.forget(topic)
            self.offline.forget(topic, topic_id)
        return [(partition, self._leave_home(partition)) for partition in partitions.values()]

    def remove(self, topic_id: bytes, indexes: Iterable[int]) -> list[tuple[Partition, DataDirectory]]:
        """Stop serving some partitions of a topic. Returns them and where each of them lies."""
        partitions = self._by_id[topic_id]
        removed = [partitions.pop(index) for index in indexes]
        return [(partition, self._leave_home(partition)) for partition in removed]

    def _leave_home(self, partition: Partition) -> DataDirectory:
        directory = self._homes.pop(partition)
        self._counts[directory] -= 1
        return directory

    def move(self, partition: Partition, directory: DataDirectory) -> None:
        """The partition's log is in another data directory now."""
        self._counts[self._homes[partition]] -= 1
        self._counts[directory] += 1
        self._homes[partition] = directory

    def take_offline(self, directory: DataDirectory) -> list[Partition]:
        """Stop serving the partitions of a failed directory. From now on `get` answers KAFKA_STORAGE_ERROR for them."""
        partitions = self.list_in(directory)
        for partition in partitions:
            self._leave_home(partition)
            del self._by_id[partition.topic_id][partition.index]
            self.offline.add(partition.topic, partition.topic_id, partition.index)
        return partitions
