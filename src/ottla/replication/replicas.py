"""All partitions that this broker keeps, brought in line with every change of the metadata.

A partition lives in the directory `<topic>-<partition>` of one data directory; the topic id inside it says whose it is.
A directory that the metadata does not know is renamed `-stray` and kept: metadata that was lost must never take the
data with it. A deleted partition is renamed `-delete` first, so that its name is free at once, and removed later.
"""

import asyncio
import errno
import logging
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from random import Random
from typing import NamedTuple

from ottla.clock import Clock, SteadyClock
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
from ottla.cluster.image import Image, TopicImage
from ottla.cluster.topics import CLUSTER_METADATA
from ottla.config import BrokerConfig, TopicConfig
from ottla.errors import ErrorCode, KafkaError
from ottla.metrics import TopicMeters
from ottla.replication.partition import Partition
from ottla.replication.removals import Removals
from ottla.storage import names
from ottla.storage.directories import DELETE, STRAY, DataDirectory, Offsets, PartitionDirectory
from ottla.storage.files import Disk
from ottla.storage.flush import write_again
from ottla.storage.index import IndexCache
from ottla.storage.leftovers import remove_tree
from ottla.storage.log import Log, LogSettings
from ottla.storage.partition_metadata import read_topic_id
from ottla.threads import Offload

logger = logging.getLogger(__name__)

Progress = Callable[[str, int, int], None]
Partitions = dict[int, Partition]


class Found(NamedTuple):
    """A partition's log as it was found on disk, not yet given its place in the cluster."""

    topic: TopicImage
    number: int
    log: Log
    directory: DataDirectory
    high_watermark: int


def log_settings(config: TopicConfig, broker: BrokerConfig) -> LogSettings:
    compacted = "compact" in config.cleanup_policy
    deletes = "delete" in config.cleanup_policy
    return LogSettings(
        segment_bytes=config.internal_segment_bytes or config.segment_bytes,
        # The active segment is never compacted, so it must not be active for longer than compaction may lag behind.
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


class Replicas:
    def __init__(
        self,
        broker_id: int,
        config: BrokerConfig,
        disk: Disk,
        directories: Sequence[DataDirectory],
        clock: Clock,
        random: Random,
        offload: Offload,
    ) -> None:
        self.meters = TopicMeters()
        self._broker_id = broker_id
        self._config = config
        self._disk = disk
        self._directories = directories
        self._clock = clock
        self._random = random
        self._offload = offload
        self._seconds = asyncio.get_running_loop().time
        self._by_name: dict[str, Partitions] = {}
        self._by_id: dict[bytes, Partitions] = {}
        self._homes: dict[Partition, DataDirectory] = {}
        self._old = SteadyClock(clock, self._seconds)
        self._removals = Removals(offload)
        self._missing: dict[bytes, None] = {}
        self._indexes = IndexCache()
        self._writing_log_starts = asyncio.Lock()

    # Finding a partition

    def get(self, topic: str, index: int) -> Partition:
        """The local replica; UNKNOWN_TOPIC_OR_PARTITION if this broker has none."""
        try:
            return self._by_name[topic][index]
        except KeyError:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) from None

    def get_by_id(self, topic_id: bytes, index: int) -> Partition:
        try:
            partitions = self._by_id[topic_id]
        except KeyError:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID) from None
        try:
            return partitions[index]
        except KeyError:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) from None

    def __iter__(self) -> Iterator[Partition]:
        return iter(self._homes)

    def by_directory(self) -> dict[DataDirectory, list[Partition]]:
        """Every data directory with the partitions in it."""
        found: dict[DataDirectory, list[Partition]] = {directory: [] for directory in self._directories}
        for partition, directory in self._homes.items():
            found[directory].append(partition)
        return found

    # Start

    def find(self, image: Image, progress: Progress) -> list[Found]:
        """Open every log of the data directories, with recovery where needed. Slow: runs in a thread, at start only."""
        found = []
        for directory in self._directories:
            for partition in directory.partitions():
                if partition.marker == DELETE:
                    self._remove_directory(partition.path)
                elif not partition.marker and partition.topic != CLUSTER_METADATA:
                    topic = image.topic(partition.topic)
                    if topic is None or topic.id != read_topic_id(self._disk, partition.path):
                        self._set_aside(directory, partition)
                    else:
                        found.append(self._open(directory, topic, partition, image, progress))
        return found

    def _open(
        self,
        directory: DataDirectory,
        topic: TopicImage,
        partition: PartitionDirectory,
        image: Image,
        progress: Progress,
    ) -> Found:
        key = (partition.topic, partition.index)
        config = self._topic_config(image, topic.name)
        log = Log.open(
            self._disk,
            partition.path,
            log_settings(config, self._config),
            clean=directory.was_clean,
            recovery_point=directory.recovery_points.get(key, 0),
            log_start_offset=directory.log_starts.get(key, 0),
            now_ms=self._clock.now_ms(),
            progress=lambda done, total: progress(partition.path, done, total),
            cache=self._indexes,
        )
        if config.flush_messages == 1 and log.recovery_point < log.end_offset:
            # Found after a crash, and maybe in the page cache only. Consumers have seen it: they must never be told of
            # a high watermark below it, so it is made durable before the first of them can ask.
            self._write_again(log)
            log.flush()
        return Found(topic, partition.index, log, directory, directory.high_watermarks.get(key, 0))

    def _write_again(self, log: Log) -> None:
        first = bisect_right([segment.base_offset for segment in log.segments], log.recovery_point) - 1
        for segment in log.segments[max(first, 0) :]:
            file = self._disk.open(segment.path(names.LOG))
            write_again(file, 0)
            file.close()

    def _set_aside(self, directory: DataDirectory, partition: PartitionDirectory) -> None:
        target = directory.marked_path(partition.topic, partition.index, self._unique(), STRAY)
        logger.warning("%s belongs to no topic in the metadata: kept as %s", partition.path, target)
        self._disk.rename(partition.path, target)
        self._disk.fsync_directory(directory.path)

    def _unique(self) -> str:
        return self._random.randbytes(16).hex()

    def adopt(self, found: Sequence[Found], image: Image) -> None:
        """Take the logs that `find` opened into service."""
        for topic, index, log, directory, high_watermark in found:
            self._add(topic, index, log, directory, high_watermark, self._topic_config(image, topic.name))

    # Following the metadata

    def apply(self, before: Image, after: Image, changes: Sequence[Change]) -> None:
        """Bring the partitions in line with `after`. Called for every metadata entry, in order."""
        touched: dict[bytes, None] = {}
        configured: dict[str, None] = {}
        leaders_moved = False
        for change in changes:
            match change:
                case DeleteTopic(topic_id=topic_id):
                    self._delete(topic_id)
                case CreatePartition(topic_id=topic_id) | ChangePartition(topic_id=topic_id):
                    touched[topic_id] = None
                case SetConfig(resource_type=ConfigResource.TOPIC, resource_name=topic):
                    configured[topic] = None
                case RegisterBroker() | FenceBroker() | UnfenceBroker():
                    leaders_moved = True
        for name in configured:
            self._reconfigure(name, after)
        for topic_image in after.topics() if leaders_moved else map(after.topic_by_id, touched):
            if topic_image is not None:
                self._place(topic_image, after)

    def configure(self, config: BrokerConfig, image: Image) -> None:
        """The broker's settings were changed, and with them what topics have from it."""
        self._config = config
        for name in self._by_name:
            self._reconfigure(name, image)

    def _place(self, topic: TopicImage, image: Image) -> None:
        partitions = self._by_name.get(topic.name, {})
        for index, state in enumerate(topic.partitions):
            if self._broker_id in state.replicas:
                partition = partitions.get(index) or self._create(topic, index, image)
                if partition is not None:
                    partition.become(state)

    def _create(self, topic: TopicImage, index: int, image: Image) -> Partition | None:
        """A new, empty replica; None if the disk refuses, and then `place_missing` tries again."""
        try:
            return self._create_log(topic, index, image)
        except OSError as error:
            logger.error("%s-%d cannot be created: %s", topic.name, index, error)
            self._missing[topic.id] = None
            return None

    async def place_missing(self, image: Image) -> None:
        """Replicas that the disk had no room for, once more."""
        missing, self._missing = self._missing, {}
        for topic in map(image.topic_by_id, missing):
            if topic is not None:
                self._place(topic, image)

    def _create_log(self, topic: TopicImage, index: int, image: Image) -> Partition:
        directory = min(self._directories, key=lambda directory: directory.partition_count)
        path = directory.partition_path(topic.name, index)
        config = self._topic_config(image, topic.name)
        if self._disk.exists(path):
            self._set_aside(directory, PartitionDirectory(topic.name, index, "", path))
        log = Log.create(
            self._disk,
            path,
            topic.id,
            log_settings(config, self._config),
            self._clock.now_ms(),
            cache=self._indexes,
        )
        directory.partition_count += 1
        return self._add(topic, index, log, directory, 0, config)

    def _add(
        self,
        topic: TopicImage,
        index: int,
        log: Log,
        directory: DataDirectory,
        high_watermark: int,
        config: TopicConfig,
    ) -> Partition:
        partition = Partition(
            topic.name, topic.id, index, log, config, self._broker_id, self._offload, high_watermark,
            self.meters.of(topic.name),
        )  # fmt: skip
        partitions = self._by_name.setdefault(topic.name, {})
        self._by_id[topic.id] = partitions
        self._homes[partition] = directory
        partitions[index] = partition
        return partition

    def _delete(self, topic_id: bytes) -> None:
        gone = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the topic was deleted")
        partitions = self._by_id.pop(topic_id, {})
        for directory in self._directories:
            # Checkpoints go by name: a new topic of this name must not inherit them.
            directory.forget([(partition.topic, index) for index, partition in partitions.items()])
        for partition in partitions.values():
            self._by_name.pop(partition.topic, None)
            self.meters.forget(partition.topic)
            directory = self._homes.pop(partition)
            directory.partition_count -= 1
            partition.retire(gone)
            target = directory.marked_path(partition.topic, partition.index, self._unique(), DELETE)
            self._disk.rename(partition.log.directory, target)
            self._remove_directory(target)

    def _remove_directory(self, path: str) -> None:
        self._remove_later(self._config.log_segment_delete_delay_ms, partial(remove_tree, self._disk, path))

    def _remove_later(self, delay_ms: int, remove: Callable[[], None]) -> None:
        self._removals.add(self._seconds() + delay_ms / 1000, remove)

    def _topic_config(self, image: Image, topic: str) -> TopicConfig:
        return TopicConfig.of(image.config(ConfigResource.TOPIC, topic), self._config)

    def _reconfigure(self, topic: str, image: Image) -> None:
        config = self._topic_config(image, topic)
        for partition in self._by_name.get(topic, {}).values():
            partition.configure(config, log_settings(config, self._config))

    # Upkeep

    def _offsets(self, of: Callable[[Partition], int]) -> dict[DataDirectory, Offsets]:
        offsets: dict[DataDirectory, Offsets] = {directory: {} for directory in self._directories}
        for partition, directory in self._homes.items():
            offsets[directory][partition.topic, partition.index] = of(partition)
        return offsets

    async def write_high_watermarks(self) -> None:
        for directory, offsets in self._offsets(lambda partition: partition.high_watermark.value).items():
            await self._offload(directory.write_high_watermarks, offsets)

    async def write_recovery_points(self) -> None:
        for directory, offsets in self._offsets(lambda partition: partition.log.recovery_point).items():
            await self._offload(directory.write_recovery_points, offsets)

    def _remove_dropped(self, partition: Partition) -> None:
        if partition.log.has_deleted:
            self._remove_later(partition.config.file_delete_delay_ms, partition.log.take_deleted().run)

    async def write_log_starts(self) -> None:
        """Where every log begins now is on disk when this returns; what lies before that goes."""
        async with self._writing_log_starts:
            for directory, partitions in self.by_directory().items():
                starts = {partition: partition.log.log_start_offset for partition in partitions}
                moved = {(partition.topic, partition.index): start for partition, start in starts.items() if start}
                try:
                    await self._offload(directory.write_log_starts, moved)
                except OSError as error:
                    if error.errno == errno.ENOSPC:  # what goes makes the room that is missing
                        await self._drop_segments(starts, in_order=True)
                    raise
                await self._drop_segments(starts, in_order=False)

    async def _drop_segments(self, starts: dict[Partition, int], *, in_order: bool) -> None:
        for partition, start in starts.items():
            if partition in self._homes and partition.log.has_segments_before(start):
                partition.log.drop_segments(start, in_order=in_order)
                self._remove_dropped(partition)
                await asyncio.sleep(0)  # renaming takes a while for thousands of segments

    async def expire_segments(self) -> None:
        """Retention: segments that are too old or too much go, and those before the start of their log."""
        now_ms = self._old.now_ms()
        for partition in list(self._homes):
            if partition in self._homes:
                try:
                    partition.expire(now_ms)
                except (OSError, KafkaError) as error:
                    logger.error("%s: its old segments cannot be found: %s", partition, error)
            await asyncio.sleep(0)
        await self.write_log_starts()

    async def flush_old(self) -> None:
        """flush.ms: records do not stay unflushed for longer than that."""
        now = self._seconds()
        for partition in self._homes:
            partition.flush_if_old(now)

    async def expire_producers(self) -> None:
        now_ms = self._old.now_ms()
        for partition in self._homes:
            partition.log.expire_producers(now_ms)

    async def remove_deleted(self) -> None:
        """Files and directories that were deleted file.delete.delay.ms ago."""
        for partition in self._homes:
            self._remove_dropped(partition)
        await self._removals.run_due(self._seconds())

    async def close(self) -> bool:
        """Flush and close every log and write every checkpoint. Whether all of it worked."""
        closed = await self._offload(self._close_logs)
        await self.write_recovery_points()
        await self.write_log_starts()
        await self.write_high_watermarks()
        return closed

    def abandon(self) -> None:
        """Let go of every log as it is; those who wait are told."""
        for partition in self._homes:
            partition.retire(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the broker has stopped"))

    def _close_logs(self) -> bool:
        clean = True
        for partition in self._homes:
            try:
                partition.log.close()
            except OSError as error:
                partition.log.fail(str(error))
                logger.error("%s could not be closed: %s", partition, error)
            clean = clean and not partition.log.failed
        return clean
