"""Keeps a broker registered in its cluster: at the start, and again whenever it is out of the cluster.

The broker is part of the cluster while its session with the store lives and its registration is the newest of its id.
Losing either, it leads and follows nothing, registers again with a new epoch, and goes on: a process that was paused,
or that others took for dead, comes back by itself.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from ottla.broker.former_single import EPOCH, retire_metadata
from ottla.broker.participation import Environment, make_cluster_id, were_closed_cleanly
from ottla.cluster.changes import Endpoint
from ottla.cluster.decision import Decision
from ottla.cluster.features import introduce_features, list_supported_features
from ottla.cluster.image import Image
from ottla.cluster.leadership import SETTINGS as ELECTION_SETTINGS
from ottla.cluster.membership import Membership
from ottla.cluster.metadata import Metadata
from ottla.cluster.offline import AT_ONCE_MAX, take_replicas_offline
from ottla.cluster.registration import BrokerRegistration, unfence_broker
from ottla.config import BrokerConfig
from ottla.errors import ErrorCode, KafkaError
from ottla.replication.assembly import Replication
from ottla.storage.directories import DataDirectory
from ottla.topic_partition import TopicIdPartition

logger = logging.getLogger(__name__)

RETRY_S = 1.0
"""Pause before the broker registers again after its registration was refused."""

STEP_S = 0.5
"""How long a change that belongs to a registration may take before the registration is looked at again."""

R = TypeVar("R")


class _OutOfClusterError(Exception):
    """The session has expired, or others have fenced this broker, while it was registering."""


class Lifecycle:
    def __init__(
        self,
        config: BrokerConfig,
        environment: Environment,
        directories: Sequence[DataDirectory],
        directory_ids: Sequence[bytes],
        membership: Membership,
        metadata: Metadata,
        replication: Replication,
        imported: Image | None,
    ) -> None:
        """`imported`: the metadata of a broker that ran alone, which becomes that of a new cluster with the first
        registration.
        """
        self._config = config
        self._environment = environment
        self._directories = directories
        self._directory_ids = directory_ids
        self._membership = membership
        self._metadata = metadata
        self._replication = replication
        self._imported = imported
        self._endpoints: tuple[Endpoint, ...] = ()
        self._incarnation = environment.random.randbytes(16)
        self._is_stopping = False
        self.is_registered = False
        """Whether this broker serves in the cluster, as far as it knows."""
        self._out_of_cluster = asyncio.Event()
        """Set when this broker has to register again."""
        membership.on_expired = self.leave_cluster
        self.on_left: Callable[[], None] = lambda: None
        """Called when this broker learns that it is out of the cluster, maybe before it has replayed that."""

    # At the start

    async def start(self, endpoints: tuple[Endpoint, ...]) -> None:
        """Register with these endpoints. Until `serve`, the broker is fenced."""
        self._endpoints = endpoints
        await self._enter()

    async def change_at_start(self, decide: Callable[[Image], Decision[R]]) -> R:
        """Change the metadata between `start` and `serve`. The change must do no harm if it is made twice."""
        while True:
            try:
                return await self._change(decide)
            except _OutOfClusterError as error:
                logger.info("registration starts again: %s", error)
                await self._enter()

    async def serve(self) -> None:
        """Connections are accepted: this broker may lead."""
        try:
            await self._unfence()
        except _OutOfClusterError as error:
            logger.info("this broker registers again as soon as it has started: %s", error)

    async def _enter(self) -> None:
        """Register at the start, as often as it takes."""
        while True:
            try:
                await self._try_to_enter()
                return
            except _OutOfClusterError as error:
                logger.info("registration starts again: %s", error)

    async def _try_to_enter(self) -> None:
        stopped_at = find_intact_epoch(self._directories)
        if self._imported is not None:
            stopped_at = EPOCH if were_closed_cleanly(self._directories) else None
        await self._register(stopped_at)
        for directory, directory_id in zip(self._directories, self._directory_ids, strict=True):
            if directory.failure is None:
                directory.claim(self._metadata.image.cluster_id or "", self._config.node_id, directory_id)
        if self._imported is not None:
            retire_metadata(self._environment.disk, self._directories[0])
            self._imported = None
        await self._change(partial(introduce_features, min_insync_replicas=self._config.min_insync_replicas))
        await self._mark_running()

    # While the broker serves

    async def stay_registered(self) -> None:
        """A job that does not end: register again whenever this broker is out of the cluster."""
        while True:
            await self._out_of_cluster.wait()
            self.is_registered = False
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
                await asyncio.sleep(RETRY_S)
            except Exception:
                self._out_of_cluster.set()  # or the next run of this job would wait for ever
                raise

    def follow(self, image: Image) -> None:
        """The metadata has changed. Others may have fenced this broker in it."""
        if not self._is_stopping and self.is_registered:
            self._leave_if_fenced(image)

    def leave_cluster(self) -> None:
        """The session has expired, or others have fenced this broker: it leads nothing until it registers again."""
        if self.is_registered:
            self.is_registered = False
            self._replication.reconciliation.step_down()
            self.on_left()
        self._out_of_cluster.set()

    def begin_stop(self) -> None:
        """The broker is about to be fenced because it stops: it does not register again for that."""
        self._is_stopping = True

    def _leave_if_fenced(self, image: Image) -> None:
        broker = image.broker(self._config.node_id)
        if broker is None or broker.fenced or broker.epoch != self._membership.broker_epoch:
            logger.warning("broker %d was fenced by another broker", self._config.node_id)
            self.leave_cluster()

    # One registration

    async def _register(self, stopped_at: int | None = None) -> None:
        """Register, report replicas that cannot be served, and let the others follow the metadata.

        `stopped_at`: the epoch of the last run, if everything that was written in it is still there.
        """
        previous_epoch = self._membership.broker_epoch
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
            previous_epoch=previous_epoch if previous_epoch >= 0 else None,
            imported=tuple(self._imported.snapshot()) if self._imported is not None else (),
            election_settings={key: value for key, value in self._config.given.items() if key in ELECTION_SETTINGS},
        )
        while True:
            known = next((each.identity.cluster_id for each in self._directories if each.identity), None)
            cluster_id = known or self._metadata.image.cluster_id or make_cluster_id(self._environment.random)
            self._out_of_cluster.clear()
            try:
                epoch = await self._membership.register(self._metadata, registration, cluster_id)
                break
            except KafkaError as error:
                if error.code is not ErrorCode.INCONSISTENT_CLUSTER_ID or known is not None:
                    raise
                # Another broker has registered first in the new cluster, and its id counts.
        logger.info("broker %d has registered with epoch %d", self._config.node_id, epoch)
        reconciliation = self._replication.reconciliation
        await self._report(list(self._replication.replicas.offline), lost=False)
        await self._report(reconciliation.find_missing(), lost=True)
        reconciliation.begin()
        await reconciliation.wait_until_created()

    async def _report(self, replicas: Sequence[TopicIdPartition], *, lost: bool) -> None:
        """Report replicas whose directory failed, or whose logs are `lost`: they must not be elected."""
        decide = partial(
            take_replicas_offline,
            broker_id=self._config.node_id,
            broker_epoch=self._membership.broker_epoch,
            partitions=replicas,
            lost=lost,
        )
        while replicas and await self._change(decide) == AT_ONCE_MAX:
            pass

    async def _mark_running(self) -> None:
        for directory in self._directories:
            if directory.failure is None:
                try:
                    await self._environment.offload(directory.mark_running, self._membership.broker_epoch)
                except OSError as error:  # a kill would count as a loss of records then
                    logger.warning("%s: the mark of this run is not written: %s", directory.path, error)

    async def _unfence(self) -> None:
        epoch = self._membership.broker_epoch
        await self._change(lambda image: unfence_broker(image, self._config.node_id, epoch))
        self.is_registered = True
        self._leave_if_fenced(self._metadata.image)  # others may have fenced this broker before this task went on

    async def _change(self, decide: Callable[[Image], Decision[R]]) -> R:
        """Make a change that this registration needs. _OutOfClusterError if the registration is over.

        Without a session nothing can be appended, and only a new registration gives the broker a new one. The change
        must do no harm if it is made twice.
        """
        while True:
            try:
                return await self._metadata.change(decide, STEP_S)
            except KafkaError as error:
                if self._out_of_cluster.is_set():
                    raise _OutOfClusterError(error.message) from None
                if error.code is not ErrorCode.REQUEST_TIMED_OUT:
                    raise


def find_intact_epoch(directories: Sequence[DataDirectory]) -> int | None:
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
