"""All partitions that this broker keeps, brought in line with every change of the metadata.

A partition lives in the directory `<topic>-<partition>` of one data directory; the topic id inside it says whose it is.
A directory that the metadata does not know is renamed `-stray` and kept: metadata that was lost must never take the
data with it. A deleted partition is renamed `-delete` first, so that its name is free at once, and removed later.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from random import Random

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
from ottla.observability.metrics import TopicMeters
from ottla.replication.discovery import Discovery, Progress, log_settings, set_aside
from ottla.replication.offline import OfflinePartitions
from ottla.replication.partition import Partition
from ottla.replication.removals import Removals
from ottla.storage.directories import DELETE, DataDirectory, Offsets, PartitionDirectory, PartitionKey
from ottla.storage.disk_errors import in_words, is_failure
from ottla.storage.files import Disk
from ottla.storage.index import IndexCache
from ottla.storage.leftovers import remove_tree
from ottla.storage.log import Flush, Log
from ottla.system.clock import Clock, SteadyClock
from ottla.system.threads import Offload

logger = logging.getLogger(__name__)

LEAVING_AT_ONCE = 100
CLOSING_AT_ONCE = 64
CLOSERS = 4

Partitions = dict[int, Partition]


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
        self.directories = directories
        self._clock = clock
        self._random = random
        self._offload = offload
        self._loop = asyncio.get_running_loop()
        self._seconds = self._loop.time
        self.offline = OfflinePartitions()
        self.on_directory_failure: Callable[[DataDirectory], None] | None = None
        self._marking: list[asyncio.Future[None]] = []
        self._closing = False
        self._image = EMPTY
        self._being_written: list[Offsets] = []
        self._postponed: dict[bytes, None] = {}
        """Topics whose partitions are created when no checkpoint is being written."""
        self._unwritten: dict[Callable[[Offsets], None], DataDirectory] = {}
        """Checkpoints that could not be written, and where."""
        self._by_name: dict[str, Partitions] = {}
        self._by_id: dict[bytes, Partitions] = {}
        self._homes: dict[Partition, DataDirectory] = {}
        self._old = SteadyClock(clock, self._seconds)
        self._removals = Removals(offload)
        self._missing: dict[bytes, None] = {}
        self._leaving: dict[str, tuple[Partition, DataDirectory]] = {}
        """Directories of deleted partitions that still have their name."""
        self._indexes = IndexCache()
        self._writing_log_starts = asyncio.Lock()

    # Finding a partition

    def get(self, topic: str, index: int) -> Partition:
        """The local replica; UNKNOWN_TOPIC_OR_PARTITION if there is none, KAFKA_STORAGE_ERROR if its disk failed."""
        try:
            return self._by_name[topic][index]
        except KeyError:
            self.offline.refuse(topic, index)
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) from None

    def get_by_id(self, topic_id: bytes, index: int) -> Partition:
        try:
            partitions = self._by_id[topic_id]
        except KeyError:
            self.offline.refuse_by_id(topic_id, index)
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID) from None
        try:
            return partitions[index]
        except KeyError:
            self.offline.refuse_by_id(topic_id, index)
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) from None

    def __iter__(self) -> Iterator[Partition]:
        return iter(self._homes)

    def by_directory(self) -> dict[DataDirectory, list[Partition]]:
        """Every data directory with the partitions in it."""
        found: dict[DataDirectory, list[Partition]] = {directory: [] for directory in self.directories}
        for partition, directory in self._homes.items():
            found[directory].append(partition)
        return found

    # Start

    def find(self, image: Image, progress: Progress, deleted: Collection[bytes] = ()) -> Discovery:
        """Open every log of the data directories. Slow: runs in a thread, at start only.

        `deleted` are topics that are known to have been deleted: what is left of them goes.
        """
        discovery = Discovery(
            self._disk, self._config, self._clock, self._unique, self._indexes, image, deleted, progress
        )
        return discovery.run(self.directories)

    def adopt(self, discovery: Discovery, image: Image) -> None:
        """Take into service what `find` found."""
        for path in discovery.doomed:
            self._remove_directory(path)
        for topic, index, log, directory, high_watermark in discovery.found.values():
            self._add(topic, index, log, directory, high_watermark, self._topic_config(image, topic.name))
        for topic, index in discovery.unreadable:
            self.offline.add(topic.name, topic.id, index)
        if len(self._in_service()) < len(self.directories):
            self._miss(image)

    def _miss(self, image: Image) -> None:
        """What a failed directory holds is unknown: a partition that is in no other is in it, and not begun anew."""
        for topic in image.topics():
            here = self._by_id.get(topic.id, {})
            for index, state in enumerate(topic.partitions):
                if self._broker_id in state.replicas and index not in here:
                    self.offline.add(topic.name, topic.id, index)

    def _unique(self) -> str:
        return self._random.randbytes(16).hex()

    # Directories that fail

    def _in_service(self) -> list[DataDirectory]:
        return [directory for directory in self.directories if directory.failure is None]

    def _report(self, directory: DataDirectory, reason: str) -> None:
        """A log had an error that says that its disk fails. It may be in the middle of something: let it finish."""
        if not self._closing:
            self._loop.call_soon(self.fail_directory, directory, reason)

    def fail_directory(self, directory: DataDirectory, reason: str) -> None:
        """Nobody knows what is on its disk now: its partitions are offline until a restart, all others go on."""
        if directory.failure is not None or self._closing:
            return
        directory.failure = reason
        partitions = [partition for partition, home in self._homes.items() if home is directory]
        logger.error(
            "%s failed, its %d partitions are offline until a restart: %s", directory.path, len(partitions), reason
        )
        for partition in partitions:
            del self._homes[partition], self._by_id[partition.topic_id][partition.index]
            self.offline.add(partition.topic, partition.topic_id, partition.index)
            partition.retire(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, reason))
        self._marking.append(self._offload(directory.distrust))
        if self.on_directory_failure is not None:
            self.on_directory_failure(directory)

    # Following the metadata

    def apply(self, before: Image, after: Image, changes: Sequence[Change]) -> None:
        """Bring the partitions in line with `after`. Called for every metadata entry, in order."""
        self._image = after
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
        here = self._by_id.get(topic.id, {})
        mine = [(index, state) for index, state in enumerate(topic.partitions) if self._broker_id in state.replicas]
        new = [index for index, _ in mine if index not in here and not self.offline.knows(topic.id, index)]
        if new:
            self._create(topic, new, image)
            here = self._by_id.get(topic.id, {})
        for index, state in mine:
            if index in here:
                here[index].become(state)

    def _create(self, topic: TopicImage, new: Sequence[int], image: Image) -> None:
        """New, empty replicas. Those that the disk refuses are tried again by `place_missing`."""
        keys = [(topic.name, index) for index in new]
        if self._mentioned(keys):
            self._postponed[topic.id] = None
            return
        try:
            for directory in self._in_service():
                # Checkpoints go by name: a new topic must not inherit those of an old one.
                directory.forget(keys)
            config = self._topic_config(image, topic.name)
            for index in new:
                self._create_log(topic, index, config)
        except OSError as error:
            logger.error("%s: partitions cannot be created: %s", topic.name, in_words(error))
            self._missing[topic.id] = None

    def _mentioned(self, keys: Sequence[PartitionKey]) -> bool:
        """Whether a thread is writing a checkpoint, and an old topic of this name may be in it or in one before it."""
        if not self._being_written:
            return False
        return any(key in offsets for key in keys for offsets in self._being_written) or any(
            directory.mentions(keys) for directory in self._in_service()
        )

    def _place_postponed(self) -> None:
        postponed, self._postponed = self._postponed, {}
        for topic in map(self._image.topic_by_id, postponed):
            if topic is not None:
                self._place(topic, self._image)

    async def place_missing(self, image: Image) -> None:
        """Replicas that the disk had no room for, once more."""
        missing, self._missing = self._missing, {}
        for topic in map(image.topic_by_id, missing):
            if topic is not None:
                self._place(topic, image)

    def _create_log(self, topic: TopicImage, index: int, config: TopicConfig) -> None:
        """In the directory with the fewest partitions, or the next one if it has no room. OSError if none has."""
        directories = sorted(self._in_service(), key=lambda directory: directory.partition_count)
        for directory in directories:
            try:
                log = self._begin_log(directory, topic, index, config)
            except OSError as error:
                if is_failure(error):
                    self._report(directory, in_words(error))
                if directory is directories[-1]:
                    raise
            else:
                directory.partition_count += 1
                self._add(topic, index, log, directory, 0, config)
                return

    def _begin_log(self, directory: DataDirectory, topic: TopicImage, index: int, config: TopicConfig) -> Log:
        path = directory.partition_path(topic.name, index)
        if path in self._leaving:
            self._leave(path)
        if self._disk.exists(path):
            set_aside(self._disk, directory, PartitionDirectory(topic.name, index, "", path), self._unique())
        settings = log_settings(config, self._config)
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
        partition = Partition(
            topic.name,
            topic.id,
            index,
            log,
            config,
            self._broker_id,
            self._offload,
            high_watermark,
            self.meters.of(topic.name),
        )
        log.on_disk_failure = partial(self._report, directory)
        partitions = self._by_id.setdefault(topic.id, {})
        self._by_name[topic.name] = partitions
        self._homes[partition] = directory
        partitions[index] = partition

    def _delete(self, topic_id: bytes, image: Image) -> None:
        gone = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the topic was deleted")
        partitions = self._by_id.pop(topic_id, {})
        topic = image.topic_by_id(topic_id)
        if topic is not None:
            self._by_name.pop(topic.name, None)
            self.meters.forget(topic.name)
            self.offline.forget(topic.name, topic_id)
        for partition in partitions.values():
            directory = self._homes.pop(partition)
            directory.partition_count -= 1
            partition.retire(gone)
            self._leaving[partition.log.directory] = partition, directory
        self._rename_leaving()

    def _rename_leaving(self) -> None:
        """A few at a time: a topic may have thousands of partitions. The next start knows what a crash leaves of it."""
        for path in list(islice(self._leaving, LEAVING_AT_ONCE)):
            self._leave(path)
        if self._leaving:
            self._loop.call_soon(self._rename_leaving)

    def _leave(self, path: str) -> None:
        """The name is free then; what it stood for is removed later."""
        partition, directory = self._leaving.pop(path)
        target = directory.marked_path(partition.topic, partition.index, self._unique(), DELETE)
        try:
            self._disk.rename(path, target)
        except OSError as error:
            logger.error("%s cannot be renamed: %s", path, in_words(error))
            self._report(directory, in_words(error))
        else:
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
        offsets: dict[DataDirectory, Offsets] = {directory: {} for directory in self._in_service()}
        for partition, directory in self._homes.items():
            offsets[directory][partition.topic, partition.index] = of(partition)
        return offsets

    async def write_high_watermarks(self) -> None:
        for directory, offsets in self._offsets(lambda partition: partition.high_watermark.value).items():
            await self._write(directory, directory.write_high_watermarks, offsets)

    async def write_recovery_points(self) -> None:
        for directory, offsets in self._offsets(lambda partition: partition.log.recovery_point).items():
            await self._write(directory, directory.write_recovery_points, offsets)

    def recovery_point_on_disk(self, partition: Partition) -> int:
        """-1 if it is no longer here."""
        directory = self._homes.get(partition)
        return -1 if directory is None else directory.recovery_points.get((partition.topic, partition.index), 0)

    async def write_clean_ends(self) -> None:
        for directory, offsets in self._offsets(lambda partition: partition.log.first_dirty_offset).items():
            compacted = {key: offset for key, offset in offsets.items() if offset}
            await self._write(directory, directory.write_clean_ends, compacted)

    async def _write(
        self, directory: DataDirectory, write: Callable[[Offsets], None], offsets: Offsets
    ) -> OSError | None:
        """A checkpoint that cannot be written is in nobody's way; a directory that fails is. What went wrong."""
        if directory.failure is not None:
            return None
        self._being_written.append(offsets)
        try:
            await self._offload(write, offsets)
        except OSError as error:
            logger.warning("%s: a checkpoint is not written: %s", directory.path, in_words(error))
            if is_failure(error):
                self.fail_directory(directory, in_words(error))
            self._unwritten[write] = directory
            return error
        finally:
            self._being_written.remove(offsets)
            if not self._being_written and self._postponed:
                self._place_postponed()
        self._unwritten.pop(write, None)
        return None

    def _remove_dropped(self, partition: Partition) -> None:
        if partition.log.has_deleted:
            self._remove_later(partition.config.file_delete_delay_ms, partition.log.take_deleted().run)

    async def write_log_starts(self) -> None:
        """Where every log begins now is on disk when this returns, and what lies before that goes; or an OSError."""
        refused: OSError | None = None
        async with self._writing_log_starts:
            for directory, partitions in self.by_directory().items():
                starts = {partition: partition.log.log_start_offset for partition in partitions}
                moved = {(partition.topic, partition.index): start for partition, start in starts.items() if start}
                error = await self._write(directory, directory.write_log_starts, moved)
                refused = error or refused
                # Without room for a checkpoint old segments still have to go: they take what is missing.
                await self._drop_segments(starts, in_order=error is not None)
        if refused is not None:
            raise refused

    async def checkpoint_log_starts(self) -> None:
        """As far as the disks let it: nobody waits for it, and what they refuse was told already."""
        with suppress(OSError):
            await self.write_log_starts()

    async def _drop_segments(self, starts: dict[Partition, int], *, in_order: bool) -> None:
        for partition, start in starts.items():
            if partition in self._homes and partition.log.has_segments_before(start):
                try:
                    partition.log.drop_segments(start, in_order=in_order)
                except OSError as error:
                    self._report(self._homes[partition], in_words(error))
                    continue
                self._remove_dropped(partition)
                await asyncio.sleep(0)  # renaming takes a while for thousands of segments

    async def expire_segments(self) -> None:
        """Retention: segments that are too old or too much go, and those before the start of their log."""
        now_ms = self._old.now_ms()
        for partition in list(self._homes):
            if partition in self._homes:
                try:
                    partition.expire(now_ms)
                except KafkaError as error:
                    logger.error("%s: its old segments stay: %s", partition, error.message)
                except OSError as error:
                    self._report(self._homes[partition], in_words(error))
            await asyncio.sleep(0)
        await self.checkpoint_log_starts()

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

    async def close(self) -> list[DataDirectory]:
        """Flush and close every log and write every checkpoint. The directories where all of it worked."""
        self._closing = True
        for path in list(self._leaving):
            self._leave(path)
        await asyncio.gather(*self._marking)
        clean = await self._close_logs()
        await self.write_recovery_points()
        await self.checkpoint_log_starts()
        await self.write_high_watermarks()
        return [directory for directory in clean if directory not in self._unwritten.values()]

    def abandon(self) -> None:
        """Let go of every log as it is; those who wait are told."""
        for partition in self._homes:
            partition.retire(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the broker has stopped"))

    async def _close_logs(self) -> list[DataDirectory]:
        """A few at a time, their fsyncs beside each other: a file system syncs many files for little more than one."""
        clean = dict.fromkeys(self._in_service())
        partitions = list(self._homes)
        for begin in range(0, len(partitions), CLOSING_AT_ONCE):
            closing = partitions[begin : begin + CLOSING_AT_ONCE]
            flushes = await self._offload(_start_closing, closing)
            workers = [list(flushes.items())[worker::CLOSERS] for worker in range(min(CLOSERS, len(flushes)))]
            await asyncio.gather(*(self._offload(_run_flushes, work) for work in workers))
            await self._offload(_finish_closing, closing, flushes)
            for partition in closing:
                if partition.log.failed:
                    clean.pop(self._homes[partition], None)
        return list(clean)


def _start_closing(partitions: Sequence[Partition]) -> dict[Partition, Flush | None]:
    flushes = {}
    for partition in partitions:
        try:
            flushes[partition] = partition.log.start_close()
        except OSError as error:
            _could_not_close(partition, error)
    return flushes


def _run_flushes(flushes: Sequence[tuple[Partition, Flush | None]]) -> None:
    for partition, flush in flushes:
        if flush is not None:
            try:
                flush.run()
            except OSError as error:
                _could_not_close(partition, error)


def _finish_closing(partitions: Sequence[Partition], flushes: Mapping[Partition, Flush | None]) -> None:
    for partition in partitions:
        flush = None if partition.log.failed else flushes.get(partition)
        try:
            partition.log.finish_close(flush)
        except OSError as error:
            _could_not_close(partition, error)


def _could_not_close(partition: Partition, error: OSError) -> None:
    partition.log.fail(str(error))
    logger.error("%s could not be closed: %s", partition, in_words(error))
