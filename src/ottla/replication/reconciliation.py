"""Keeps the local partitions in line with the metadata: creates, deletes, configures them, and tells them who leads.

A partition lives in the directory `<topic>-<partition>` of one data directory; the topic id inside it says whose it is.
A directory that the metadata does not know is renamed `-stray` and kept: metadata that was lost must never take the
data with it. A deleted partition, or a replica that was moved to another broker, is renamed `-delete` first, so that
its name is free at once, and removed later.

What is held is compared with the image, not only with the changes of an entry: an entry that is a snapshot of the whole
metadata does not mention what was deleted before it. A topic of many partitions is created in steps, so that the event
loop can serve requests in between.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from ottla.cluster.changes import (
    NO_LEADER,
    BeginShutdown,
    Change,
    ChangePartition,
    ConfigResource,
    CreatePartition,
    DeleteTopic,
    FenceBroker,
    RegisterBroker,
    SetConfig,
    TakeReplicasOffline,
    UnfenceBroker,
    UnregisterBroker,
)
from ottla.cluster.image import Image, PartitionImage, TopicImage
from ottla.config import BrokerConfig, TopicConfig
from ottla.errors import ErrorCode, KafkaError
from ottla.replication.checkpoints import Checkpoints
from ottla.replication.creation import Creation
from ottla.replication.deleted_partitions import DeletedPartitions
from ottla.replication.discovery import Discovery, make_log_settings
from ottla.replication.moves import Moves
from ottla.replication.partition import Partition
from ottla.replication.replicas import Replicas
from ottla.storage.disk_errors import describe_error, is_full
from ottla.topic_partition import TopicIdPartition, TopicPartition

logger = logging.getLogger(__name__)


CREATED_AT_ONCE = 64
"""Replicas that are created in one iteration of the event loop; each takes about half a millisecond."""


class FollowerFetchers(Protocol):
    def follow(self, partition: Partition) -> None:
        """Copy the leader's log. The partition has become a follower in a new leader epoch."""

    def leave(self, partition: Partition) -> None:
        """Stop copying, if the partition is being copied."""


class Reconciliation:
    def __init__(
        self,
        broker_id: int,
        settings: Callable[[], BrokerConfig],
        replicas: Replicas,
        creation: Creation,
        checkpoints: Checkpoints,
        deleted: DeletedPartitions,
        moves: Moves,
    ) -> None:
        self._broker_id = broker_id
        self._settings = settings
        self._replicas = replicas
        self._creation = creation
        self._checkpoints = checkpoints
        self._deleted = deleted
        self._moves = moves
        self._postponed: dict[bytes, None] = {}
        """Topics whose partitions are created when no checkpoint is being written, and their paths are free."""
        self._missing: dict[bytes, None] = {}
        """Topics with partitions that no disk had room for."""
        self._waiting: dict[bytes, list[int]] = {}
        """Topics with the partitions that are created as soon as the event loop has time."""
        self.is_active = False
        """Whether this broker takes part in the cluster, so that its partitions lead and follow."""
        self._creating = False
        self._created: asyncio.Future[None] | None = None
        self._loop = asyncio.get_running_loop()
        self.fetchers: FollowerFetchers | None = None
        """Copy from leaders what this broker follows. None on a broker that is alone."""
        checkpoints.on_idle = deleted.on_free = self._create_postponed

    def adopt(self, discovery: Discovery, image: Image) -> None:
        """Take into service what the search of the data directories found at the start."""
        self._replicas.image = image
        for path in discovery.doomed:
            self._deleted.remove(path)
        for topic, index, log, directory, high_watermark in discovery.found.values():
            self._creation.add(topic, index, log, directory, high_watermark, self._find_topic_config(image, topic.name))
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
        self._replicas.image = after
        is_jump = after.version != before.version + 1
        if not self.is_active:
            if is_jump:
                self._set_unknown_aside(after)
                return
            for change in changes:
                if isinstance(change, DeleteTopic):
                    self._delete(change.topic_id, before)
            return
        if is_jump:
            self._compare_all(after)
            return
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
                case SetConfig(resource_type=ConfigResource.BROKER):
                    leaders_moved = True  # elections depend on some of these settings
                case RegisterBroker() | FenceBroker() | UnfenceBroker() | UnregisterBroker() | BeginShutdown():
                    leaders_moved = True
                case TakeReplicasOffline(replicas=replicas):
                    touched.update((topic_id, None) for topic_id, _ in replicas)
        for name in configured:
            self._configure(name, after)
            touched.update((topic.id, None) for topic in (after.topic(name),) if topic is not None)
        if leaders_moved:
            for topic_image in after.topics():
                if before.topics_by_name.get(topic_image.name) is not topic_image or topic_image.id in touched:
                    self._place(topic_image)
        else:
            for topic_image in filter(None, map(after.topic_by_id, touched)):
                self._place(topic_image)

    def _compare_all(self, image: Image) -> None:
        """The image comes from a snapshot, which does not say what has changed since the image before it."""
        self._set_unknown_aside(image)
        self.configure_all(image)
        for topic in image.topics():
            self._place(topic)

    def _set_unknown_aside(self, image: Image) -> None:
        """A topic that is held and not in an image that comes from a snapshot was deleted. Its files are kept as strays
        all the same, because no entry of the log says so."""
        for topic_id in [topic_id for topic_id in self._replicas.topic_ids() if image.topic_by_id(topic_id) is None]:
            self._set_aside_topic(topic_id)

    def find_missing(self) -> list[TopicIdPartition]:
        """Replicas that this broker should hold and does not, nor a directory that failed."""
        missing = []
        for topic in self._replicas.image.topics():
            here = self._replicas.of_topic_id(topic.id)
            missing += [
                (topic.id, index)
                for index, state in enumerate(topic.partitions)
                if self._broker_id in state.replicas
                and index not in here
                and not self._replicas.offline.knows(topic.id, index)
            ]
        return missing

    def begin(self) -> None:
        """This broker has registered: from now on its partitions lead and follow as the metadata says."""
        self.is_active = True
        self._compare_all(self._replicas.image)

    def step_down(self) -> None:
        """Lead and follow nothing until `begin` is called: this broker is not part of the cluster any more."""
        self.is_active = False
        self._waiting.clear()
        self._postponed.clear()
        for partition in self._replicas:
            state = partition.state
            if state is not None and state.leader != NO_LEADER:
                self._tell(partition, replace(state, leader=NO_LEADER))

    def configure_all(self, image: Image) -> None:
        """The broker's settings changed, and with them the defaults of every topic."""
        for name in self._replicas.topics():
            self._configure(name, image)

    async def create_missing(self) -> None:
        """Try again to create the partitions that no disk had room for, and to remove what is left of attempts.

        After `step_down` nothing is created: `begin` does so.
        """
        self._creation.remove_unfinished()
        if not self.is_active:
            return
        missing, self._missing = self._missing, {}
        for topic in filter(None, map(self._replicas.image.topic_by_id, missing)):
            self._place(topic)

    async def wait_until_created(self) -> None:
        """Returns when no partition waits to be created, except for those that no disk has room for."""
        while self._waiting or self._postponed:
            if self._created is None:
                self._created = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._created)

    def _create_postponed(self) -> None:
        postponed, self._postponed = self._postponed, {}
        for topic in filter(None, map(self._replicas.image.topic_by_id, postponed)):
            self._place(topic)
        self._report_created()

    def _place(self, topic: TopicImage) -> None:
        """Create the topic's replicas that belong on this broker, remove those that do not, tell all their state."""
        here = self._replicas.of_topic_id(topic.id)
        offline, broker_id = self._replicas.offline, self._broker_id
        new: list[int] = []
        moved_away: list[int] = []
        for index, state in enumerate(topic.partitions):
            partition = here.get(index)
            if partition is not None and partition.state is state:
                continue  # most partitions of a large topic
            if broker_id not in state.replicas:
                if partition is not None:
                    moved_away.append(index)
            elif partition is not None:
                self._tell(partition, state)
            elif not offline.knows(topic.id, index):
                new.append(index)
        if moved_away:
            self._remove_replicas(topic, moved_away)
        if new:
            self._waiting[topic.id] = new
            if not self._creating:
                self._create_some()

    def _tell(self, partition: Partition, state: PartitionImage) -> None:
        """Tell a replica who leads. One that has to follow somebody, or no longer has to, is handed to the fetchers."""
        before = partition.state
        partition.become(state)
        if self.fetchers is None or before is state:
            return
        if state.leader in (NO_LEADER, self._broker_id):
            if before is not None and before.leader not in (NO_LEADER, self._broker_id):
                self.fetchers.leave(partition)
        elif before is None or (before.leader, before.leader_epoch) != (state.leader, state.leader_epoch):
            self.fetchers.follow(partition)

    def _remove_replicas(self, topic: TopicImage, indexes: Sequence[int]) -> None:
        """Stop serving replicas that other brokers hold now, and remove their files."""
        error = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the replica was moved to another broker")
        for partition, directory in self._replicas.remove(topic.id, indexes):
            logger.info("%s was moved away from this broker: its files are removed", partition)
            self._deleted.add(partition, directory)
            self.retire(partition, error)
        self._deleted.rename_some()

    def _set_aside_topic(self, topic_id: bytes) -> None:
        error = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the topic was deleted")
        name = next((partition.topic for partition in self._replicas.of_topic_id(topic_id).values()), None)
        for partition, directory in self._replicas.remove_topic(name, topic_id):
            self.retire(partition, error)
            self._deleted.set_aside(partition, directory)

    def retire(self, partition: Partition, error: KafkaError) -> None:
        """Take a replica out of service that `Replicas` does not have any more. Its move and its copying end."""
        self._moves.cancel(partition)
        if self.fetchers is not None:
            self.fetchers.leave(partition)
        partition.retire(error)

    def _delete(self, topic_id: bytes, image: Image) -> None:
        error = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the topic was deleted")
        topic = image.topic_by_id(topic_id)
        for partition, directory in self._replicas.remove_topic(None if topic is None else topic.name, topic_id):
            self._deleted.add(partition, directory)
            self.retire(partition, error)
        self._deleted.rename_some()

    def _find_topic_config(self, image: Image, topic: str) -> TopicConfig:
        return TopicConfig.of(image.config(ConfigResource.TOPIC, topic), self._settings())

    def _configure(self, topic: str, image: Image) -> None:
        config = self._find_topic_config(image, topic)
        for partition in self._replicas.of_topic(topic).values():
            partition.configure(config, make_log_settings(config, self._settings()))

    # New partitions

    def _create_some(self) -> None:
        """Create some of the replicas that wait. The loop serves what came meanwhile before it creates more."""
        left = CREATED_AT_ONCE
        while self._waiting and left > 0:
            topic_id = next(iter(self._waiting))
            indexes = self._waiting.pop(topic_id)
            topic = self._replicas.image.topic_by_id(topic_id)
            if topic is None:
                continue
            if self._create(topic, indexes[:left]) and len(indexes) > left:
                self._waiting = {topic_id: indexes[left:], **self._waiting}
            left -= len(indexes)
        self._creating = bool(self._waiting)
        if self._creating:
            self._loop.call_soon(self._create_some)
        else:
            self._report_created()

    def _report_created(self) -> None:
        if self._created is not None and not self._waiting and not self._postponed:
            created, self._created = self._created, None
            created.set_result(None)

    def _create(self, topic: TopicImage, indexes: Sequence[int]) -> bool:
        """Create empty replicas. Returns False if that has to be tried again later, with all that wait."""
        here, offline = self._replicas.of_topic_id(topic.id), self._replicas.offline
        new = [
            index
            for index in indexes
            if index not in here
            and self._broker_id in topic.partitions[index].replicas
            and not offline.knows(topic.id, index)
        ]
        partitions = [TopicPartition(topic.name, index) for index in new]
        directories = self._replicas.directories_in_service()
        paths = (directory.partition_path(topic.name, index) for directory in directories for index in new)
        if self._checkpoints.may_mention(partitions) or self._deleted.is_in_use(paths):
            self._postponed[topic.id] = None
            return False
        try:
            # A new topic must not inherit the offsets of an old one of the same name.
            self._checkpoints.forget(partitions)
            config = self._find_topic_config(self._replicas.image, topic.name)
            for index in new:
                self._creation.create(topic, index, config)
        except OSError as error:
            logger.error("%s: partitions cannot be created: %s", topic.name, describe_error(error))
            self._missing[topic.id] = None
            if is_full(error):
                self._note_full_disk(topic, new)
            return False
        finally:
            here = self._replicas.of_topic_id(topic.id)
            for index in new:
                if index in here:
                    self._tell(here[index], topic.partitions[index])
        return True

    def _note_full_disk(self, topic: TopicImage, wanted: Sequence[int]) -> None:
        """Have other brokers lead the replicas that this one cannot create."""
        here, proposer = self._replicas.of_topic_id(topic.id), self._replicas.isr_proposer
        if proposer is not None:
            for index in wanted:
                if index not in here:
                    proposer.note_full_disk(topic.id, index)
