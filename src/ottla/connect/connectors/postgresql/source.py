"""PostgresConnector: the rows of a database's tables and every change of them, as Debezium writes them.

Source partitions: each table while its rows are read, {"server", "table"}, and then the log, {"server"}. The slot is
created before the first row is read, and its changes are written after the last. It is advanced only to what has been
committed to Kafka, so that nothing is lost, and the committed offset decides what comes next, so nothing comes twice.

A transaction may be in the log before others see it: it waits for a synchronous standby, or its process was held up
for a moment. One that is in the log before the slot begins, and is not seen yet by those who read the tables, would be
in neither. So no row is read before all transactions have ended that were running when the slot was there.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from logging import getLogger
from typing import TYPE_CHECKING, Any, ClassVar, Final

from ottla.connect.connector import ConnectorContext, Part, Source, SourceBatch, SourceOffset, partition_key
from ottla.connect.connectors.postgresql import slots
from ottla.connect.connectors.postgresql.catalog import CatalogTable, read_tables
from ottla.connect.connectors.postgresql.changes import LSN, SNAPSHOT_END, LogSettings, make_peek, read_changes
from ottla.connect.connectors.postgresql.column_types import TypeModes
from ottla.connect.connectors.postgresql.connecting import Server, connect, execute, query_rows
from ottla.connect.connectors.postgresql.filters import CaptureFilter
from ottla.connect.connectors.postgresql.heartbeats import make_heartbeat
from ottla.connect.connectors.postgresql.settings import CERTIFICATES, SETTINGS
from ottla.connect.connectors.postgresql.shapes import Capture
from ottla.connect.connectors.postgresql.snapshots import CHUNKS, IS_DONE, read_snapshot
from ottla.connect.errors import ConnectError, RetriableError
from ottla.connect.settings.definition import Settings

if TYPE_CHECKING:
    from adbc_driver_manager.dbapi import Connection

log = getLogger(__name__)

SERVER: Final = "server"
TABLE: Final = "table"
OID: Final = "oid"
HEARTBEAT_US: Final = "heartbeat_us"
IDLE_WAL_BYTES: Final = 1 << 20
"""So much log is read without asking first whether it has captured changes. If it has none, the offset is committed
all the same, so that the server can remove that log."""


class PostgresConnector(Source):
    settings: ClassVar[Settings] = SETTINGS
    version: ClassVar[str] = "1"

    def __init__(self, config: Mapping[str, Any], context: ConnectorContext) -> None:
        super().__init__(config, context)
        self._server = Server(
            config["database.hostname"],
            config["database.port"],
            config["database.dbname"],
            config["database.user"],
            config["database.password"],
            config["database.sslmode"],
            tuple((name, config[f"database.{name}"]) for name in CERTIFICATES if config[f"database.{name}"]),
        )
        self._prefix: str = config["topic.prefix"]
        self._mode: str = config["snapshot.mode"]
        modes = TypeModes(config["decimal.handling.mode"], config["time.precision.mode"])
        self._capture = Capture(self._prefix, self._server.database, CaptureFilter(config), modes)
        skipped = frozenset(config["skipped.operations"])
        self._log = LogSettings(
            config["slot.name"], config["publication.name"], skipped, config["tombstones.on.delete"]
        )
        self._log_partition = {SERVER: self._prefix}
        self._connection: Connection | None = None
        self._is_prepared = self._is_done = False
        self._settled_at: int | None = None
        """Transactions before this one have to end before the first row is read. None: they have."""
        self._looked_up_to = 0
        """The slot has nothing for us before this LSN."""
        self._heartbeat_us = 0

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_connection": None}

    # On the driver

    def plan(self, offsets: Mapping[str, SourceOffset]) -> Sequence[Part]:
        offset = offsets.get(partition_key(self._log_partition))
        with self._connect() as connection:
            if not self._is_prepared:
                self._prepare(connection, has_offsets=bool(offsets))
            if offset is None and self._mode.startswith("initial"):
                if not self._is_settled(connection):
                    return []
                parts = self._plan_tables(connection, offsets)
                if parts:
                    return parts
            if self._mode == "initial_only":
                self._is_done = True
                return []
            return self._plan_log(connection, offsets, offset)

    def after_commit(self, offsets: Mapping[str, SourceOffset]) -> None:
        offset = offsets.get(partition_key(self._log_partition))
        if offset is not None:
            with self._connect() as connection:
                slots.advance(connection, self._log.slot, offset[LSN])

    def is_done(self) -> bool:
        return self._is_done

    def stop(self) -> None:
        if self.config["slot.drop.on.stop"] and self._is_prepared:
            with self._connect() as connection:
                slots.drop(connection, self._log.slot)
        self._disconnect()

    @contextmanager
    def _connect(self) -> "Iterator[Connection]":
        """The driver's connection, which is given up after a failure."""
        if self._connection is None:
            self._connection = connect(self._server)
        try:
            yield self._connection
        except ConnectError:
            self._disconnect()
            raise

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _prepare(self, connection: "Connection", *, has_offsets: bool) -> None:
        if self._mode != "initial_only":
            tables = [each for each in read_tables(connection) if self._has(each)]
            mode = self.config["publication.autocreate.mode"]
            slots.ensure_publication(connection, self._log.publication, mode, tables)
            slots.ensure_slot(connection, self._log.slot, self._server.database, may_create=not has_offsets)
            if not has_offsets and self._mode == "initial":
                self._settled_at = slots.take_transaction_id(connection)
                if not self._is_settled(connection):
                    log.info("connector %s: waits for transactions to end before it reads tables", self.context.name)
        self._is_prepared = True

    def _is_settled(self, connection: "Connection") -> bool:
        if self._settled_at is not None and slots.find_oldest_running(connection) >= self._settled_at:
            self._settled_at = None
        return self._settled_at is None

    def _has(self, table: CatalogTable) -> bool:
        return self._capture.filter.has_table(table.schema, table.name)

    def _make_table_partition(self, table: CatalogTable) -> dict[str, Any]:
        return {SERVER: self._prefix, TABLE: table.full_name}

    def _plan_tables(self, connection: "Connection", offsets: Mapping[str, SourceOffset]) -> list[Part]:
        parts = []
        for table in read_tables(connection):
            partition = self._make_table_partition(table)
            done = offsets.get(partition_key(partition), {}).get(IS_DONE)
            if table.kind == "r" and self._has(table) and not done:
                parts.append(Part(partition, {OID: table.oid}))
        return parts

    def _plan_log(
        self, connection: "Connection", offsets: Mapping[str, SourceOffset], offset: SourceOffset | None
    ) -> list[Part]:
        state = slots.read_slot(connection, self._log.slot)
        if offset is not None:
            slots.check_position(state, self._log.slot, offset[LSN])
            slots.advance(connection, self._log.slot, offset[LSN])
        work: dict[str, Any] = {"upto": state.flush_lsn, "start": state.confirmed_lsn}
        interval_us = self.config["heartbeat.interval.ms"] * 1000
        if interval_us and state.now_us - self._heartbeat_us >= interval_us:
            self._heartbeat_us = state.now_us
            self._act(connection)
            work[HEARTBEAT_US] = state.now_us
        elif (
            offset is not None
            and state.flush_lsn - offset[LSN] < IDLE_WAL_BYTES
            and not self._has_changes(connection, state.flush_lsn)
        ):
            return []
        snapshot_end = state.insert_lsn if offset is None else offset.get(SNAPSHOT_END, 0)
        if snapshot_end and self._mode == "initial":
            work[SNAPSHOT_END] = snapshot_end
            work["chunks"] = self._find_chunks(connection, offsets)
        return [Part(self._log_partition, work)]

    def _act(self, connection: "Connection") -> None:
        """Run heartbeat.action.query. One that the server refuses is told, and stops nothing."""
        statement = self.config["heartbeat.action.query"]
        if not statement:
            return
        try:
            execute(connection, statement)
        except RetriableError:
            raise
        except ConnectError as error:
            log.warning("connector %s: heartbeat.action.query: %s", self.context.name, error)

    def _has_changes(self, connection: "Connection", upto_lsn: int) -> bool:
        """Whether the slot holds a transaction that the publication is about, of any table."""
        if upto_lsn <= self._looked_up_to:
            return False
        found = query_rows(connection, make_peek(self._log, upto_lsn, 1, "count(*) AS count"))[0]["count"]
        if not found:
            self._looked_up_to = upto_lsn
        return bool(found)

    def _find_chunks(self, connection: "Connection", offsets: Mapping[str, SourceOffset]) -> dict[str, str]:
        """What the snapshot has read of each table, in which snapshots."""
        chunks = {}
        for table in read_tables(connection):
            offset = offsets.get(partition_key(self._make_table_partition(table)))
            if offset is not None:
                chunks[table.full_name] = offset[CHUNKS]
        return chunks

    # In a Spark task

    def read(self, part: Part, offset: SourceOffset | None) -> Iterator[SourceBatch]:
        if TABLE in part.partition:
            yield from read_snapshot(self._server, self._capture, part.work[OID], offset)
            return
        if HEARTBEAT_US in part.work:
            yield SourceBatch([[make_heartbeat(self._prefix, part.work[HEARTBEAT_US] // 1000)]], None)
        yield from read_changes(self._server, self._capture, self._log, part.work, offset)
