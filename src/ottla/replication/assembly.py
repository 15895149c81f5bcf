"""The local partitions and everything that looks after them, put together."""

import asyncio
from collections.abc import Collection, Sequence
from random import Random
from typing import TYPE_CHECKING

from ottla.cluster.image import Image
from ottla.config import BrokerConfig
from ottla.errors import ErrorCode, KafkaError
from ottla.replication.checkpoints import Checkpoints
from ottla.replication.closing import close_logs
from ottla.replication.creation import Creation
from ottla.replication.deleted_partitions import DeletedPartitions
from ottla.replication.directory_failures import DirectoryFailures
from ottla.replication.discovery import Discovery, ReportProgress
from ottla.replication.log_starts import LogStarts
from ottla.replication.moves import Moves
from ottla.replication.reconciliation import Reconciliation
from ottla.replication.removals import Removals
from ottla.replication.replicas import Replicas
from ottla.replication.throttles import ReplicationThrottle
from ottla.replication.upkeep import Upkeep
from ottla.storage.directories import DataDirectory
from ottla.storage.files import Disk
from ottla.storage.index import IndexCache
from ottla.system.clock import Clock
from ottla.system.threads import Offload

if TYPE_CHECKING:  # a broker alone does not import them
    from ottla.replication.fetchers import Fetchers
    from ottla.replication.isr_proposals import IsrProposals


class Replication:
    def __init__(
        self,
        config: BrokerConfig,
        disk: Disk,
        directories: Sequence[DataDirectory],
        clock: Clock,
        random: Random,
        offload: Offload,
    ) -> None:
        self._config = config
        self._disk = disk
        self._clock = clock
        self._random = random
        self._offload = offload
        self._indexes = IndexCache()
        self.proposals: IsrProposals | None = None
        self.fetchers: Fetchers | None = None
        """These two are None on a broker alone."""
        self.replicas = Replicas(directories)
        self.failures = DirectoryFailures(self.replicas, offload)
        self.checkpoints = Checkpoints(self.replicas, self.failures, offload)
        self.removals = Removals(offload)
        self.log_starts = LogStarts(self.replicas, self.checkpoints, self.removals, self.failures)
        self.leader_throttle = ReplicationThrottle(
            lambda: self._config.leader_replication_throttled_rate, asyncio.get_running_loop().time
        )
        self.upkeep = Upkeep(self.replicas, self.log_starts, self.removals, self.failures, clock)
        self._deleted = DeletedPartitions(disk, self.removals, self.failures, self._make_unique, self._settings)
        self.moves = Moves(
            self.replicas,
            self.checkpoints,
            self.log_starts,
            self._deleted,
            self.failures,
            disk,
            clock,
            offload,
            self._settings,
        )
        creation = Creation(
            config.node_id,
            self._settings,
            disk,
            clock,
            offload,
            self._make_unique,
            self._indexes,
            self.replicas,
            self._deleted,
            self.failures,
        )
        self.reconciliation = Reconciliation(
            config.node_id, self._settings, self.replicas, creation, self.checkpoints, self._deleted, self.moves
        )
        self.failures.retire = self.reconciliation.retire

    def join_cluster(self, proposals: "IsrProposals", fetchers: "Fetchers") -> None:
        """Replicate with other brokers from now on: what is led has followers, and other replicas follow."""
        self.proposals = self.replicas.isr_proposer = proposals
        self.fetchers = self.reconciliation.fetchers = fetchers

    def _settings(self) -> BrokerConfig:
        return self._config

    def _make_unique(self) -> str:
        """A suffix for the name of a directory that is renamed."""
        return self._random.randbytes(16).hex()

    def find(self, image: Image, progress: ReportProgress, deleted: Collection[bytes] = ()) -> Discovery:
        """Open every log of the data directories, with recovery. Slow: runs in a thread, at start only.

        `deleted` are the ids of topics that are known to have been deleted: what is left of them is removed.
        """
        discovery = Discovery(
            self._disk, self._config, self._clock, self._make_unique, self._indexes, image, deleted, progress
        )
        return discovery.run(self.replicas.directories)

    def configure(self, config: BrokerConfig, image: Image) -> None:
        """The broker's settings were changed: they hold at once, for every topic that takes them as its default."""
        self._config = config
        self.reconciliation.configure_all(image)

    async def close(self) -> list[DataDirectory]:
        """Flush and close every log and write every checkpoint. Returns the directories in which all of it worked."""
        await self.moves.close()
        self._deleted.rename_all()
        await self.failures.close()
        clean = await close_logs(self.replicas, self._offload)
        await self.checkpoints.write_recovery_points()
        await self.log_starts.write_periodically()
        await self.checkpoints.write_high_watermarks()
        return [directory for directory in clean if not self.checkpoints.has_unwritten(directory)]

    def abandon(self) -> None:
        """Let go of every log as it is, without a flush. Requests that wait for one get an error."""
        self._deleted.close_files()
        for partition in self.replicas:
            self.moves.cancel(partition)
            partition.retire(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the broker has stopped"))
