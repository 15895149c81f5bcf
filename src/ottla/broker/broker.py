"""The composition root: builds every part of a broker, starts and stops them in order.

Start: data directories, metadata, logs (with recovery), the ports of the listeners, registration in the metadata. Only
then connections are accepted, so that the first client finds everything ready. Stop is the reverse: answers are sent,
logs flushed and closed, then the mark of a clean shutdown is written. Disk, clock, randomness, threads and network are
parameters, so that a simulation can replace them; the defaults are the real ones.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from random import Random, SystemRandom
from typing import TYPE_CHECKING

from ottla.broker.alone import Alone, take_over_settings
from ottla.broker.dispatch import Dispatch
from ottla.broker.faults import Faults
from ottla.broker.handler_table import Handler, HandlerTable, advertise, refuse_writes
from ottla.broker.node import Node
from ottla.broker.participation import Environment, Participation
from ottla.broker.server_settings import UNLIMITED, make_server_settings
from ottla.cluster.auto_creation import AutoTopicCreation
from ottla.cluster.changes import Change
from ottla.cluster.configs import (
    apply_run_time_settings,
    find_stored_settings,
    renew_encryption,
    warn_if_min_isr_is_another,
)
from ottla.cluster.decision import Decision
from ottla.cluster.image import Image
from ottla.cluster.metadata import Metadata
from ottla.cluster.offline import take_replicas_offline
from ottla.cluster.producer_ids import ProducerIds
from ottla.cluster.recently_fenced import RecentlyFenced
from ottla.config import BrokerConfig, Listener
from ottla.coordinators.assembly import Coordinators
from ottla.errors import ErrorCode, KafkaError
from ottla.quotas.quotas import Quotas
from ottla.replication.assembly import Replication
from ottla.replication.compaction import Compaction
from ottla.replication.fetch_sessions import FetchSessions
from ottla.replication.record_checks import RecordChecks
from ottla.replication.recovery_progress import RecoveryProgress
from ottla.replication.replicas import Replicas
from ottla.server import Server
from ottla.storage.cleaner.child import ChildCompactor
from ottla.storage.cleaner.order import Compactor
from ottla.storage.directories import DataDirectory, FailedDirectory
from ottla.storage.files import Disk, RealDisk
from ottla.system.background import Background, Job
from ottla.system.clock import Clock, WallClock
from ottla.system.threads import Offload, Threads

if TYPE_CHECKING:  # what only some brokers need is imported where they need it
    from ottla.broker.monitoring import Monitoring
    from ottla.broker.secured_listeners import SecuredListeners
    from ottla.cluster.store import Store
    from ottla.replication.peers import Peers
    from ottla.security.authorizer import Authorizer
    from ottla.system.network import Connect

logger = logging.getLogger(__name__)

FETCH_SESSION_EVICTION_S = 120.0
"""The same value as in Kafka, where it cannot be configured either."""

QUOTA_EXPIRY_S = 60.0

RETENTION, COMPACTION = "retention", "compaction"
UPKEEP = (RETENTION, COMPACTION)
"""Jobs that remove records. A read-only broker does not run them: it shows all records, however old."""

METRICS = "metrics"
"""Name of the metrics endpoint in `ports`. Listener names are in capital letters, so no listener can have it."""

RELOAD_S = 5.0
"""How often files with certificates are looked at."""

Listen = Callable[[Server, Listener], Awaitable[int]]
"""Opens a listener and returns its port."""


async def listen_on_sockets(server: Server, listener: Listener) -> int:
    return await server.start(listener.host, listener.port, listener.name)


class Broker:
    def __init__(
        self,
        config: BrokerConfig,
        data_directory: str,
        *,
        disk: Disk | None = None,
        clock: Clock | None = None,
        random: Random | None = None,
        offload: Offload | None = None,
        listen: Listen = listen_on_sockets,
        faults: Faults | None = None,
        machine_code: bool = True,
        read_only: bool = False,
        connections_max: int = UNLIMITED,
        store: "Store | None" = None,
        connect: "Connect | None" = None,
    ) -> None:
        """`read_only`: the broker changes no byte of the data directories, and clients cannot change a topic. `store`:
        holds the metadata of a cluster; None: ZooKeeper does, if the settings name it, else this broker is alone.
        """
        self.ports: dict[str, int] = {}
        self._config = config
        self._paths = list(config.log_dirs or (data_directory,))
        self._read_only = read_only
        self._disk: Disk = disk or RealDisk()
        if read_only:
            from ottla.storage.overlay import OverlayDisk

            self._disk = OverlayDisk(self._disk)
        self._compactor: Compactor = ChildCompactor()
        if disk is not None:  # a child process can only use the real disk
            from ottla.storage.cleaner.inline import InlineCompactor

            self._compactor = InlineCompactor(self._disk)
        self._clock = clock or WallClock()
        self._random = random or SystemRandom()
        self._threads = None if offload is not None else Threads()
        self._offload: Offload = offload or self._threads  # type: ignore[assignment]
        self._listen = listen
        self._faults = faults
        self._machine_code = machine_code
        self._connections_max = connections_max
        self._store = store
        self._connect = connect
        self._directories: list[DataDirectory] = []
        self._background: Background | None = None
        self._coordinators: Coordinators | None = None
        self._server: Server | None = None
        self._secured: SecuredListeners | None = None
        self._monitoring: Monitoring | None = None
        self._stopping = False
        self._node: Node | None = None
        self._quotas: Quotas
        self._participation: Participation | None = None
        self.failure: asyncio.Future[str]
        """Created by `start`. Done when the broker cannot go on and has to be stopped: the reason, in one line."""

    @property
    def node(self) -> Node:
        assert self._node is not None, "the broker has not started"
        return self._node

    # Starting

    async def start(self) -> None:
        """Returns when clients can connect. If the start fails, everything that it opened is closed again."""
        self.failure = asyncio.get_running_loop().create_future()
        try:
            await self._start()
        except BaseException:
            self.abort()
            raise

    async def _start(self) -> None:
        for path in self._paths:
            self._directories.append(self._open_directory(path))
        if self._read_only:
            self._config = take_over_settings(self._config, self._disk, self._directories)
        participation = self._participation = self._choose_participation()
        self._config = await participation.choose_node_id(self._config, self._directories)
        metadata = await participation.open(self._config, self._directories)
        image = participation.initial_image
        config = apply_run_time_settings(self._config, image)
        warn_if_min_isr_is_another(self._config, config)
        replication = Replication(config, self._disk, self._directories, self._clock, self._random, self._offload)
        replication.failures.on_failure = self._handle_directory_failure
        progress = RecoveryProgress(self._clock)
        authorizer = self._build_authorizer(config, metadata)
        metadata.on_change(self._follow_settings)
        metadata.on_change(replication.reconciliation.apply)
        peers = participation.build(replication)
        found = await self._offload(replication.find, image, progress.show, metadata.deleted_before)
        replication.reconciliation.adopt(found, image)
        coordinators = self._coordinators = self._build_coordinators(config, metadata, replication.replicas, peers)
        metadata.on_change(coordinators.apply)
        self._quotas = Quotas(config, asyncio.get_running_loop().time)
        self._quotas.follow(metadata.image.quotas)
        metadata.on_change(self._follow_quotas)
        if config.metrics_port is not None:
            from ottla.broker.monitoring import Monitoring

            self._monitoring = Monitoring(config, metadata.image, self._random)
            metadata.on_change(self._monitoring.apply)
        self._node = self._build_node(config, metadata, replication, coordinators)
        self._node.authorizer = authorizer
        settings = make_server_settings(config, self._connections_max)
        self._server = Server(
            Dispatch(self._node, HandlerTable(self._wrap_handler)), settings, self._offload, is_open=False
        )
        self._server.traffic.admission.address_rates = self._quotas.connections
        if any(listener.protocol != "PLAINTEXT" for listener in config.endpoints.bound):
            from ottla.broker.secured_listeners import SecuredListeners

            self._secured = SecuredListeners(self._offload)
            self._node.check_listeners = self._secured.check
            await self._secured.secure(self._server, config, metadata, self._clock, self._random)
        for listener in config.endpoints.bound:
            self.ports[listener.name] = await self._listen(self._server, listener)
        await participation.join(self._node, self.ports)
        await self._add_first_users(config)
        if config.password_encoder_secret and not self._read_only:
            renewed = await participation.change_at_start(lambda image: renew_encryption(image, config))
            if renewed:
                logger.info("encrypted %d settings with password.encoder.secret", renewed)
        if len(self._node.replicas.offline):
            await participation.change_at_start(self._take_offline)
        coordinators.follow(metadata.image)
        await self._server.open()
        await participation.serve()
        if self._monitoring is not None:
            port = self.ports[config.endpoints.bound[0].name]
            self.ports[METRICS] = await self._monitoring.open(self._node, self._server, port, lambda: self._stopping)
        self._background = Background([job for job in self._jobs() if not self._read_only or job.name not in UPKEEP])

    def _choose_participation(self) -> Participation:
        """A broker alone neither needs nor imports what reaches other brokers."""
        environment = Environment(self._disk, self._clock, self._random, self._offload, self._fail)
        if self._read_only or (self._store is None and not self._config.zookeeper_connect):
            return Alone(environment, read_only=self._read_only)
        from ottla.broker.member import Member
        from ottla.system.network import connect_to_socket

        store = self._store
        if store is None:
            from ottla.cluster.zookeeper import ZooKeeper  # tests with a store in memory need no kazoo

            store = ZooKeeper.of(self._config)
        return Member(environment, store, self._connect or connect_to_socket)

    def _build_authorizer(self, config: BrokerConfig, metadata: Metadata) -> "Authorizer | None":
        """The authorizer that authorizer.class.name asks for; None if it is empty."""
        if not config.authorizer_class_name:
            return None
        from ottla.broker.access import build_authorizer

        authorizer = build_authorizer(config, metadata.image)
        metadata.on_change(lambda before, after, changes: authorizer.follow(after.acls))
        return authorizer

    def _wrap_handler(self, handler: Handler) -> Handler:
        if self._read_only:
            handler = refuse_writes(handler)
        if self.node.authorizer is not None:
            from ottla.broker.access import guard

            handler = guard(handler)
        return handler

    def _build_coordinators(
        self, config: BrokerConfig, metadata: Metadata, replicas: Replicas, peers: "Peers | None"
    ) -> Coordinators:
        return Coordinators(
            config.node_id,
            metadata,
            replicas,
            ProducerIds(metadata, config.node_id, lambda: self.participation.broker_epoch),
            self._clock,
            self._random,
            self._offload,
            lambda: self.node.config,
            peers,
        )

    def _build_node(
        self,
        config: BrokerConfig,
        metadata: Metadata,
        replication: Replication,
        coordinators: Coordinators,
    ) -> Node:
        telemetry = None if self._monitoring is None else self._monitoring.telemetry
        recently_fenced = RecentlyFenced(asyncio.get_running_loop().time, metadata.image)
        metadata.on_change(lambda before, after, changes: recently_fenced.follow(before, after))
        return Node(
            broker_id=config.node_id,
            config=config,
            clock=self._clock,
            random=self._random,
            metadata=metadata,
            recently_fenced=recently_fenced,
            auto_creation=AutoTopicCreation(
                metadata,
                self._random,
                lambda: self.node.config,
                coordinators.internal_topics,
            ),
            replication=replication,
            replicas=replication.replicas,
            compaction=Compaction(
                replication.replicas,
                replication.checkpoints,
                self._compactor,
                self._disk,
                self._clock,
                self._random,
                self._offload,
                lambda: self.node.config,
                compiled=self._machine_code,
            ),
            record_checks=RecordChecks(self._offload, compiled=self._machine_code),
            fetch_sessions=FetchSessions(
                config.max_incremental_fetch_session_cache_slots,
                FETCH_SESSION_EVICTION_S,
                self._random,
            ),
            producer_ids=coordinators.producer_ids,
            groups=coordinators.groups,
            transactions=coordinators.transactions,
            markers=coordinators.markers,
            admission=coordinators.admission,
            quotas=self._quotas,
            telemetry=telemetry,
            apis=advertise(telemetry=telemetry is not None),
            catch_up=self.participation.catch_up,
            is_connected=lambda: self.participation.is_connected,
            store_meter=self.participation.store_meter,
            faults=self._faults,
        )

    async def _remove_expired_tokens(self) -> None:
        from ottla.cluster.delegation_tokens import remove_expired

        if self.node.image.identities.tokens:
            await self.node.metadata.change(partial(remove_expired, now_ms=self._clock.now_ms()))

    async def _add_first_users(self, config: BrokerConfig) -> None:
        """Create the users of initial.scram.credentials. Those that exist keep their passwords."""
        if config.initial_scram_credentials is None or self._read_only:
            return
        from ottla.cluster.credentials import DECOY_BYTES, add_user
        from ottla.security.first_users import read_first_users
        from ottla.security.scram import NUMBERS, SALT_BYTES

        for user in read_first_users(config.initial_scram_credentials):
            credential = await self._offload(user.derive, self._random.randbytes(SALT_BYTES))
            add = partial(
                add_user,
                name=user.name,
                mechanism=NUMBERS[user.mechanism],
                credential=credential,
                decoy_secret=self._random.randbytes(DECOY_BYTES),
            )
            if await self.participation.change_at_start(add):
                logger.info("created the user %r of %s", user.name, user.mechanism)

    def _open_directory(self, path: str) -> DataDirectory:
        """Open a data directory. One that fails stays out of service, unless it is the first: that has the metadata."""
        try:
            return DataDirectory.open(self._disk, path)
        except FailedDirectory as error:
            if path == self._paths[0]:
                raise
            logger.error("%s; its partitions are offline", error)
            return DataDirectory.out_of_service(self._disk, path, str(error))

    def _handle_directory_failure(self, directory: DataDirectory) -> None:
        if directory is self._directories[0]:
            self._fail(f"{directory.path} holds the metadata and failed: {directory.failure}")

    def _fail(self, reason: str) -> None:
        if not self.failure.done():
            self.failure.set_result(reason)

    @property
    def participation(self) -> Participation:
        assert self._participation is not None, "the broker has not started"
        return self._participation

    async def _resign_offline(self) -> None:
        """Give up the leadership of partitions that are offline on this broker."""
        if len(self.node.replicas.offline):
            try:
                await self.node.metadata.change(self._take_offline)
            except KafkaError as error:
                if error.code is not ErrorCode.STALE_BROKER_EPOCH:
                    raise
                # The broker is registering again. Its next run reports what is offline, with the new epoch.

    def _take_offline(self, image: Image) -> Decision[int]:
        node = self.node
        return take_replicas_offline(image, node.broker_id, self.participation.broker_epoch, node.replicas.offline)

    def _follow_settings(self, before: Image, after: Image, changes: Sequence[Change]) -> None:
        """Apply broker settings that were changed in the metadata at once."""
        stored = find_stored_settings(after, self._config)
        if self._node is None or find_stored_settings(before, self._config) == stored:
            return
        config = self._node.config = apply_run_time_settings(self._config, after)
        self._node.replication.configure(config, after)
        if self._secured is not None:
            self._secured.follow(config)
        if self._server is not None:
            self._server.traffic.settings = make_server_settings(config, self._connections_max)

    def _follow_quotas(self, before: Image, after: Image, changes: Sequence[Change]) -> None:
        if before.quotas is not after.quotas:
            self._quotas.follow(after.quotas)

    # Background jobs

    def _jobs(self) -> list[Job]:
        config = self.node.config
        replication = self.node.replication
        checkpoints, upkeep = replication.checkpoints, replication.upkeep
        return [
            Job(
                "high watermark checkpoint",
                config.replica_high_watermark_checkpoint_interval_ms / 1000,
                checkpoints.write_high_watermarks,
            ),
            Job(
                "recovery point checkpoint",
                config.log_flush_offset_checkpoint_interval_ms / 1000,
                checkpoints.write_recovery_points,
            ),
            Job(
                "log start checkpoint",
                config.log_flush_start_offset_checkpoint_interval_ms / 1000,
                replication.log_starts.write_periodically,
            ),
            Job("flush by time", 1.0, upkeep.flush_by_time),
            *([] if self._secured is None else [Job("reload of certificates", RELOAD_S, self._secured.reload)]),
            Job(
                "removal of expired delegation tokens",
                config.delegation_token_expiry_check_interval_ms / 1000,
                self._remove_expired_tokens,
            ),
            *([] if self._monitoring is None else self._monitoring.jobs()),
            *self.participation.jobs(),
            Job(
                "creation of replicas that the disk had no room for",
                5.0,
                replication.reconciliation.create_missing,
            ),
            Job("resignation from offline partitions", 0.5, self._resign_offline),
            Job(
                RETENTION,
                config.log_retention_check_interval_ms / 1000,
                upkeep.expire_segments,
                config.log_initial_task_delay_ms / 1000,
            ),
            Job(COMPACTION, lambda: self.node.compaction.backoff_s, self.node.compaction.run),
            Job("removal of deleted files", 1.0, upkeep.remove_deleted),
            Job("expiry of quota sensors", QUOTA_EXPIRY_S, self.node.quotas.expire),
            Job("expiry of producers", config.producer_id_expiration_check_interval_ms / 1000, upkeep.expire_producers),
        ]

    # Stopping

    async def stop(self, deadline_s: float) -> None:
        """Finish the requests in progress, close every log, write the mark of a clean shutdown."""
        self._stopping = True
        if self._background is None:  # the last step of a start: without it there is nothing to close cleanly
            self.abort()
            return
        await self.participation.leave(deadline_s)
        if self._coordinators is not None:
            self._coordinators.stop()  # or members that wait for a rebalance would delay the stop
        if self._server is not None:
            await self._server.stop(deadline_s)
        if self._monitoring is not None:
            self._monitoring.close()
        await self._background.stop()
        await self.node.auto_creation.stop()
        await self.participation.quiesce()
        self._compactor.end()
        clean = await self._node.replication.close() if self._node is not None else []
        await self.participation.close()
        if self.failure.done():  # the metadata log may end in half an entry
            clean = [directory for directory in clean if directory is not self._directories[0]]
        for directory in self._directories:
            directory.close(clean=directory in clean, broker_epoch=self.participation.broker_epoch)
        self._end_threads()

    def abort(self) -> None:
        """End at once, as if killed: nothing is flushed, and the next start runs recovery."""
        if self._coordinators is not None:
            self._coordinators.stop()
        if self._server is not None:
            self._server.abort()
        if self._monitoring is not None:
            self._monitoring.close()
        if self._background is not None:
            self._background.cancel()
        self._compactor.end()
        if self._node is not None:
            self._node.auto_creation.cancel()
            self._node.replication.abandon()
        if self._participation is not None:
            self._participation.abandon()
        for directory in self._directories:
            # A start that failed before anything was appended leaves the directory as clean as it was.
            untouched = self._node is None and directory.was_clean
            directory.close(clean=untouched, broker_epoch=directory.broker_epoch)
        self._end_threads()

    def _end_threads(self) -> None:
        if self._threads is not None:
            self._threads.close()
