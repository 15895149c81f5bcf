"""A broker that is a cluster of one: its metadata is a log in the first data directory.

It registers, becomes the controller and unfences itself like a broker of several would, with nobody to disagree.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from ottla.broker.endpoints import find_endpoints
from ottla.broker.node import Node
from ottla.broker.participation import Environment, make_cluster_id, were_closed_cleanly
from ottla.cluster.decision import Decision
from ottla.cluster.embedded import DIRECTORY as METADATA_DIRECTORY
from ottla.cluster.embedded import EmbeddedLog
from ottla.cluster.features import introduce_features
from ottla.cluster.image import Image
from ottla.cluster.metadata import Metadata
from ottla.cluster.metadata_files import DamagedMetadata
from ottla.cluster.offline import take_replicas_offline
from ottla.cluster.registration import BrokerRegistration, become_controller, register_broker, unfence_broker
from ottla.cluster.topics import CLUSTER_METADATA
from ottla.config import BrokerConfig
from ottla.observability.metrics import StoreMeter
from ottla.replication.assembly import Replication
from ottla.storage.directories import DataDirectory, DirectoryError, DirectoryIdentity
from ottla.storage.files import Disk
from ottla.system.background import Job

R = TypeVar("R")

CLUSTER_COPY = "metadata-copy"
"""The directory in which a broker of a cluster keeps a copy of the cluster's metadata (`cluster.local_copy`)."""


class Alone:
    """A `Participation`. `read_only`: topics of directories without metadata, as of Apache Kafka, are adopted."""

    def __init__(self, environment: Environment, *, read_only: bool) -> None:
        self.broker_epoch = -1
        self.catch_up = None
        self.is_connected = True
        self.store_meter = StoreMeter()
        self._environment = environment
        self._read_only = read_only
        self._directories: Sequence[DataDirectory] = ()
        self._identity: DirectoryIdentity
        self._log: EmbeddedLog | None = None
        self._metadata: Metadata | None = None

    async def choose_node_id(self, config: BrokerConfig, directories: Sequence[DataDirectory]) -> BrokerConfig:
        return config

    async def open(self, config: BrokerConfig, directories: Sequence[DataDirectory]) -> Metadata:
        environment, first = self._environment, directories[0]
        self._directories = directories
        copy = f"{first.path}/{CLUSTER_COPY}"
        if environment.disk.exists(copy) and environment.disk.list(
            copy
        ):  # it is empty if the store could not be reached
            raise DirectoryError(
                f"{first.path} belongs to a broker of a cluster: start it with --zookeeper, or with zookeeper.connect"
            )
        self._identity = self._claim(config.node_id)
        self._log = EmbeddedLog(
            environment.disk,
            first.path,
            environment.offload,
            environment.clock,
            on_failure=lambda reason: environment.fail(f"{first.path}: the metadata log failed: {reason}"),
            clean=first.was_clean,
        )
        if not self._read_only:
            _require_entries(first, self._log.head)
        metadata = self._metadata = Metadata(self._log, environment.random, on_failure=environment.fail)
        await metadata.load()
        if self._read_only and not metadata.image.topics_by_name:
            await self._adopt_topics(metadata, config.node_id)
        return metadata

    def _claim(self, node_id: int) -> DirectoryIdentity:
        """Write the ids of the cluster and of this broker to all data directories. A new cluster gets a random id."""
        random = self._environment.random
        known = next((directory.identity for directory in self._directories if directory.identity), None)
        cluster_id = known.cluster_id if known else make_cluster_id(random)
        identities = [
            directory.claim(cluster_id, node_id, random.randbytes(16))
            for directory in self._directories
            if directory.failure is None
        ]
        return identities[0]

    async def _adopt_topics(self, metadata: Metadata, node_id: int) -> None:
        # Only a read-only broker needs these.
        from ottla.cluster.adoption import adopt_topic
        from ottla.storage.foreign import find_topics

        found = await self._environment.offload(find_topics, self._environment.disk, self._directories)
        for (name, topic_id), epochs in sorted(found.items()):
            await metadata.change(
                partial(adopt_topic, name=name, topic_id=topic_id, leader_epochs=epochs, broker_id=node_id)
            )

    @property
    def initial_image(self) -> Image:
        return self._require_metadata().image

    def _require_metadata(self) -> Metadata:
        assert self._metadata is not None, "the metadata is not open"
        return self._metadata

    def build(self, replication: Replication) -> None:
        """There are no other brokers to be connected with."""

    async def join(self, node: Node, ports: Mapping[str, int]) -> None:
        """Register in the metadata. Registration removes the broker from every ISR; unfencing lets it lead again."""
        metadata, broker_id = self._require_metadata(), node.broker_id
        registration = BrokerRegistration(
            broker_id,
            tuple(each.identity.directory_id for each in self._directories if each.identity is not None),
            find_endpoints(node.config),
            node.config.broker_rack,
            self._directories[0].broker_epoch if were_closed_cleanly(self._directories) else None,
            cordoned=all(node.config.started_with.is_cordoned(each.path) for each in self._directories),
        )
        epoch = await metadata.change(lambda image: register_broker(image, registration, self._identity.cluster_id))
        node.replication.reconciliation.begin()
        await node.replication.reconciliation.wait_until_created()
        await metadata.change(lambda image: become_controller(image, broker_id, epoch))
        await metadata.change(lambda image: introduce_features(image, node.config.min_insync_replicas))
        offline = node.replicas.offline
        await metadata.change(lambda image: take_replicas_offline(image, broker_id, epoch, offline))
        await metadata.change(lambda image: unfence_broker(image, broker_id, epoch))
        self.broker_epoch = epoch

    async def change_at_start(self, decide: Callable[[Image], Decision[R]]) -> R:
        return await self._require_metadata().change(decide)

    async def serve(self) -> None:
        """The broker is unfenced already: a cluster of one has nobody else to lead."""

    def jobs(self) -> list[Job]:
        return [Job("refresh of the metadata", 1.0, self._require_metadata().refresh)]

    async def leave(self, deadline_s: float) -> None:
        """There is nobody to hand anything over to."""

    async def quiesce(self) -> None:
        """Nothing but requests writes to the logs."""

    async def close(self) -> None:
        self.abandon()

    def abandon(self) -> None:
        if self._metadata is not None:
            self._metadata.close()
        if self._log is not None:
            self._log.close()


def take_over_settings(config: BrokerConfig, disk: Disk, directories: Sequence[DataDirectory]) -> BrokerConfig:
    """A read-only broker takes the node id of the data directory. Metadata of Apache Kafka is not read."""
    from ottla.storage.foreign import is_foreign

    known = next((directory.identity for directory in directories if directory.identity), None)
    changes: dict[str, str | None] = {"auto.create.topics.enable": "false"}
    if known is not None:
        changes |= {"node.id": str(known.node_id), "broker.id": None}
    metadata_directory = f"{directories[0].path}/{METADATA_DIRECTORY}"
    if is_foreign(disk, metadata_directory):
        disk.rename(metadata_directory, f"{metadata_directory}.foreign")
    return config.with_changes(changes)


def _require_entries(first: DataDirectory, head: int) -> None:
    """DamagedMetadata if entries are missing: topics would be unknown, and their data set aside as strays."""
    topics = (partition.topic for partition in first.partitions() if not partition.marker)
    if head < first.broker_epoch or (not head and any(topic != CLUSTER_METADATA for topic in topics)):
        raise DamagedMetadata(
            f"{first.path}/{METADATA_DIRECTORY} has lost its entries after {head}: restore it from a copy, or "
            f"move the partitions elsewhere and start without them"
        )
