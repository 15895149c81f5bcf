"""What a state server does with requests: tables by store and partition, kept at the offsets that requests name.

Requests may come from many threads at once. A table serves one request with an offset at a time. A request that would
have to wait longer than a moment, because the table is being restored, is told how far the restore has come.
"""

import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Final

from ottla.errors import KafkaError
from ottla.streams.errors import StreamsError
from ottla.streams.planning.plan import StorePlan
from ottla.streams.state import protocol
from ottla.streams.state.assignments import read_store
from ottla.streams.state.changes import ChangeReader
from ottla.streams.state.protocol import (
    Frame,
    ProtocolError,
    StateAhead,
    StateLost,
    encode_frame,
    pack_many,
    take_number,
    take_text,
)
from ottla.streams.state.tables import Table, TableMemory
from ottla.streams.state.tailing import ClientPool, Tail
from ottla.topic_partition import TopicPartition

RESTORES: Final = 3
"""Tables that are restored at the same time. Each of them holds a few megabytes of records."""
WAIT_S: Final = 2.0
"""How long a request may wait for a table before it is told to ask again."""

_NAME: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,200}")

log = logging.getLogger(__name__)


class Restoring(StreamsError):
    """The table is not yet where the request wants it."""

    def __init__(self, message: str, applied: int) -> None:
        """`applied` is a count of records that grows for as long as the restore goes on."""
        super().__init__(message)
        self.applied = applied


class Unassigned(StreamsError):
    """The server does not have the table."""


@dataclass
class HostedTable:
    plan: StorePlan
    partition: int
    tail: Tail
    lock: Lock = field(default_factory=Lock)
    error: str | None = None
    """Why the last restore in the background failed."""
    is_queued: bool = False
    """Whether it waits until other tables are restored."""
    brought: int = 0
    """How often a request has brought the table to the offset that it names."""

    def describe(self) -> dict[str, Any]:
        tail = self.tail
        state = "failed" if self.error else "ready" if tail.has_arrived else "restoring"
        keys, size = tail.table.measure()
        return {
            "store": self.plan.spec.name,
            "partition": self.partition,
            "topic": tail.where.topic,
            "state": state,
            "position": tail.position,
            "target": tail.target,
            "records": tail.records,
            "keys": keys,
            "bytes": size,
            "bad_records": tail.bad_records,
            "wiped": tail.wiped,
            "error": self.error,
        }


@dataclass
class HostedStore:
    plan: StorePlan
    partition_count: int
    """The partitions of the store on all servers."""
    tables: dict[int, HostedTable] = field(default_factory=dict)


class StateService:
    """The tables of one state server."""

    def __init__(
        self,
        directory: str,
        memory: TableMemory,
        clients: ClientPool,
        *,
        now_ms: Callable[[], int],
        seconds: Callable[[], float],
    ) -> None:
        """`now_ms` is the wall clock, `seconds` one that never goes back."""
        self.stores: dict[str, HostedStore] = {}
        self._directory = directory
        self._memory = memory
        self._clients = clients
        self._now_ms = now_ms
        self._seconds = seconds
        self._lock = Lock()
        self._is_closing = False
        self._restores = ThreadPoolExecutor(RESTORES, "restore")
        self._handlers: Mapping[int, Callable[[Frame], bytes]] = {
            protocol.ASSIGN: self._assign,
            protocol.GET_MANY: self._get_many,
            protocol.RANGE: self._range,
            protocol.ADVANCE: self._advance,
            protocol.STATUS: self._status,
            protocol.DROP: self._drop,
        }

    def handle(self, request: Frame) -> bytes:
        """The answer to a request. Whatever is wrong becomes an answer too."""
        handler = self._handlers.get(request.kind)
        try:
            if handler is None:
                raise ProtocolError(f"there is no request of kind {request.kind}")
            return handler(request)
        except Exception as error:
            kind = next((kind for known, kind in _ANSWERS.items() if isinstance(error, known)), protocol.FAILED)
            is_expected = isinstance(error, StreamsError | KafkaError)
            if not is_expected:
                log.exception("a request of kind %d failed", request.kind)
            applied = {"applied": error.applied} if isinstance(error, Restoring) else {}
            return encode_frame(kind, {"message": str(error) if is_expected else repr(error), **applied})

    def close(self, limit_s: float) -> None:
        """Writes tables to files and closes them. One that is busy for longer than the limit is left as a crash would
        leave it, which is harmless."""
        if self._is_closing:
            return
        self._is_closing = True
        self._restores.shutdown(wait=False, cancel_futures=True)
        deadline = self._seconds() + limit_s
        for table in self._tables():
            if table.lock.acquire(timeout=max(deadline - self._seconds(), 0)):
                table.tail.table.close()
        self._clients.close()

    def _tables(self) -> list[HostedTable]:
        with self._lock:
            return [table for store in self.stores.values() for table in store.tables.values()]

    # Requests

    def _assign(self, request: Frame) -> bytes:
        described, wanted = request.fields.get("store"), request.fields.get("partitions")
        if not isinstance(described, dict) or not isinstance(wanted, dict):
            raise ProtocolError("an assignment needs a store and its partitions")
        plan = read_store(described)
        if not _NAME.fullmatch(plan.spec.name):
            raise ProtocolError(f"{plan.spec.name!r} is not the name of a store")
        partition_count = take_number(request.fields, "partition_count")
        for text in wanted:
            if not str(text).isdecimal() or int(text) >= partition_count:
                raise ProtocolError(f"{text!r} is not a partition below {partition_count}")
            upto = take_number(wanted, text)
            table = self._open(plan, partition_count, int(text))
            table.tail.target = upto
            table.is_queued = True
            self._restores.submit(self._restore, table, upto, table.brought)
        return encode_frame(protocol.OK, {})

    def _open(self, plan: StorePlan, partition_count: int, partition: int) -> HostedTable:
        with self._lock:
            store = self.stores.setdefault(plan.spec.name, HostedStore(plan, partition_count))
            store.plan, store.partition_count = plan, partition_count
            found = store.tables.get(partition)
            if found is None:
                directory = os.path.join(self._directory, plan.spec.name, str(partition))
                table = Table(directory, self._memory)
                where = TopicPartition(plan.changelog, partition)
                tail = Tail(table, where, ChangeReader(plan), self._clients, self._now_ms)
                found = store.tables[partition] = HostedTable(plan, partition, tail)
            return found

    def _restore(self, table: HostedTable, upto: int, brought: int) -> None:
        """Restore a table that was assigned when requests had brought it somewhere so often. A batch that has begun
        since knows better where it must be, and answers to people must not go back."""
        with table.lock:
            table.is_queued = False
            if table.brought != brought:
                return
            try:
                table.error = None
                table.tail.restore(upto, lambda: not self._is_closing)
            except Exception as error:
                log.warning("%s: the restore failed: %s", table.tail.where, error)
                table.error = str(error)

    def _get_many(self, request: Frame) -> bytes:
        keys = protocol.unpack_many(request.payload)
        if len(keys) > protocol.KEYS_MAX or None in keys:
            raise ProtocolError(f"{len(keys)} keys: a request has at most {protocol.KEYS_MAX}, and none is null")
        with self._at(request.fields) as table:
            values = table.get_many(keys)  # type: ignore[arg-type] # none of them is None
        fitting = _count_fitting(values)
        return encode_frame(protocol.OK, {}, pack_many(values[:fitting]))

    def _range(self, request: Frame) -> bytes:
        fields = request.fields
        bounds = protocol.unpack_many(request.payload)
        if len(bounds) != 2 or bounds[0] is None:
            raise ProtocolError("a range has a start and an end")
        limit = min(take_number(fields, "limit", protocol.ROWS_MAX), protocol.ROWS_MAX)
        found: list[bytes | None] = []
        size = 0
        with self._at(fields) as table:
            rows = table.range(bounds[0], bounds[1], is_reversed=fields.get("reversed") is True, limit=limit + 1)
            for pair in rows:
                if len(found) >= 2 * limit or size > protocol.ANSWER_BYTES:
                    return encode_frame(protocol.OK, {"more": True}, pack_many(found))
                found.extend(pair)
                size += len(pair[0]) + len(pair[1])
        return encode_frame(protocol.OK, {"more": False}, pack_many(found))

    def _advance(self, request: Frame) -> bytes:
        take_number(request.fields, "upto")
        with self._at(request.fields):
            return encode_frame(protocol.OK, {})

    def _status(self, request: Frame) -> bytes:
        return encode_frame(
            protocol.OK,
            {"tables": [table.describe() for table in self._tables()], "cache_bytes": self._memory.used_bytes},
        )

    def _drop(self, request: Frame) -> bytes:
        table = self._find(request.fields)
        with table.lock:
            with self._lock:
                self.stores[table.plan.spec.name].tables.pop(table.partition, None)
            if request.fields.get("wipe") is True:
                table.tail.table.wipe()
            table.tail.table.close()
        return encode_frame(protocol.OK, {})

    # Tables

    def _find(self, fields: Mapping[str, Any]) -> HostedTable:
        name, partition = take_text(fields, "store"), take_number(fields, "partition")
        store = self.stores.get(name)
        table = None if store is None else store.tables.get(partition)
        if table is None:
            raise Unassigned(f"partition {partition} of store {name!r} is not assigned to this state server")
        return table

    @contextmanager
    def _at(self, fields: Mapping[str, Any]) -> Iterator[Table]:
        """The table at the offset `upto` that the request names; as it stands if the request names none."""
        hosted = self._find(fields)
        if fields.get("upto") is None:
            if not hosted.tail.has_arrived:
                raise self._restoring(hosted)
            yield hosted.tail.table
            return
        upto = take_number(fields, "upto")
        deadline = self._seconds() + WAIT_S
        if not hosted.lock.acquire(timeout=WAIT_S):
            raise self._restoring(hosted)
        try:
            if not hosted.tail.advance(upto, lambda: self._seconds() < deadline):
                raise self._restoring(hosted)
            hosted.error = None
            hosted.brought += 1
            yield hosted.tail.table
        finally:
            hosted.lock.release()

    def _restoring(self, table: HostedTable) -> Restoring:
        """A table that waits for others goes on when they do."""
        tail = table.tail
        going_on = self._tables() if table.is_queued else [table]
        return Restoring(
            f"partition {table.partition} of store {table.plan.spec.name!r} is being restored: "
            f"at offset {tail.position} of {tail.target}",
            sum(each.tail.records for each in going_on),
        )


_ANSWERS: Final[Mapping[type[Exception], int]] = {
    Restoring: protocol.RESTORING,
    Unassigned: protocol.UNASSIGNED,
    StateAhead: protocol.AHEAD,
    StateLost: protocol.LOST,
    ProtocolError: protocol.REFUSED,
}


def _count_fitting(values: list[bytes | None]) -> int:
    """How many values fit into an answer: at least one."""
    sizes = (len(value) if value is not None else 0 for value in values)
    total = 0
    for count, size in enumerate(sizes):
        total += size
        if total > protocol.ANSWER_BYTES:
            return count + 1
    return len(values)
