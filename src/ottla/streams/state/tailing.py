"""Keeps a table at the offset that somebody names: reads its topic (read_committed) and applies exactly up to there.

A table that cannot be continued is wiped and restored from the beginning of its topic:

    another topic id        the topic was deleted and created again
    offsets that are gone   retention or a deletion has removed records that the table of a source topic has not seen.
                            If they are gone from a changelog, the app's state is lost: that is an error
    another form            the columns or formats of a source table have changed
    incomplete for long     longer than delete.retention.ms, so that tombstones may have been removed unseen: the keys
                            that they have deleted would come back
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from threading import Lock
from typing import Final

from ottla.client.client import EARLIEST, LATEST, READ_COMMITTED, Client
from ottla.client.fetching import DataLoss, fetch
from ottla.pipeline.decoding import decode
from ottla.streams.errors import StreamsError
from ottla.streams.state.changes import ChangeReader
from ottla.streams.state.protocol import StateAhead, StateLost
from ottla.streams.state.tables import Table, TableProgress
from ottla.topic_partition import TopicPartition
from ottla.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource

FETCH_BYTES: Final = 1024 * 1024
COMPLETE_EVERY_MS: Final = 60_000
"""How often the end of a topic is asked for, to learn whether the table is complete."""
FLUSH_EVERY_MS: Final = 600_000
"""A crash loses what was not written to files; it is read again. At most so long ago is the last time it was."""

_DELETE_RETENTION: Final = "delete.retention.ms"
_DELETE_RETENTION_MS: Final = 86_400_000
_TOPIC_RESOURCE: Final = 2
_RESTORES_MAX: Final = 5
"""Attempts at one restore: a topic may be deleted, or lose records, while it is read."""

log = logging.getLogger(__name__)


class ClientPool:
    """Clients of the cluster, lent to one thread at a time. There are as many as were ever needed at once."""

    def __init__(self, make: Callable[[], Client]) -> None:
        self._make = make
        self._idle: list[Client] = []
        self._lock = Lock()

    @contextmanager
    def borrow(self) -> Iterator[Client]:
        with self._lock:
            client = self._idle.pop() if self._idle else self._make()
        try:
            yield client
        except BaseException:
            client.close()
            raise
        with self._lock:
            self._idle.append(client)

    def close(self) -> None:
        with self._lock:
            for client in self._idle:
                client.close()
            self._idle.clear()


class Tail:
    """A table and the partition of the topic that it follows. One thread at a time."""

    def __init__(
        self,
        table: Table,
        where: TopicPartition,
        reader: ChangeReader,
        clients: ClientPool,
        now_ms: Callable[[], int],
    ) -> None:
        self.table = table
        self.where = where
        self.target = self.position
        """Where the table is going. Equal to `position` when it has arrived."""
        self.records = 0
        """Records that were applied since the process began."""
        self.bad_records = 0
        self.wiped: str | None = None
        """Why the table was last wiped."""
        self._reader = reader
        self._is_source = reader.form != ""
        self._clients = clients
        self._now_ms = now_ms
        self._delete_retention_ms: int | None = None
        self._flushed_ms = now_ms()
        self.has_arrived = False
        """Whether this process has brought the table to an offset that was asked for, since it was last wiped."""

    @property
    def position(self) -> int:
        progress = self.table.progress
        return 0 if progress is None else progress.position

    def restore(self, upto: int, has_time: Callable[[], bool]) -> bool:
        """Like `advance`, but also back: whoever assigns a table knows which offset is the right one."""
        if self.position > upto:
            self._wipe(f"it was assigned at offset {upto}, and was at {self.position}")
        return self.advance(upto, has_time)

    def advance(self, upto: int, has_time: Callable[[], bool]) -> bool:
        """Applies records exactly up to `upto`. False if `has_time` became false before; call it again then.

        StateAhead if the table is beyond; StateLost if the changelog has lost records; KafkaError if the topic cannot
        be read.
        """
        if self.has_arrived and self.position == upto:
            return True
        self.target = upto
        with self._clients.borrow() as client:
            for _ in range(_RESTORES_MAX):
                self._wipe_if_stale(client, upto)
                try:
                    return self._apply(client, upto, has_time)
                except DataLoss as error:
                    self._refuse_loss(str(error))
                    self._wipe(str(error))
                except _TopicChanged:
                    self._wipe("the topic was created again")
            raise StreamsError(f"{self.where}: the state could not be restored: {self.wiped}")

    def _apply(self, client: Client, upto: int, has_time: Callable[[], bool]) -> bool:
        topic, partition = self.where
        asked_ms = self._now_ms()
        progress = self.table.progress or self._begin(client, upto, asked_ms)
        end = self._find_end(client) if asked_ms - progress.complete_ms >= COMPLETE_EVERY_MS else None
        start = progress.position
        batches = fetch(client, topic, partition, start, upto, isolation=READ_COMMITTED, max_bytes=FETCH_BYTES)
        try:
            for batch in decode(batches, topic, partition, start, upto, self._reader.columns):
                if client.find_topic_id(topic).hex() != progress.topic_id:
                    raise _TopicChanged
                changes = self._reader.read(batch)
                position = batch.column("offset")[-1].as_py() + 1
                progress = replace(progress, position=position)
                self.table.apply(changes.values.items(), progress)
                self.records += batch.num_rows
                self.bad_records += changes.bad
                if position < upto and not has_time():
                    return False
        finally:
            batches.close()
        is_complete = end is not None and upto >= end
        complete_ms = asked_ms if is_complete else progress.complete_ms
        self.table.apply((), replace(progress, position=upto, complete_ms=complete_ms))
        if asked_ms - self._flushed_ms >= FLUSH_EVERY_MS:
            self.table.flush()
            self._flushed_ms = asked_ms
        self.has_arrived = True
        return True

    def _begin(self, client: Client, upto: int, now_ms: int) -> TableProgress:
        """The progress of an empty table."""
        first = client.list_offsets({self.where: EARLIEST})[self.where].offset
        topic_id = client.find_topic_id(self.where.topic).hex()
        return TableProgress(topic_id, min(first, upto), now_ms, self._reader.form)

    def _find_end(self, client: Client) -> int:
        return client.list_offsets({self.where: LATEST}, READ_COMMITTED)[self.where].offset

    # Wiping

    def _refuse_loss(self, what: str) -> None:
        """Raises StateLost if it is a changelog whose records are gone. A table that is restored from what is left
        would lack values, and nobody would notice."""
        if not self._is_source:
            raise StateLost(
                f"{what}. Records of a changelog were deleted before the state had them: it must have"
                " cleanup.policy=compact, and nobody may delete records of it. ottla stream reset rebuilds the state"
            )

    def _wipe(self, reason: str) -> None:
        log.warning("%s: the state is wiped and restored: %s", self.where, reason)
        self.wiped = reason
        self.has_arrived = False
        self.table.wipe()

    def _wipe_if_stale(self, client: Client, upto: int) -> None:
        progress = self.table.progress
        if progress is None:
            return
        if upto < progress.position:
            client.forget_topic(self.where.topic)  # if the topic was created again, the table is not ahead
        if client.find_topic_id(self.where.topic).hex() != progress.topic_id:
            self._wipe("the topic was created again")
        elif progress.form != self._reader.form:
            self._wipe("the columns or formats of the table have changed")
        elif upto < progress.position:
            end = client.list_offsets({self.where: LATEST})[self.where].offset
            if end >= progress.position:
                raise StateAhead(f"{self.where}: offset {upto} was asked for, and the state is at {progress.position}")
            self._wipe(f"the topic ends at {end}, and the state was at {progress.position}")
        elif abs(self._now_ms() - progress.complete_ms) > self._find_patience(client):
            self._wipe(f"tombstones may have been missed: it was last complete more than {_DELETE_RETENTION} ago")

    def _find_patience(self, client: Client) -> int:
        """How long ago the table may have been complete, in milliseconds. For a table that is followed all the time it
        is never less than what passes between two looks at the end of the topic."""
        retention_ms = self._find_delete_retention(client)
        return max(retention_ms, 2 * COMPLETE_EVERY_MS) if self.has_arrived else retention_ms

    def _find_delete_retention(self, client: Client) -> int:
        if self._delete_retention_ms is None:
            resource = DescribeConfigsResource(
                resource_type=_TOPIC_RESOURCE, resource_name=self.where.topic, configuration_keys=[_DELETE_RETENTION]
            )
            answer = client.ask_any(DescribeConfigsRequest(resources=[resource]))
            found = [each.value for result in answer.results for each in result.configs if each.value]
            self._delete_retention_ms = int(found[0]) if found else _DELETE_RETENTION_MS
        return self._delete_retention_ms


class _TopicChanged(StreamsError):
    """The topic was deleted and created again while it was read."""
