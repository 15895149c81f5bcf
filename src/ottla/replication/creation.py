"""Creates empty replicas: each in the data directory with the fewest partitions that has room."""

import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from ottla.cluster.image import TopicImage
from ottla.config import BrokerConfig, TopicConfig
from ottla.replication.deleted_partitions import DeletedPartitions
from ottla.replication.directory_failures import DirectoryFailures
from ottla.replication.discovery import make_log_settings, set_aside
from ottla.replication.partition import Partition
from ottla.replication.replicas import Replicas
from ottla.storage.directories import DataDirectory, PartitionDirectory
from ottla.storage.disk_errors import describe_error, is_failure
from ottla.storage.files import Disk
from ottla.storage.index import IndexCache
from ottla.storage.leftovers import remove_tree
from ottla.storage.log import Log
from ottla.storage.opening import create_log
from ottla.system.clock import Clock
from ottla.system.threads import Offload
from ottla.topic_partition import TopicPartition

logger = logging.getLogger(__name__)


class Creation:
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
        self._deleted = deleted
        self._failures = failures
        self._unfinished: dict[str, None] = {}
        """Directories of partitions that could not be created there, and that could not be removed yet."""

    def create(self, topic: TopicImage, index: int, config: TopicConfig) -> None:
        """Create a replica with an empty log, and serve it. OSError if no directory has room.

        A directory that an administrator chose for the replica is tried first, and a cordoned one last.
        """
        settings, preferred = self._settings(), self._replicas.preferred.get(TopicPartition(topic.name, index))
        directories = sorted(
            self._replicas.directories_in_service(),
            key=lambda each: (settings.is_cordoned(each.path), each is not preferred, self._replicas.count_in(each)),
        )
        for directory in directories:
            try:
                log = self._create_log(directory, topic, index, config)
            except OSError as error:
                if is_failure(error):
                    self._failures.report(directory, describe_error(error))
                if directory is directories[-1]:
                    raise
            else:
                self._replicas.preferred.pop(TopicPartition(topic.name, index), None)
                self.add(topic, index, log, directory, 0, config)
                return

    def add(
        self,
        topic: TopicImage,
        index: int,
        log: Log,
        directory: DataDirectory,
        high_watermark: int,
        config: TopicConfig,
    ) -> None:
        """Serve a replica whose log is open."""
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

    def remove_unfinished(self) -> None:
        """Try again to remove what is left of attempts that failed."""
        for path in list(self._unfinished):
            with suppress(OSError):
                self._remove_unfinished(path)

    def _create_log(self, directory: DataDirectory, topic: TopicImage, index: int, config: TopicConfig) -> Log:
        path = directory.partition_path(topic.name, index)
        self._deleted.free(path)
        if path in self._unfinished:
            self._remove_unfinished(path)
        if self._disk.exists(path):
            set_aside(self._disk, directory, PartitionDirectory(topic.name, index, "", path), self._unique())
        settings = make_log_settings(config, self._settings())
        try:
            return create_log(self._disk, path, topic.id, settings, self._clock.now_ms(), cache=self._indexes)
        except OSError:
            if self._disk.exists(path):  # or a move may have created it when the removal is tried again
                self._unfinished[path] = None
                with suppress(OSError):
                    self._remove_unfinished(path)
            raise

    def _remove_unfinished(self, path: str) -> None:
        """Remove the directory of a creation that failed, or the next start would find the partition twice."""
        remove_tree(self._disk, path)
        del self._unfinished[path]
