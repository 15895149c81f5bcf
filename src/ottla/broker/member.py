"""A broker of a cluster whose metadata is in a coordination store, ZooKeeper for instance.

While the store cannot be reached, the broker serves as before, unless other brokers know that it was fenced.
`lifecycle.py` keeps it registered.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from ottla.broker.endpoints import find_real_endpoints, needs_host_name
from ottla.broker.fencing import Fencing
from ottla.broker.former_single import is_single_broker, read_metadata, retire_metadata
from ottla.broker.handover import can_be_taken_over, let_others_know, list_led
from ottla.broker.isolation import was_fenced
from ottla.broker.lifecycle import Lifecycle
from ottla.broker.node import Node
from ottla.broker.node_ids import choose_node_id
from ottla.broker.participation import Environment
from ottla.cluster.changes import Change
from ottla.cluster.controller import Controller
from ottla.cluster.decision import Decision
from ottla.cluster.image import Image
from ottla.cluster.local_copy import LocalCopy
from ottla.cluster.membership import Membership
from ottla.cluster.metadata import Metadata
from ottla.cluster.metadata_log import LogBehind, check_not_behind
from ottla.cluster.registration import begin_shutdown
from ottla.cluster.store import Store
from ottla.config import BrokerConfig
from ottla.errors import KafkaError
from ottla.observability.metrics import StoreMeter
from ottla.replication.assembly import Replication
from ottla.replication.fetchers import Fetchers
from ottla.replication.isr_proposals import IsrProposals
from ottla.replication.peers import Peers
from ottla.replication.throttles import ReplicationThrottle
from ottla.storage.directories import DataDirectory, DirectoryError
from ottla.system.background import Job
from ottla.system.network import Connect, find_host_name

if TYPE_CHECKING:
    from ottla.replication.peer_login import PeerLogin

logger = logging.getLogger(__name__)

RESTART_S = 1.0
"""Pause before work is started again that ended with an unexpected error."""

LEAVING_TIMEOUT_S = 1.0

LEAVING_SHARE = 0.5
"""Share of the time for a stop that may pass until others lead."""

HANDING_OVER_POLL_S = 0.05

NEW_LOGS_S = 0.2
"""How often new logs are looked for that are not on disk yet."""

ISOLATION_CHECK_S = 0.2
"""How often a broker without a connection to the store asks the others whether it still leads. Until it learns that it
does not, it tells clients an older high watermark than the next leader."""

REFILL_S = 1.0
"""How often a broker looks whether it has producer ids in reserve."""

RELOAD_S = 5.0
"""How often files with certificates are looked at."""

R = TypeVar("R")


class Member:
    """A `Participation`."""

    def __init__(self, environment: Environment, store: Store, connect: Connect) -> None:
        self._environment = environment
        self._store = store
        self._connect = connect
        self._config: BrokerConfig
        self._directories: Sequence[DataDirectory] = ()
        self._directory_ids: list[bytes] = []
        self._membership: Membership
        self._metadata: Metadata
        self._copy: LocalCopy | None = None
        self._controller: Controller
        self._replication: Replication
        self._node: Node | None = None
        self._peers: Peers | None = None
        self._login: PeerLogin | None = None
        """How the inter-broker listener of others is entered, if it has TLS or SASL."""
        self._proposals: IsrProposals
        self._fetchers: Fetchers
        self._imported: Image | None = None
        """The metadata of a broker that ran alone, which becomes that of a new cluster with the registration."""
        self._lifecycle: Lifecycle
        self._fencing: Fencing

    @property
    def broker_epoch(self) -> int:
        return self._membership.broker_epoch

    @property
    def catch_up(self) -> Callable[[], Awaitable[None]]:
        return self._metadata.catch_up

    @property
    def is_connected(self) -> bool:
        return self._membership.is_connected

    @property
    def store_meter(self) -> StoreMeter:
        return self._membership.meter

    # Before the logs are opened

    async def choose_node_id(self, config: BrokerConfig, directories: Sequence[DataDirectory]) -> BrokerConfig:
        return await choose_node_id(config, directories, self._store, self._environment.random)

    async def open(self, config: BrokerConfig, directories: Sequence[DataDirectory]) -> Metadata:
        environment, random = self._environment, self._environment.random
        self._config, self._directories = config, directories
        self._directory_ids = [
            each.identity.directory_id if each.identity else random.randbytes(16) for each in directories
        ]
        if config.endpoints.inter_broker.protocol != "PLAINTEXT":
            from ottla.replication.peer_login import PeerLogin  # most clusters have none

            self._login = await environment.offload(
                PeerLogin, config, random, environment.offload, environment.clock.now_ms
            )
        # With its place, because a copy of a directory has the same id, and a lock of its own.
        locked = [
            directory_id + environment.disk.place(each.path).encode()
            for each, directory_id in zip(directories, self._directory_ids, strict=True)
        ]
        self._membership = Membership(self._store, config.node_id, locked, random, environment.offload)
        metadata = self._metadata = Metadata(self._membership.log, random, on_failure=environment.fail)
        copy = self._copy = LocalCopy(
            environment.disk, directories[0].path, environment.offload, environment.clock, lambda: metadata.image
        )
        metadata.on_entry(copy.add)
        await self._membership.connect()
        image = await metadata.load()
        check_not_behind(self._store.name, image.version, copy.head)
        for directory in directories:
            _check_identity(directory, config.node_id, image, self._store.name)
        if image.cluster_id is None:
            self._imported = await self._read_metadata_of_single_broker()
        elif is_single_broker(environment.disk, directories[0]):
            retire_metadata(environment.disk, directories[0])  # a crash came between the import and this
        else:
            applied = max(directory.broker_epoch for directory in directories)
            check_not_behind(self._store.name, image.version, applied)
        await self._membership.prepare()
        return metadata

    @property
    def initial_image(self) -> Image:
        return self._imported or self._metadata.image

    async def _read_metadata_of_single_broker(self) -> Image | None:
        """The metadata to bring into a new cluster, if this broker ran alone before."""
        environment, first = self._environment, self._directories[0]
        if is_single_broker(environment.disk, first):
            image = await read_metadata(environment.disk, first, environment.offload, environment.clock)
            logger.info("%s: the %d topics of this broker join the new cluster", first.path, len(image.topics_by_name))
            return image
        known = next((each for each in self._directories if each.identity), None)
        if known is not None and known.identity is not None:
            raise DirectoryError(
                f"{known.path} belongs to cluster {known.identity.cluster_id}, and {self._store.name} is empty: "
                f"zookeeper.connect names another server or path than before, or what was there is lost (ottla cluster "
                f"restore)"
            )
        return None

    def build(self, replication: Replication) -> Peers:
        """The connections to other brokers, ISR proposals and fetchers."""
        self._replication = replication
        broker_id, environment = self._config.node_id, self._environment
        self._lifecycle = Lifecycle(
            self._config,
            environment,
            self._directories,
            self._directory_ids,
            self._membership,
            self._metadata,
            replication,
            self._imported,
        )
        self._fencing = Fencing(self._metadata)
        listener = self._config.endpoints.inter_broker.name
        peers = self._peers = Peers(
            broker_id, lambda: self._metadata.image, self._connect, listener, environment.random, self._login
        )
        peers.on_gone = self._fencing.note_gone
        self._proposals = IsrProposals(self._metadata, broker_id, lambda: self.broker_epoch, self._settings)
        throttle = ReplicationThrottle(
            lambda: self._settings().follower_replication_throttled_rate, asyncio.get_running_loop().time
        )
        self._fetchers = Fetchers(
            broker_id,
            lambda: self.broker_epoch,
            peers,
            environment.clock,
            environment.offload,
            self._settings,
            throttle,
            replication.checkpoints,
            replication.log_starts,
        )
        replication.join_cluster(self._proposals, self._fetchers)
        return peers

    def _settings(self) -> BrokerConfig:
        return self._config if self._node is None else self._node.config

    # Registration

    async def join(self, node: Node, ports: Mapping[str, int]) -> None:
        self._node = node
        host_name = await self._environment.offload(find_host_name) if needs_host_name(node.config) else ""
        self._metadata.on_change(self._apply)
        self._lifecycle.on_left = partial(node.recently_fenced.note, node.broker_id)
        self._controller = Controller(self._metadata, self._membership, self._settings, self._environment.random)
        await self._lifecycle.start(find_real_endpoints(node.config, ports, host_name))

    async def change_at_start(self, decide: Callable[[Image], Decision[R]]) -> R:
        return await self._lifecycle.change_at_start(decide)

    async def serve(self) -> None:
        await self._lifecycle.serve()

    def _apply(self, before: Image, after: Image, changes: Sequence[Change]) -> None:
        if self._peers is not None:
            self._peers.apply(after)
        self._lifecycle.follow(after)

    # Work while the broker serves

    def jobs(self) -> list[Job]:
        return [
            Job("removal of lagging followers from ISRs", self._find_lag_check_s, self._find_lagging),
            Job("flush of new logs", NEW_LOGS_S, self._replication.upkeep.flush_new_logs),
            Job("following the metadata", RESTART_S, self._follow, 0.0),
            Job("the controller", RESTART_S, self._controller.run, 0.0),
            Job("registration after a lost session", RESTART_S, self._lifecycle.stay_registered, 0.0),
            Job("fencing of brokers that are gone", RESTART_S, self._fencing.run, 0.0),
            Job("giving way on full disks", RESTART_S, self._proposals.full_disks.run, 0.0),
            Job("reservation of producer ids", REFILL_S, self._refill_producer_ids, 0.0),
            Job("asking others while the store is away", ISOLATION_CHECK_S, self._check_isolation),
            *([Job("reload of certificates for other brokers", RELOAD_S, self._reload)] if self._login else []),
        ]

    async def _reload(self) -> None:
        if self._login is not None:
            await self._environment.offload(self._login.reload)

    async def _refill_producer_ids(self) -> None:
        if self._node is not None and self._lifecycle.is_registered:
            await self._node.producer_ids.refill()

    def _find_lag_check_s(self) -> float:
        return self._settings().replica_lag_time_max_ms / 2000

    async def _find_lagging(self) -> None:
        await self._proposals.find_lagging(self._replication.replicas)

    async def _follow(self) -> None:
        """Replay the metadata. An image that cannot be trusted ends the broker: it would decide by it."""
        try:
            await self._metadata.follow()
        except LogBehind as error:
            self._environment.fail(str(error))
        except Exception as error:
            logger.exception("an entry of the metadata could not be applied")
            self._environment.fail(f"an entry of the metadata could not be applied: {error}")

    async def _check_isolation(self) -> None:
        """Step down if others have fenced this broker while it cannot reach the store."""
        peers, epoch = self._peers, self.broker_epoch
        if peers is None or self._membership.is_connected or not self._lifecycle.is_registered:
            return
        partitions = self._replication.replicas
        if not await was_fenced(self._config.node_id, self._metadata.image, partitions, peers):
            return
        if self._lifecycle.is_registered and self.broker_epoch == epoch:
            logger.warning("broker %d cannot reach the store and was fenced by another broker", self._config.node_id)
            self._lifecycle.leave_cluster()

    # Stopping

    async def leave(self, deadline_s: float) -> None:
        """Hand over what this broker leads (controlled.shutdown.enable), as far as others can take it over.

        Returns when they and active clients know it.
        """
        config = self._settings()
        if not config.controlled_shutdown_enable or not self._membership.is_connected:
            return
        retries = config.controlled_shutdown_max_retries * config.controlled_shutdown_retry_backoff_ms / 1000
        broker_id, loop = self._config.node_id, asyncio.get_running_loop()
        end = loop.time() + min(deadline_s * LEAVING_SHARE, retries)
        decide = partial(begin_shutdown, broker_id=broker_id, broker_epoch=self.broker_epoch)
        led = list_led(self._metadata.image, broker_id)
        self._lifecycle.begin_stop()
        try:
            await self._metadata.change(decide, max(end - loop.time(), 0.1))
        except KafkaError as error:
            logger.warning("leadership is not handed over before the stop: %s", error)
            return
        while can_be_taken_over(self._metadata.image, broker_id) and loop.time() < end:
            await asyncio.sleep(HANDING_OVER_POLL_S)
        if self._peers is not None:
            await let_others_know(broker_id, self._metadata.image, led, self._peers)

    async def quiesce(self) -> None:
        await self._proposals.stop()
        await self._fetchers.close()

    async def close(self) -> None:
        """Fence this broker in the metadata, then end the session: other brokers need not find out that it is gone."""
        self._lifecycle.begin_stop()
        await self._fencing.fence(self._config.node_id, self.broker_epoch, LEAVING_TIMEOUT_S)
        self._metadata.close()
        if self._peers is not None:
            self._peers.close()
        await self._membership.leave()
        if self._copy is not None:
            await self._copy.close()

    def abandon(self) -> None:
        if self._peers is not None:
            self._proposals.cancel()
            self._fetchers.abort()
            self._peers.close()
        if self._copy is not None:
            self._copy.abandon()
        if self._directory_ids:
            self._metadata.close()
            self._membership.abandon()


def _check_identity(directory: DataDirectory, node_id: int, image: Image, store_name: str) -> None:
    """DirectoryError if the directory belongs to another cluster or broker than those of this metadata."""
    identity = directory.identity
    if identity is None:
        return
    if identity.node_id != node_id:
        raise DirectoryError(f"{directory.path} belongs to node {identity.node_id}, not to node {node_id}")
    if image.cluster_id is not None and identity.cluster_id != image.cluster_id:
        raise DirectoryError(
            f"{directory.path} belongs to cluster {identity.cluster_id}, but {store_name} holds cluster "
            f"{image.cluster_id}"
        )
