"""The partitions that this broker follows, and the connections over which it copies them from their leaders.

There are num.replica.fetchers connections to each leader, and each partition of the leader belongs to one of them
(`fetcher.py`). `follow` and `leave` only change tables: a failover of thousands of partitions costs a few microseconds
for each, and one request.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from zlib import crc32

from ottla.config import BrokerConfig
from ottla.replication.checkpoints import Checkpoints
from ottla.replication.fetcher import Fetcher
from ottla.replication.followed import Followed
from ottla.replication.leader_session import FetchSettings
from ottla.replication.log_starts import LogStarts
from ottla.replication.partition import Partition
from ottla.replication.peers import Peers
from ottla.replication.throttles import ReplicationThrottle
from ottla.replication.truncation import Truncations
from ottla.system.clock import Clock
from ottla.system.threads import Offload

HEADERS_BYTES = 16 * 1024 * 1024
"""Room in an answer for everything but records: about 60 bytes for each partition."""


@dataclass(frozen=True, slots=True)
class Lag:
    """How far a followed partition is behind its leader's high watermark, in records."""

    partition: Partition
    leader: int
    records: int


class Fetchers:
    def __init__(
        self,
        broker_id: int,
        broker_epoch: Callable[[], int],
        peers: Peers,
        clock: Clock,
        offload: Offload,
        config: Callable[[], BrokerConfig],
        throttle: ReplicationThrottle,
        checkpoints: Checkpoints,
        log_starts: LogStarts,
    ) -> None:
        """`broker_epoch`: the epoch of this broker's registration. `throttle`: that of followers."""
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self.peers = peers
        self._clock = clock
        self._config = config
        self.throttle = throttle
        self._followed: dict[Partition, Followed] = {}
        self._fetchers: dict[tuple[int, int], Fetcher] = {}
        self._is_closed = False
        self.truncations = Truncations(offload, checkpoints, log_starts)
        self._bytes_in = 0
        """Bytes that fetchers received which are gone."""
        self._reassignment_bytes_in = 0

    # Changes of leadership

    def follow(self, partition: Partition) -> None:
        """Copy the partition from the leader that its state names. Called after each change of the state.

        Nothing happens if it is copied from that leader, in that leader epoch, already.
        """
        state = partition.state
        if state is None or state.leader < 0 or state.leader == self._broker_id:
            self.leave(partition)
            return
        known = self._followed.get(partition)
        if known is not None:
            if known.leader == state.leader and known.leader_epoch == state.leader_epoch:
                return
            self.leave(partition)
        if self._is_closed:
            return
        number = self._choose_fetcher(partition)
        followed = self._followed[partition] = Followed(partition, state.leader, state.leader_epoch, number)
        self._find_fetcher(followed).add(followed)

    def leave(self, partition: Partition) -> None:
        """Stop copying the partition. An answer that is on its way is not applied."""
        followed = self._followed.pop(partition, None)
        if followed is not None:
            fetcher = self._fetchers[followed.leader, followed.fetcher_number]
            fetcher.remove(followed)
            if fetcher.is_empty:
                self._close_fetcher(fetcher)

    async def close(self) -> None:
        """Stop copying everything. Returns when no log is being truncated, so that logs can be closed."""
        self._is_closed = True
        for partition in list(self._followed):
            self.leave(partition)
        await self.truncations.finish()

    def abort(self) -> None:
        """Stop at once, without waiting for truncations."""
        self._is_closed = True
        self.truncations.cancel()
        for partition in list(self._followed):
            self.leave(partition)

    def _choose_fetcher(self, partition: Partition) -> int:
        """The number of the connection over which a partition is copied, whoever leads it."""
        count = max(self._config().num_replica_fetchers, 1)
        return crc32(b"%d" % partition.index, crc32(partition.topic_id)) % count

    def _find_fetcher(self, followed: Followed) -> Fetcher:
        key = (followed.leader, followed.fetcher_number)
        fetcher = self._fetchers.get(key)
        if fetcher is None:
            fetcher = self._fetchers[key] = Fetcher(
                followed.leader,
                followed.fetcher_number,
                self._broker_id,
                self._broker_epoch,
                self.peers,
                self._clock,
                self._settings,
                self.throttle,
                self.truncations,
            )
        return fetcher

    def _close_fetcher(self, fetcher: Fetcher) -> None:
        self._bytes_in += fetcher.bytes_in
        self._reassignment_bytes_in += fetcher.reassignment_bytes_in
        fetcher.close()
        del self._fetchers[fetcher.leader, fetcher.number]

    def _settings(self) -> FetchSettings:
        config = self._config()
        return FetchSettings(
            min_bytes=config.replica_fetch_min_bytes,
            wait_max_ms=config.replica_fetch_wait_max_ms,
            partition_max_bytes=config.replica_fetch_max_bytes,
            response_max_bytes=config.replica_fetch_response_max_bytes,
            backoff_s=config.replica_fetch_backoff_ms / 1000,
            timeout_s=config.replica_socket_timeout_ms / 1000,
            # A batch that is larger than the other limits comes alone; no producer can send a larger one than this.
            answer_bytes_max=config.replica_fetch_response_max_bytes + config.socket_request_max_bytes + HEADERS_BYTES,
        )

    # Numbers for those who watch

    @property
    def bytes_in(self) -> int:
        """Bytes of records that were copied from leaders."""
        return self._bytes_in + sum(fetcher.bytes_in for fetcher in self._fetchers.values())

    @property
    def reassignment_bytes_in(self) -> int:
        """Bytes of records that were copied to replicas which a reassignment adds to this broker."""
        return self._reassignment_bytes_in + sum(fetcher.reassignment_bytes_in for fetcher in self._fetchers.values())

    @property
    def partition_count(self) -> int:
        return len(self._followed)

    @property
    def failed_count(self) -> int:
        """Partitions that wait after an error."""
        return sum(followed.backoff_s > 0 for followed in self._followed.values())

    @property
    def connection_count(self) -> int:
        return sum(fetcher.is_connected for fetcher in self._fetchers.values())

    @property
    def max_lag(self) -> int:
        return max((followed.lag for followed in self._followed.values()), default=0)

    def lags(self) -> Iterator[Lag]:
        """The lag of each followed partition."""
        for partition, followed in self._followed.items():
            yield Lag(partition, followed.leader, followed.lag)

    def lag(self, partition: Partition) -> int | None:
        """The lag of one partition; None if this broker does not follow it."""
        followed = self._followed.get(partition)
        return None if followed is None else followed.lag
