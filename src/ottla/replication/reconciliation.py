"""Keeps the local partitions in line with the metadata: creates, deletes, configures them, and tells them who leads.

A partition lives in the directory `<topic>-<partition>` of one data directory; the topic id inside it says whose it is.
A directory that the metadata does not know is renamed `-stray` and kept: metadata that was lost must never take the
data with it. A deleted partition is renamed `-delete` first, so that its name is free at once, and removed later.
"""

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from ottla.cluster.changes import (
    Change,
    ChangePartition,
    ConfigResource,
    CreatePartition,
    DeleteTopic,
    FenceBroker,
    RegisterBroker,
    SetConfig,
    UnfenceBroker,
)
from ottla.cluster.image import EMPTY, Image, TopicImage
from ottla.config import BrokerConfig, TopicConfig
from ottla.errors import ErrorCode, KafkaError
from ottla.replication.checkpoints import Checkpoints
from ottla.replication.deleted_partitions import DeletedPartitions
from ottla.replication.directory_failures import DirectoryFailures
from ottla.replication.discovery import Discovery, log_settings, set_aside
from ottla.replication.partition import Partition
from ottla.replication.replicas import Replicas
from ottla.storage.directories import DataDirectory, PartitionDirectory
from ottla.storage.disk_errors import describe_error, is_failure
from ottla.storage.files import Disk
from ottla.storage.index import IndexCache
from ottla.storage.leftovers import remove_tree
from ottla.storage.log import Log
from ottla.system.clock import Clock
from ottla.system.threads import Offload
from ottla.topic_partition import TopicPartition

logger = logging.getLogger(__name__)


class Reconciliation:
    def __init__(
        self,
        broker_id: int,
        settings: Callable[[], BrokerConfig],
        disk: Disk,
        clock: Clock,
        offload: Offload,
        unique: Callable[[], str],
        indexes: IndexCache,
        replicas: Replicas,
        checkpoints: Checkpoints,
        deleted: DeletedPartitions,
        failures: DirectoryFailures,
    ) -> None:
        self._broker_id = broker_id
        self._settings = settings
        self._disk = disk
        self._clock = clock
        self._offload = offload
        self._unique = unique
        self._indexes = indexes
        self._replicas = replicas
        self._checkpoints = checkpoints
        self._deleted = deleted
        self._failures = failures
        self._image = EMPTY
        self._postponed: dict[bytes, None] = {}
        """Topics whose partitions are created when no checkpoint is being written."""
        self._missing: dict[bytes, None] = {}
        """Topics with partitions that no disk had room for."""
        checkpoints.on_idle = self._create_postponed

    def adopt(self, discovery: Discovery, image: Image) -> None:
        """Take into service what the search of the data directories found at the start."""
        self._replicas.image = image
        for path in discovery.doomed:
            self._deleted.remove(path)
        for topic, index, log, directory, high_watermark in discovery.found.values():
            self._add(topic, index, log, directory, high_watermark, self._topic_config(image, topic.name))
        for topic, index in discovery.unreadable:
            self._replicas.offline.add(topic.name, topic.id, index)
        if len(self._replicas.directories_in_service()) < len(self._replicas.directories):
            self._take_missing_offline(image)

    def _take_missing_offline(self, image: Image) -> None:
        """What a failed directory holds is unknown: a partition that no other directory holds must be in it.

        Such a partition is offline. It is not created anew.
        """
        for topic in image.topics():
            here = self._replicas.of_topic_id(topic.id)
            for index, state in enumerate(topic.partitions):
                if self._broker_id in state.replicas and index not in here:
                    self._replicas.offline.add(topic.name, topic.id, index)

    # Changes of the metadata

    def apply(self, before: Image, after: Image, changes: Sequence[Change]) -> None:
        """Bring the partitions in line with `after`. Called for every metadata entry, in order."""
        self._image = self._replicas.image = after
        touched: dict[bytes, None] = {}
        configured: dict[str, None] = {}
        leaders_moved = False
        for change in changes:
            match change:
                case DeleteTopic(topic_id=topic_id):
                    self._delete(topic_id, before)
                case CreatePartition(topic_id=topic_id) | ChangePartition(topic_id=topic_id):
                    touched[topic_id] = None
                case SetConfig(resource_type=ConfigResource.TOPIC, resource_name=topic):
                    configured[topic] = None
                case RegisterBroker() | FenceBroker() | UnfenceBroker():
                    leaders_moved = True
        for name in configured:
            self._configure(name, after)
        for topic_image in after.topics() if leaders_moved else map(after.topic_by_id, touched):
            if topic_image is not None:
                self._place(topic_image, after)

    def configure_all(self, image: Image) -> None:
        """The broker's settings changed, and with them the defaults of every topic."""
        for name in self._replicas.topics():
            self._configure(name, image)

    async def create_missing(self, image: Image) -> None:
        """Try again to create the partitions that no disk had room for."""
        missing, self._missing = self._missing, {}
        for topic in map(image.topic_by_id, missing):
            if topic is not None:
                self._place(topic, image)

    def _create_postponed(self) -> None:
        postponed, self._postponed = self._postponed, {}
        for topic in map(self._image.topic_by_id, postponed):
            if topic is not None:
                self._place(topic, self._image)

    def _place(self, topic: TopicImage, image: Image) -> None:
        """Create the topic's partitions that belong on this broker and are not here; tell all of them their state."""
        here = self._replicas.of_topic_id(topic.id)
        offline = self._replicas.offline
        mine = [(index, state) for index, state in enumerate(topic.partitions) if self._broker_id in state.replicas]
        new = [index for index, _ in mine if index not in here and not offline.knows(topic.id, index)]
        if new:
            self._create(topic, new, image)
            here = self._replicas.of_topic_id(topic.id)
        for index, state in mine:
            if index in here:
                here[index].become(state)

    def _delete(self, topic_id: bytes, image: Image) -> None:
        error = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the topic was deleted")
        topic = image.topic_by_id(topic_id)
        for partition, directory in self._replicas.remove_topic(None if topic is None else topic.name, topic_id):
            directory.partition_count -= 1
            partition.retire(error)
            self._deleted.add(partition, directory)
        self._deleted.rename_some()

    def _topic_config(self, image: Image, topic: str) -> TopicConfig:
        return TopicConfig.of(image.config(ConfigResource.TOPIC, topic), self._settings())

    def _configure(self, topic: str, image: Image) -> None:
        config = self._topic_config(image, topic)
        for partition in self._replicas.of_topic(topic).values():
            partition.configure(config, log_settings(config, self._settings()))

    # New partitions

    def _create(self, topic: TopicImage, new: Sequence[int], image: Image) -> None:
        """Create empty replicas. `create_missing` tries those again that the disk refuses."""
        partitions = [TopicPartition(topic.name, index) for index in new]
        if self._checkpoints.may_mention(partitions):
            self._postponed[topic.id] = None
            return
        try:
            # A new topic must not inherit the offsets of an old one of the same name.
            self._checkpoints.forget(partitions)
            config = self._topic_config(image, topic.name)
            for index in new:
                self._create_log(topic, index, config)
        except OSError as error:
            logger.error("%s: partitions cannot be created: %s", topic.name, describe_error(error))
            self._missing[topic.id] = None

    def _create_log(self, topic: TopicImage, index: int, config: TopicConfig) -> None:
        """Create a log in the directory with the fewest partitions that has room. OSError if none has."""
        directories = sorted(self._replicas.directories_in_service(), key=lambda directory: directory.partition_count)
        for directory in directories:
            try:
                log = self._create_log_in(directory, topic, index, config)
            except OSError as error:
                if is_failure(error):
                    self._failures.report(directory, describe_error(error))
                if directory is directories[-1]:
                    raise
            else:
                directory.partition_count += 1
                self._add(topic, index, log, directory, 0, config)
                return

    def _create_log_in(self, directory: DataDirectory, topic: TopicImage, index: int, config: TopicConfig) -> Log:
        path = directory.partition_path(topic.name, index)
        self._deleted.free(path)
        if self._disk.exists(path):
            set_aside(self._disk, directory, PartitionDirectory(topic.name, index, "", path), self._unique())
        settings = log_settings(config, self._settings())
        try:
            return Log.create(self._disk, path, topic.id, settings, self._clock.now_ms(), cache=self._indexes)
        except OSError:
            with suppress(OSError):
                remove_tree(self._disk, path)  # or the next start would find the partition twice
            raise

    def _add(
        self,
        topic: TopicImage,
        index: int,
        log: Log,
        directory: DataDirectory,
        high_watermark: int,
        config: TopicConfig,
    ) -> None:
        log.on_disk_failure = partial(self._failures.report, directory)
        self._replicas.add(
            Partition(
                topic.name,
                topic.id,
                index,
                log,
                config,
                self._broker_id,
                self._offload,
                high_watermark,
                self._replicas.meters.of(topic.name),
                self._replicas.isr_proposer,
            ),
            directory,
        )
