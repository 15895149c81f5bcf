"""A broker of a cluster whose metadata is in a coordination store, ZooKeeper for instance.

The broker is part of the cluster while its session with the store lives and its registration is the newest of its id.
Losing either, it leads and follows nothing, registers again with a new epoch, and goes on: a process that was paused,
or that others took for dead, comes back by itself. While the store cannot be reached, the broker serves as before,
unless other brokers know that it was fenced.
"""

import asyncio
import logging
from base64 import urlsafe_b64encode
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from ottla.broker.endpoints import find_real_endpoints, needs_host_name
from ottla.broker.former_single import EPOCH, is_single_broker, read_metadata, retire_metadata
from ottla.broker.handover import can_be_taken_over, let_others_know, list_led
from ottla.broker.isolation import was_fenced
from ottla.broker.node import Node
from ottla.broker.node_ids import choose_node_id
from ottla.broker.participation import Environment, were_closed_cleanly
from ottla.cluster.changes import Change, Endpoint
from ottla.cluster.controller import Controller
from ottla.cluster.decision import Decision
from ottla.cluster.features import introduce_features, list_supported_features
from ottla.cluster.image import Image
from ottla.cluster.leadership import SETTINGS as ELECTION_SETTINGS
from ottla.cluster.local_copy import LocalCopy
from ottla.cluster.membership import Membership
from ottla.cluster.metadata import Metadata
from ottla.cluster.metadata_log import LogBehind, LogUnavailable, check_not_behind
from ottla.cluster.offline import AT_ONCE_MAX, take_replicas_offline
from ottla.cluster.registration import BrokerRegistration, begin_shutdown, fence_broker, unfence_broker
from ottla.cluster.store import Store
from ottla.config import BrokerConfig
from ottla.errors import ErrorCode, KafkaError
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

FENCING_PAUSE_S = 0.1
"""Brokers whose processes seem to be gone are fenced at most once in this time."""

FENCING_TIMEOUT_S = 5.0
LEAVING_TIMEOUT_S = 1.0

LEAVING_SHARE = 0.5
"""Share of the time for a stop that may pass until others lead."""

HANDING_OVER_POLL_S = 0.05


NEW_LOGS_S = 0.2
"""How often new logs are looked for that are not on disk yet."""

ISOLATION_CHECK_S = 1.0
"""How often a broker without a connection to the store asks the others whether it still leads."""

REFILL_S = 1.0
"""How often a broker looks whether it has producer ids in reserve."""

RELOAD_S = 5.0
"""How often files with certificates are looked at."""

REGISTRATION_STEP_S = 0.5
"""How long a change that belongs to a registration may take before the registration is looked at again."""

R = TypeVar("R")


class _OutOfClusterError(Exception):
    """The session has expired, or others have fenced this broker, while it was registering."""


class Member:
    """A `Participation`."""

    def __init__(self, environment: Environment, store: Store, connect: Connect) -> None:
        self.broker_epoch = -1
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
        self._endpoints: tuple[Endpoint, ...] = ()
        self._imported: Image | None = None
        """The metadata of a broker that ran alone, which becomes that of a new cluster with the registration."""
        self._incarnation = environment.random.randbytes(16)
        self._is_registered = asyncio.Event()
        """Cleared when this broker has to register again."""
        self._out_of_cluster = asyncio.Event()
        self._is_leaving = False
        self._gone: dict[int, int] = {}
        """Brokers whose process seems to be gone, with the epochs of their registrations."""
        self._gone_event = asyncio.Event()

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
        listener = self._config.endpoints.inter_broker.name
        peers = self._peers = Peers(
            broker_id, lambda: self._metadata.image, self._connect, listener, environment.random, self._login
        )
        peers.on_gone = self._note_gone
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
        )
        replication.join_cluster(self._proposals, self._fetchers)
        return peers

    def _settings(self) -> BrokerConfig:
        return self._config if self._node is None else self._node.config

    # Registration

    async def join(self, node: Node, ports: Mapping[str, int]) -> None:
        self._node = node
        host_name = await self._environment.offload(find_host_name) if needs_host_name(node.config) else ""
        self._endpoints = find_real_endpoints(node.config, ports, host_name)
        self._metadata.on_change(self._apply)
        self._controller = Controller(self._metadata, self._membership, self._settings, self._environment.random)
        self._membership.on_expired = self._leave_cluster
        await self._enter()

    async def change_at_start(self, decide: Callable[[Image], Decision[R]]) -> R:
        while True:
            try:
                return await self._change(decide)
            except _OutOfClusterError as error:
                logger.info("registration starts again: %s", error)
                await self._enter()

    async def _enter(self) -> None:
        """Register at the start, as often as it takes."""
        while True:
            try:
                await self._try_to_enter()
                return
            except _OutOfClusterError as error:
                logger.info("registration starts again: %s", error)

    async def _try_to_enter(self) -> None:
        node = self._node
        assert node is not None
        stopped_at = _find_intact_epoch(self._directories)
        if self._imported is not None:
            stopped_at = EPOCH if were_closed_cleanly(self._directories) else None
        await self._register(stopped_at)
        for directory, directory_id in zip(self._directories, self._directory_ids, strict=True):
            if directory.failure is None:
                directory.claim(self._metadata.image.cluster_id or "", node.broker_id, directory_id)
        if self._imported is not None:
            retire_metadata(self._environment.disk, self._directories[0])
            self._imported = None
        await self._change(partial(introduce_features, min_insync_replicas=self._config.min_insync_replicas))
        await self._mark_running()

    async def serve(self) -> None:
        """Connections are accepted: this broker may lead."""
        try:
            await self._unfence()
        except _OutOfClusterError as error:
            logger.info("this broker registers again as soon as it has started: %s", error)

    async def _register(self, stopped_at: int | None = None) -> None:
        """Register, report replicas that cannot be served, and let the others follow the metadata.

        `stopped_at`: the epoch of the last run, if everything that was written in it is still there.
        """
        registration = BrokerRegistration(
            self._config.node_id,
            tuple(
                directory_id
                for directory, directory_id in zip(self._directories, self._directory_ids, strict=True)
                # What a failed directory holds is reported below. The other replicas still count as complete.
                if directory.failure is None or directory.identity is not None
            ),
            self._endpoints,
            self._config.broker_rack,
            stopped_at,
            features=list_supported_features(),
            incarnation=self._incarnation,
            cordoned=all(self._config.started_with.is_cordoned(each.path) for each in self._directories),
            previous_epoch=self.broker_epoch if self.broker_epoch >= 0 else None,
            imported=tuple(self._imported.snapshot()) if self._imported is not None else (),
            election_settings={key: value for key, value in self._config.given.items() if key in ELECTION_SETTINGS},
        )
        while True:
            known = next((each.identity.cluster_id for each in self._directories if each.identity), None)
            cluster_id = known or self._metadata.image.cluster_id or self._make_cluster_id()
            self._out_of_cluster.clear()
            try:
                self.broker_epoch = await self._membership.register(self._metadata, registration, cluster_id)
                break
            except KafkaError as error:
                if error.code is not ErrorCode.INCONSISTENT_CLUSTER_ID or known is not None:
                    raise
                # Another broker has registered first in the new cluster, and its id counts.
        logger.info("broker %d has registered with epoch %d", self._config.node_id, self.broker_epoch)
        reconciliation = self._replication.reconciliation
        await self._report(list(self._replication.replicas.offline), lost=False)
        await self._report(reconciliation.find_missing(), lost=True)
        reconciliation.begin()
        await reconciliation.wait_until_created()

    async def _report(self, replicas: Sequence[tuple[bytes, int]], *, lost: bool) -> None:
        """Report replicas whose directory failed, or whose logs are `lost`: they must not be elected."""
        decide = partial(
            take_replicas_offline,
            broker_id=self._config.node_id,
            broker_epoch=self.broker_epoch,
            partitions=replicas,
            lost=lost,
        )
        while replicas and await self._change(decide) == AT_ONCE_MAX:
            pass

    async def _change(self, decide: Callable[[Image], Decision[R]]) -> R:
        """Make a change that this registration needs. _OutOfClusterError if the registration is over.

        Without a session nothing can be appended, and only a new registration gives the broker a new one. The change
        must do no harm if it is made twice.
        """
        while True:
            try:
                return await self._metadata.change(decide, REGISTRATION_STEP_S)
            except KafkaError as error:
                if self._out_of_cluster.is_set():
                    raise _OutOfClusterError(error.message) from None
                if error.code is not ErrorCode.REQUEST_TIMED_OUT:
                    raise

    async def _mark_running(self) -> None:
        for directory in self._directories:
            if directory.failure is None:
                try:
                    await self._environment.offload(directory.mark_running, self.broker_epoch)
                except OSError as error:  # a kill would count as a loss of records then
                    logger.warning("%s: the mark of this run is not written: %s", directory.path, error)

    def _make_cluster_id(self) -> str:
        return urlsafe_b64encode(self._environment.random.randbytes(16)).decode().rstrip("=")

    async def _unfence(self) -> None:
        epoch = self.broker_epoch
        await self._change(lambda image: unfence_broker(image, self._config.node_id, epoch))
        self._is_registered.set()
        self._leave_if_fenced(self._metadata.image)  # others may have fenced this broker before this task went on

    def _apply(self, before: Image, after: Image, changes: Sequence[Change]) -> None:
        if self._peers is not None:
            self._peers.apply(after)
        if not self._is_leaving and self._is_registered.is_set():
            self._leave_if_fenced(after)

    def _leave_if_fenced(self, image: Image) -> None:
        broker = image.broker(self._config.node_id)
        if broker is None or broker.fenced or broker.epoch != self.broker_epoch:
            logger.warning("broker %d was fenced by another broker", self._config.node_id)
            self._leave_cluster()

    def _leave_cluster(self) -> None:
        """The session has expired, or others have fenced this broker: it leads nothing until it registers again."""
        if self._is_registered.is_set():
            self._is_registered.clear()
            self._replication.reconciliation.step_down()
        self._out_of_cluster.set()

    async def _stay_registered(self) -> None:
        """Register again whenever this broker is out of the cluster."""
        while True:
            await self._out_of_cluster.wait()
            self._is_registered.clear()
            self._replication.reconciliation.step_down()
            await self._membership.wait_until_connected()
            try:
                await self._register()
                await self._mark_running()
                await self._unfence()
            except _OutOfClusterError as error:
                logger.info("registration starts again: %s", error)
            except KafkaError as error:
                if error.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION:
                    self._environment.fail(error.message)
                    return
                logger.warning("registration failed, it is tried again: %s", error)
                self._out_of_cluster.set()
                await asyncio.sleep(RESTART_S)
            except Exception:
                self._out_of_cluster.set()  # or the next run of this job would wait for ever
                raise

    # Work while the broker serves

    def jobs(self) -> list[Job]:
        return [
            Job("removal of lagging followers from ISRs", self._find_lag_check_s, self._find_lagging),
            Job("flush of new logs", NEW_LOGS_S, self._replication.upkeep.flush_new_logs),
            Job("following the metadata", RESTART_S, self._follow, 0.0),
            Job("the controller", RESTART_S, self._controller.run, 0.0),
            Job("registration after a lost session", RESTART_S, self._stay_registered, 0.0),
            Job("fencing of brokers that are gone", RESTART_S, self._fence_gone, 0.0),
            Job("giving way on full disks", RESTART_S, self._proposals.full_disks.run, 0.0),
            Job("reservation of producer ids", REFILL_S, self._refill_producer_ids, 0.0),
            Job("asking others while the store is away", ISOLATION_CHECK_S, self._check_isolation),
            *([Job("reload of certificates for other brokers", RELOAD_S, self._reload)] if self._login else []),
        ]

    async def _reload(self) -> None:
        if self._login is not None:
            await self._environment.offload(self._login.reload)

    async def _refill_producer_ids(self) -> None:
        if self._node is not None and self._is_registered.is_set():
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

    def _note_gone(self, broker_id: int, broker_epoch: int) -> None:
        self._gone[broker_id] = broker_epoch
        self._gone_event.set()

    async def _fence_gone(self) -> None:
        """Fence brokers whose process is gone, instead of waiting until their sessions time out.

        Fencing a broker that lives after all does no harm: it registers again.
        """
        while True:
            await self._gone_event.wait()
            self._gone_event.clear()
            gone, self._gone = self._gone, {}
            for broker_id, epoch in sorted(gone.items()):
                broker = self._metadata.image.broker(broker_id)
                if broker is not None and broker.epoch == epoch and not broker.fenced:
                    log = logger.info if broker.shutting_down else logger.warning
                    log("broker %d with epoch %d is gone and gets fenced", broker_id, epoch)
                    await self._fence(broker_id, epoch, FENCING_TIMEOUT_S)
            await asyncio.sleep(FENCING_PAUSE_S)

    async def _check_isolation(self) -> None:
        """Step down if others have fenced this broker while it cannot reach the store."""
        peers, epoch = self._peers, self.broker_epoch
        if peers is None or self._membership.is_connected or not self._is_registered.is_set():
            return
        partitions = self._replication.replicas
        if not await was_fenced(self._config.node_id, self._metadata.image, partitions, peers):
            return
        if self._is_registered.is_set() and self.broker_epoch == epoch:
            logger.warning("broker %d cannot reach the store and was fenced by another broker", self._config.node_id)
            self._leave_cluster()

    async def _fence(self, broker_id: int, epoch: int, timeout_s: float) -> None:
        try:
            await self._metadata.change(partial(fence_broker, broker_id=broker_id, broker_epoch=epoch), timeout_s)
        except (KafkaError, LogUnavailable) as error:
            logger.info("broker %d was not fenced: %s", broker_id, error)

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
        self._is_leaving = True
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
        self._is_leaving = True
        await self._fence(self._config.node_id, self.broker_epoch, LEAVING_TIMEOUT_S)
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


def find_zookeeper(config: BrokerConfig) -> Store:
    """The store that the settings name. ConfigError if its certificates cannot be used."""
    from ottla.cluster.zookeeper import ZooKeeper  # tests with a store in memory need no kazoo
    from ottla.security.tls import build_zookeeper_context  # rarely needed

    tls = build_zookeeper_context(config) if config.zookeeper_ssl_client_enable else None
    session_timeout_s = config.zookeeper_session_timeout_ms / 1000
    connection_timeout_ms = config.zookeeper_connection_timeout_ms
    connection_timeout_s = session_timeout_s if connection_timeout_ms is None else connection_timeout_ms / 1000
    return ZooKeeper(
        config.zookeeper_connect,
        session_timeout_s,
        connection_timeout_s,
        config.zookeeper_credentials,
        config.zookeeper_set_acl,
        tls,
    )


def _find_intact_epoch(directories: Sequence[DataDirectory]) -> int | None:
    """The epoch of this broker's last run, if all directories still have everything that they had in it.

    They do after a clean shutdown, and if the process was killed while the machine ran on. A directory without an
    identity is new. One that is from another time than the others tells another epoch.
    """
    epochs = {
        directory.broker_epoch if directory.was_clean else directory.killed_at
        for directory in directories
        if directory.failure is None and directory.identity is not None
    }
    return epochs.pop() if len(epochs) == 1 and min(epochs) >= 0 else None


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
