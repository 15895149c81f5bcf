"""The settings of a connection, which source and sink share, by Confluent's names."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final
from urllib.parse import parse_qsl, unquote

from ottla.connect.connectors.jdbc.dialect import Dialect
from ottla.connect.connectors.jdbc.postgresql import PostgreSql
from ottla.connect.connectors.jdbc.sqlite import Sqlite
from ottla.connect.connectors.postgresql.connecting import Server
from ottla.connect.errors import BadConfig
from ottla.connect.settings.checks import one_of
from ottla.connect.settings.definition import REQUIRED, Importance, Kind, Setting

URL: Final = "connection.url"
DIALECTS: Final = {"PostgreSqlDatabaseDialect": PostgreSql, "SqliteDatabaseDialect": Sqlite}

_POSTGRESQL: Final = re.compile(
    r"jdbc:postgresql:(?://(?P<host>\[[^]]+\]|[^:/?]*)(?::(?P<port>\d+))?/)?(?P<db>[^?]*)(?:\?(?P<more>.*))?"
)
_OPTIONS: Final = ("user", "password", "sslmode", "ssl", "currentSchema")
_AS_IN_LIBPQ: Final = {
    "ApplicationName": "application_name",
    "options": "options",
    "sslrootcert": "sslrootcert",
    "sslcert": "sslcert",
    "sslkey": "sslkey",
    "sslpassword": "sslpassword",
}
"""Options of PostgreSQL's JDBC driver that libpq has too."""
_WITHOUT_EFFECT: Final = frozenset(
    (
        *("autosave", "binaryTransfer", "connectTimeout", "defaultRowFetchSize", "loggerFile", "loggerLevel"),
        *("loginTimeout", "prepareThreshold", "preparedStatementCacheQueries", "reWriteBatchedInserts"),
        *("socketTimeout", "stringtype", "tcpKeepAlive"),
    )
)
"""Options of that driver which tune it, or which nobody needs: texts always become what their columns are."""


def _check_url(name: str, value: Any) -> None:
    try:
        read_url(value)
    except BadConfig as error:
        raise ValueError(str(error)) from None


CONNECTION_SETTINGS: Final = (
    Setting(
        URL,
        Kind.STRING,
        REQUIRED,
        "jdbc:postgresql://host:port/database or jdbc:sqlite:path.",
        Importance.HIGH,
        _check_url,
        "Database",
    ),
    Setting("connection.user", Kind.STRING, None, "The user of the database.", Importance.HIGH, group="Database"),
    Setting("connection.password", Kind.PASSWORD, None, "The user's password.", Importance.HIGH, group="Database"),
    Setting(
        "dialect.name",
        Kind.STRING,
        "",
        "The dialect, which the URL tells anyway.",
        Importance.LOW,
        one_of("", *DIALECTS),
        "Database",
    ),
    Setting(
        "db.timezone",
        Kind.STRING,
        "UTC",
        "The time zone of columns that have times without one. PostgreSQL only.",
        group="Database",
    ),
    Setting(
        "quote.sql.identifiers",
        Kind.STRING,
        "always",
        "Whether names of tables and columns are quoted: always or never.",
        check=one_of("always", "never"),
        group="Database",
    ),
)


def read_url(url: str) -> Server | str:
    """The server of PostgreSQL, or the path of SQLite. BadConfig names what is not supported."""
    if url.startswith("jdbc:sqlite:"):
        path = url.removeprefix("jdbc:sqlite:").partition("?")[0]
        if not path or path.startswith(":memory:"):
            raise BadConfig("a database of SQLite must be a file: tasks run in other processes")
        return path
    found = _POSTGRESQL.fullmatch(url)
    if found is None:
        kind = re.match(r"jdbc:([a-z0-9]+):", url)
        what = f"the database {kind[1]} is not supported" if kind else "it is no JDBC URL"
        raise BadConfig(f"{what}; use jdbc:postgresql://host:port/database or jdbc:sqlite:path")
    options = dict(parse_qsl(found["more"] or "", keep_blank_values=True))
    supported = (*_OPTIONS, *_AS_IN_LIBPQ)
    unknown = [name for name in options if name not in supported and name not in _WITHOUT_EFFECT]
    if unknown:
        raise BadConfig(f"the options {', '.join(unknown)} of the URL are not supported; {', '.join(supported)} are")
    if not found["db"]:
        raise BadConfig("the URL names no database")
    return Server(
        (found["host"] or "localhost").strip("[]"),
        int(found["port"] or 5432),
        unquote(found["db"]),
        options.get("user"),
        options.get("password"),
        options.get("sslmode") or ("verify-full" if options.get("ssl", "false") in ("", "true") else None),
        tuple(_list_libpq_options(options)),
    )


def _list_libpq_options(options: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for name, text in options.items():
        if name in _AS_IN_LIBPQ and name != "options":
            yield _AS_IN_LIBPQ[name], text
    schemas = options.get("currentSchema", "").replace("\\", "\\\\").replace(" ", "\\ ")
    found = " ".join(filter(None, (options.get("options"), schemas and f"-c search_path={schemas}")))
    if found:
        yield "options", found


def make_dialect(config: Mapping[str, Any]) -> Dialect:
    place = read_url(config[URL])
    if isinstance(place, str):
        return Sqlite(config, place)
    user = config["connection.user"] or place.user
    password = config["connection.password"] or place.password
    return PostgreSql(config, replace(place, user=user, password=password and str(password)))


def refuse_connection(config: Mapping[str, Any]) -> dict[str, Sequence[str]]:
    """What is wrong with settings of a connection together."""
    errors: dict[str, Sequence[str]] = {}
    chosen = config.get("dialect.name")
    url = config.get(URL)
    if chosen and url:
        found = Sqlite if isinstance(read_url(url), str) else PostgreSql
        if DIALECTS[chosen] is not found:
            errors["dialect.name"] = [f"{chosen} does not fit {URL}"]
    if url and isinstance(read_url(url), str) and (config.get("db.timezone") or "UTC") != "UTC":
        errors["db.timezone"] = ["SQLite has no time zones; convert the times in a query"]
    return errors
