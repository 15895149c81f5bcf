"""Connections to PostgreSQL through ADBC. What its driver says about failures becomes one line without secrets."""

import functools
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from ottla.connect.errors import ConnectError, RetriableError

if TYPE_CHECKING:
    from adbc_driver_manager.dbapi import Connection

CONNECT_TIMEOUT_S: Final = 10
_SILENCE: Final = {
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "60000",
}
"""A server whose machine has gone without a word is noticed within a minute or so. Linux would wait for two hours."""

_PASSING_STATES: Final = ("08", "40", "53", "55006", "55P03", "57", "58")
"""How the SQLSTATE of a failure that passes begins: connections, serialization, resources, objects in use, operators,
system."""
_PASSING_TEXTS: Final = (
    "could not connect",
    "connection refused",
    "connection to server",
    "server closed the connection",
    "no connection to the server",
    "could not translate host name",
    "timeout expired",
    "terminating connection",
    "could not receive data",
    "could not send data",
    "the database system is",
)
"""Words of libpq where there is no SQLSTATE, because the server did not answer."""
_LASTING_TEXTS: Final = ("authentication failed", "no password supplied", "no pg_hba.conf entry", "does not exist")
"""These lead to failures of a connection as well, but trying again does not help."""

_PREFIX: Final = re.compile(r"^[A-Z_ ]+: \[libpq\] (Failed to execute query: (could not begin COPY: )?)?")


@dataclass(frozen=True)
class Server:
    """Where a database is, and who asks."""

    host: str
    port: int
    database: str
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    sslmode: str | None = None
    more: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """Further options of libpq: certificates."""

    def __str__(self) -> str:
        return f"{self.host}:{self.port}/{self.database}"


def connect(server: Server, *, autocommit: bool = True, knows_types: bool = False) -> "Connection":
    """Raises RetriableError if the server is away, ConnectError if it refuses us.

    The driver reads all types of the database before each connection, on another connection; that takes ten times as
    long as the connection itself. With `knows_types` it does so once in a process, so that types which were created
    since are not known.
    """
    try:
        from adbc_driver_postgresql import dbapi
    except ImportError:
        raise ConnectError(
            "PostgreSQL needs the package adbc-driver-postgresql: pip install 'ottla[connect]'"
        ) from None
    options = {
        "host": server.host,
        "port": str(server.port),
        "dbname": server.database,
        "user": server.user,
        "password": server.password,
        "sslmode": server.sslmode,
        "connect_timeout": str(CONNECT_TIMEOUT_S),
        "application_name": "ottla",
        **_SILENCE,
        **dict(server.more),
    }
    text = " ".join(f"{name}={_quote_option(value)}" for name, value in options.items() if value is not None)
    with explain_errors(str(server), server.password):
        connection: Connection = (_connect_again if knows_types else dbapi.connect)(text, autocommit=autocommit)
        return connection


def _connect_again(text: str, *, autocommit: bool) -> "Connection":
    import adbc_driver_manager
    from adbc_driver_postgresql import dbapi

    opened = adbc_driver_manager.AdbcConnection(_load_types(text))
    try:
        connection: Connection = dbapi.Connection(_Shared(), opened, autocommit=autocommit)
        return connection
    except BaseException:
        opened.close()
        raise


@functools.lru_cache(maxsize=16)
def _load_types(text: str) -> Any:
    """What the driver knows about a database. It holds no connection."""
    import adbc_driver_postgresql

    return adbc_driver_postgresql.connect(text)


class _Shared:
    """Stands for the driver's database, which a connection closes when it is closed itself."""

    def close(self) -> None:
        """Others use it."""


@contextmanager
def explain_errors(what: str, secret: str | None = None) -> Iterator[None]:
    """Turns the driver's exceptions into RetriableError or ConnectError. `what` begins the message."""
    from adbc_driver_manager import dbapi

    try:
        yield
    except dbapi.Error as error:
        message = _tell(str(error))
        if secret:
            message = message.replace(secret, "[hidden]")
        kind = RetriableError if _is_passing(error) else ConnectError
        raise kind(f"{what}: {message}") from None


def query(connection: "Connection", sql: str) -> pa.Table:
    """All rows of a query that returns few."""
    with explain_errors("PostgreSQL"), connection.cursor() as cursor:
        cursor.execute(sql)
        return cursor.fetch_arrow_table()


def query_rows(connection: "Connection", sql: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = query(connection, sql).to_pylist()
    return rows


def execute(connection: "Connection", sql: str) -> None:
    """Statements that return nothing. Only with autocommit: without it, ADBC commits what was done before them."""
    with explain_errors("PostgreSQL"), connection.cursor() as cursor:
        cursor.executescript(sql)


def quote_name(*parts: str) -> str:
    """An identifier, such as `"public"."orders"`."""
    return ".".join('"' + part.replace('"', '""') + '"' for part in parts)


def quote_text(text: str) -> str:
    """A text as a literal that means the same whatever standard_conforming_strings is."""
    quoted = text.replace("'", "''")
    return f"E'{quoted.replace(chr(92), chr(92) * 2)}'" if "\\" in text else f"'{quoted}'"


def _quote_option(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _is_passing(error: Exception) -> bool:
    state = getattr(error, "sqlstate", None)
    if state and not state.startswith("\0"):
        return str(state).startswith(_PASSING_STATES)
    text = str(error).lower()
    return any(each in text for each in _PASSING_TEXTS) and not any(each in text for each in _LASTING_TEXTS)


def _tell(text: str) -> str:
    """What the server says, on one line and without the name of the driver."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    lines = [line for line in lines if not line.startswith(("Query was:", "Query:", "SQLSTATE:", "CONTEXT:"))]
    return _PREFIX.sub("", " ".join(lines))
