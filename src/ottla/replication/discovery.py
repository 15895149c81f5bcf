"""Start: finds the partitions in the data directories and opens their logs, with recovery where needed.

A directory belongs to a topic only if the topic id inside it says so. A directory that the metadata does not know is
renamed `-stray` and kept: metadata that was lost must never take the data with it. If the metadata log says that the
topic was deleted, the deletion goes on, even if a power cut undid the renaming of the directory.
"""

import logging
from bisect import bisect_right
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from ottla.cluster.changes import ConfigResource
from ottla.cluster.image import Image, TopicImage
from ottla.cluster.topics import CLUSTER_METADATA
from ottla.config import BrokerConfig, TopicConfig
from ottla.storage import names
from ottla.storage.directories import DELETE, FUTURE, STRAY, DataDirectory, FailedDirectory, PartitionDirectory
from ottla.storage.disk_errors import FailedSync, describe_error, is_failure
from ottla.storage.files import Disk
from ottla.storage.flush import write_again
from ottla.storage.index import IndexCache
from ottla.storage.log import Log, LogSettings
from ottla.storage.opening import open_log
from ottla.storage.partition_metadata import NO_TOPIC_ID, read_topic_id
from ottla.system.clock import Clock
from ottla.topic_partition import TopicIdPartition, TopicPartition

logger = logging.getLogger(__name__)

ReportProgress = Callable[[str, int, int], None]
"""Called with a directory, the number of its bytes that are recovered, and the number of all its bytes."""


class Found(NamedTuple):
    """A partition's log as it was found on disk."""

    topic: TopicImage
    number: int
    log: Log
    directory: DataDirectory
    high_watermark: int


def make_log_settings(config: TopicConfig, broker: BrokerConfig) -> LogSettings:
    compacted = "compact" in config.cleanup_policy
    deletes = "delete" in config.cleanup_policy
    return LogSettings(
        segment_bytes=config.internal_segment_bytes or config.segment_bytes,
        # The active segment is never compacted, so it must be rolled before compaction lags behind for too long.
        segment_ms=min(config.segment_ms, config.max_compaction_lag_ms) if compacted else config.segment_ms,
        segment_jitter_ms=config.segment_jitter_ms,
        segment_index_bytes=config.segment_index_bytes,
        index_interval_bytes=config.index_interval_bytes,
        producer_id_expiration_ms=broker.producer_id_expiration_ms,
        compacted=compacted,
        retention_ms=config.retention_ms if deletes else -1,
        retention_bytes=config.retention_bytes if deletes else -1,
        timestamps_ahead_ms=config.message_timestamp_after_max_ms,
    )


class Discovery:
    """One search of all data directories; its attributes are the result. Slow: runs in a thread, at start only."""

    def __init__(
        self,
        disk: Disk,
        config: BrokerConfig,
        clock: Clock,
        unique: Callable[[], str],
        cache: IndexCache,
        image: Image,
        deleted: Collection[bytes],
        progress: ReportProgress,
    ) -> None:
        self._disk = disk
        self._config = config
        self._clock = clock
        self._unique = unique
        self._cache = cache
        self._image = image
        self._deleted = deleted
        self._progress = progress
        self.found: dict[TopicIdPartition, Found] = {}
        self.doomed: list[str] = []
        """Directories of deleted partitions, to be removed."""
        self.unreadable: list[tuple[TopicImage, int]] = []
        """Partitions whose topic id was on disk once and cannot be read any more."""

    def run(self, directories: Sequence[DataDirectory]) -> "Discovery":
        """Search the directories. FailedDirectory if the first one fails: it holds the metadata."""
        for directory in directories:
            if directory.failure is None:
                try:
                    self._search(directory)
                except OSError as error:
                    if not is_failure(error):
                        raise FailedDirectory(f"{directory.path} cannot be used: {describe_error(error)}") from error
                    self._give_up(directory, describe_error(error))
                    if isinstance(error, FailedSync):
                        directory.distrust()
        first = directories[0]
        if first.failure is not None:
            raise FailedDirectory(f"{first.path} cannot be used: {first.failure}")
        return self

    def _give_up(self, directory: DataDirectory, failure: str) -> None:
        logger.error("%s failed, its partitions are offline: %s", directory.path, failure)
        directory.failure = failure
        for key, found in list(self.found.items()):
            if found.directory is directory:
                found.log.abandon()
                del self.found[key]

    def _search(self, directory: DataDirectory) -> None:
        for partition in directory.partitions():
            if partition.marker in (DELETE, FUTURE):
                self.doomed.append(partition.path)
            elif not partition.marker and partition.topic != CLUSTER_METADATA:
                self._look_at(directory, partition)
        if directory.is_distrusted:
            directory.trust()
        self._mark_checkpointed(directory)

    def _mark_checkpointed(self, directory: DataDirectory) -> None:
        """Write the recovery points. From here on, a log without a recovery point is known to have been created by this
        broker."""
        recovery_points = {
            TopicPartition(found.topic.name, found.number): found.log.recovery_point
            for found in self.found.values()
            if found.directory is directory
        }
        try:
            directory.mark_checkpointed({**directory.recovery_points, **recovery_points})
        except OSError as error:
            if is_failure(error):
                raise
            logger.warning("%s: a checkpoint is not written: %s", directory.path, describe_error(error))

    def _look_at(self, directory: DataDirectory, partition: PartitionDirectory) -> None:
        if self._disk.exists(f"{partition.path}/{names.MOVING}"):
            target = directory.marked_path(partition.topic, partition.index, self._unique(), DELETE)
            logger.info("%s is the incomplete copy of a replica in another data directory: removed", partition.path)
            self._disk.rename(partition.path, target)
            self.doomed.append(target)
            return
        topic = self._image.topic(partition.topic)
        topic_id = read_topic_id(self._disk, partition.path)
        if topic is not None and topic.id == topic_id:
            self._keep(self._open(directory, topic, partition))
        elif topic is not None and topic_id == NO_TOPIC_ID and _was_durable(directory, partition):
            logger.error("%s/%s cannot be read: the partition is offline", partition.path, names.METADATA)
            self.unreadable.append((topic, partition.index))
        elif topic_id in self._deleted:
            target = directory.marked_path(partition.topic, partition.index, self._unique(), DELETE)
            logger.info("%s belongs to a deleted topic and is removed", partition.path)
            self._disk.rename(partition.path, target)
            self.doomed.append(target)
        else:
            set_aside(self._disk, directory, partition, self._unique())

    def _keep(self, found: Found) -> None:
        """Keep the longer log of a partition that is in two directories: the creation of the other was abandoned."""
        key = (found.topic.id, found.number)
        other = self.found.get(key)
        if other is not None:
            if other.log.end_offset >= found.log.end_offset:
                found, other = other, found
            other.log.abandon()
            spare = PartitionDirectory(found.topic.name, found.number, "", other.log.directory)
            set_aside(self._disk, other.directory, spare, self._unique(), f"is no longer than {found.log.directory}")
        self.found[key] = found

    def _open(self, directory: DataDirectory, topic: TopicImage, partition: PartitionDirectory) -> Found:
        key = TopicPartition(partition.topic, partition.index)
        config = TopicConfig.of(self._image.config(ConfigResource.TOPIC, topic.name), self._config)
        was_moved = self._disk.exists(f"{partition.path}/{names.MOVED}")
        begun_here = directory.was_begun_here(key) and not was_moved
        log = open_log(
            self._disk,
            partition.path,
            make_log_settings(config, self._config),
            clean=directory.was_clean and not directory.is_distrusted,
            recovery_point=directory.recovery_points.get(key, 0),
            log_start_offset=directory.log_starts.get(key, 0),
            compacted_to=directory.clean_ends.get(key, 0),
            begun_here=begun_here,
            lost_nothing=directory.killed_at >= 0,
            now_ms=self._clock.now_ms(),
            progress=lambda done, total: self._progress(partition.path, done, total),
            cache=self._cache,
            topic_id=topic.id,
        )
        if (config.flush_messages == 1 or directory.is_distrusted) and log.recovery_point < log.end_offset:
            # Records that a crash left may be in the page cache only. If the topic flushes every message, consumers may
            # have read them, and must never see a high watermark below: they are made durable before the first request.
            # After a failed fsync they are written again for any topic: the next fsync would succeed without them.
            self._write_again(log)
            log.flush()
        if log.recovery_point == 0 < log.end_offset and not begun_here:
            # The log may have been compacted elsewhere and its files copied here. Without a recovery point the next
            # start would assume that it was created here, and that the gaps which compaction left are lost records.
            log.flush()
        return Found(topic, partition.index, log, directory, directory.high_watermarks.get(key, 0))

    def _write_again(self, log: Log) -> None:
        first = bisect_right([segment.base_offset for segment in log.segments], log.recovery_point) - 1
        paths = [segment.path(names.LOG) for segment in log.segments[max(first, 0) :]]
        for path in (f"{log.directory}/{names.METADATA}", *paths):
            file = self._disk.open(path)
            try:
                write_again(file, 0)
            finally:
                file.close()


def _was_durable(directory: DataDirectory, partition: PartitionDirectory) -> bool:
    """Whether the topic id in the directory was on disk: nothing of a new partition is before its first flush."""
    return directory.was_clean or directory.recovery_points.get(TopicPartition(partition.topic, partition.index), 0) > 0


def set_aside(
    disk: Disk,
    directory: DataDirectory,
    partition: PartitionDirectory,
    unique: str,
    reason: str = "belongs to no topic in the metadata",
) -> None:
    """Rename a directory that is not needed to `-stray`, and keep it."""
    target = directory.marked_path(partition.topic, partition.index, unique, STRAY)
    logger.warning("%s %s: kept as %s", partition.path, reason, target)
    disk.rename(partition.path, target)
    disk.fsync_directory(directory.path)
