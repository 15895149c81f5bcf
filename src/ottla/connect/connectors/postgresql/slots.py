"""Publications and replication slots: what the server keeps for a capture."""

from collections.abc import Sequence
from dataclasses import dataclass
from logging import getLogger
from typing import TYPE_CHECKING

from ottla.connect.connectors.postgresql.catalog import CatalogTable
from ottla.connect.connectors.postgresql.connecting import execute, query_rows, quote_name, quote_text
from ottla.connect.errors import ConnectError

if TYPE_CHECKING:
    from adbc_driver_manager.dbapi import Connection

log = getLogger(__name__)


@dataclass(frozen=True)
class SlotState:
    confirmed_lsn: int
    """The server may have removed what comes before."""
    flush_lsn: int
    """The end of the log that can be read."""
    insert_lsn: int
    now_us: int
    """By the server's clock."""


def ensure_publication(connection: "Connection", name: str, mode: str, tables: Sequence[CatalogTable]) -> None:
    """Before the slot: a slot cannot follow a publication in the part of the log in which there was none."""
    if query_rows(connection, f"SELECT 1 AS one FROM pg_publication WHERE pubname = {quote_text(name)}"):
        return
    if mode == "disabled":
        raise ConnectError(
            f"there is no publication {name}, and publication.autocreate.mode is disabled: "
            f"CREATE PUBLICATION {quote_name(name)} FOR ALL TABLES"
        )
    if mode == "filtered":
        listed = ", ".join(quote_name(each.schema, each.name) for each in tables if each.kind == "r")
        if not listed:
            raise ConnectError("no table is captured: the include and exclude lists leave none")
        execute(connection, f"CREATE PUBLICATION {quote_name(name)} FOR TABLE {listed}")
    else:
        execute(connection, f"CREATE PUBLICATION {quote_name(name)} FOR ALL TABLES")


def ensure_slot(connection: "Connection", name: str, database: str, *, may_create: bool) -> None:
    settings = query_rows(
        connection,
        "SELECT current_setting('wal_level') AS wal_level, "
        "current_setting('max_slot_wal_keep_size', true) AS keep_size",
    )[0]
    if settings["wal_level"] != "logical":
        raise ConnectError(f"change capture needs wal_level = logical; the server has {settings['wal_level']}")
    if settings["keep_size"] == "-1":
        log.warning(
            "max_slot_wal_keep_size is not set: if this connector is stopped for long, slot %s keeps the log until the "
            "disk of the server is full",
            name,
        )
    found = query_rows(
        connection,
        "SELECT plugin::text AS plugin, database::text AS database FROM pg_replication_slots "
        f"WHERE slot_name = {quote_text(name)}",
    )
    if not found and not may_create:
        raise ConnectError(
            f"the replication slot {name} is gone, so changes are lost: delete the offsets of this connector to read "
            "the tables again"
        )
    if not found:
        query_rows(
            connection,
            f"SELECT lsn::text AS lsn FROM pg_create_logical_replication_slot({quote_text(name)}, 'pgoutput')",
        )
    elif found[0] != {"plugin": "pgoutput", "database": database}:
        raise ConnectError(
            f"the replication slot {name} is of the plugin {found[0]['plugin']} and the database "
            f"{found[0]['database']}: choose another slot.name"
        )


def read_slot(connection: "Connection", name: str) -> SlotState:
    found = query_rows(
        connection,
        "SELECT (confirmed_flush_lsn - '0/0')::int8 AS confirmed, wal_status::text AS wal_status, "
        "(pg_current_wal_flush_lsn() - '0/0')::int8 AS flush, (pg_current_wal_insert_lsn() - '0/0')::int8 AS insert, "
        "(extract(epoch FROM clock_timestamp()) * 1000000)::int8 AS now_us "
        f"FROM pg_replication_slots WHERE slot_name = {quote_text(name)}",
    )
    if not found:
        raise ConnectError(f"the replication slot {name} is gone, so changes are lost")
    row = found[0]
    if row["wal_status"] == "lost":
        raise ConnectError(
            f"the server has removed log that the replication slot {name} needs (max_slot_wal_keep_size), so changes "
            "are lost: drop the slot and delete the offsets of this connector to read the tables again"
        )
    return SlotState(row["confirmed"], row["flush"], row["insert"], row["now_us"])


def take_transaction_id(connection: "Connection") -> int:
    """An id that is higher than those of all transactions that were begun before. The end of a snapshot is not: it is
    below transactions that run."""
    found = query_rows(connection, "SELECT pg_current_xact_id()::text::int8 AS id")
    return int(found[0]["id"])


def find_oldest_running(connection: "Connection") -> int:
    """All transactions with lower ids have ended, and are seen."""
    found = query_rows(connection, "SELECT pg_snapshot_xmin(pg_current_snapshot())::text::int8 AS id")
    return int(found[0]["id"])


def check_position(state: SlotState, name: str, lsn: int) -> None:
    """Reading from below the slot's position would silently leave changes out."""
    if state.confirmed_lsn > lsn:
        raise ConnectError(
            f"the replication slot {name} was advanced by somebody else to {state.confirmed_lsn}, beyond the "
            f"committed offset {lsn}, so changes are lost"
        )


def advance(connection: "Connection", name: str, lsn: int) -> None:
    """Let the server forget what comes before `lsn`. Not backwards."""
    at = f"'{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}'"
    query_rows(
        connection,
        f"SELECT (pg_replication_slot_advance(slot_name, {at})).end_lsn::text AS lsn FROM pg_replication_slots "
        f"WHERE slot_name = {quote_text(name)} AND confirmed_flush_lsn < {at}::pg_lsn",
    )


def drop(connection: "Connection", name: str) -> None:
    query_rows(
        connection,
        f"SELECT pg_drop_replication_slot(slot_name)::text AS gone FROM pg_replication_slots "
        f"WHERE slot_name = {quote_text(name)}",
    )
