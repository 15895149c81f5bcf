"""`ottla sql`: runs a query over topics on a local Spark and prints its rows.

    quiet.py       a session that writes nothing itself   complaints.py   Spark's errors in one line
    rows.py        rows as a table or as JSON             following.py    --follow: rows as they come

PySpark takes a second to import and Spark a few more to start, so arguments and the broker are checked before.
"""

import argparse
import sys
import time
from importlib.util import find_spec
from typing import TYPE_CHECKING

from ottla.cli.client import open_own_client
from ottla.cli.client_settings import BOOTSTRAP, add_client_arguments, read_client_settings
from ottla.cli.command_error import USAGE_ERROR, CommandError
from ottla.cli.numbers import INT32_MAX, int_between
from ottla.cli.offset_ranges import time_ms
from ottla.cli.output import TABLE, add_format_argument
from ottla.cli.pairs import parse_pairs
from ottla.cli.progress import ProgressLine

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TABLE_ROWS = 1000
"""The default limit of a table, which can be laid out only when its last row is known."""

FORMATS = ("binary", "string", "json", "avro", "protobuf")
EPILOG = """\
Every topic is a table: key, value, topic, partition, offset, timestamp, and error, which says why a key or value is
null that could not be decoded. Names with dots or dashes stand in backquotes: select * from `my-topic`
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EPILOG
    add_client_arguments(parser)
    parser.add_argument("query", metavar="QUERY", help="SQL as Spark has it; - reads it from standard input")
    for column in ("value", "key"):
        parser.add_argument(
            f"--{column}-format",
            choices=FORMATS,
            default="string",
            help=f"what {column}s are; fields of values become columns (default: string)",
        )
        parser.add_argument(
            f"--{column}-schema",
            metavar="SCHEMA",
            help="fields as in SQL, JSON Schema, Avro's JSON, or @FILE (default for json: as in the newest records)",
        )
    parser.add_argument("--registry", metavar="URL", help="a schema registry that has the schemas")
    parser.add_argument(
        "-o",
        "--option",
        action="append",
        default=[],
        dest="options",
        metavar="NAME=VALUE",
        help='another option of format("ottla"), such as badRecords=fail; may be repeated',
    )
    parser.add_argument("--since", metavar="TIME", help="only records since: 10m (ago), 2026-01-31T18:00:00Z, or ms")
    parser.add_argument("-f", "--follow", action="store_true", help="continue with new records until Ctrl-C")
    parser.add_argument(
        "-n",
        "--limit",
        type=int_between(0, INT32_MAX - 1),
        help=f"no more rows than that; 0: all (default: {TABLE_ROWS} in a table)",
    )
    add_format_argument(parser)


def run(options: argparse.Namespace) -> int:
    settings = _read_settings(options, int(time.time() * 1000))
    query = _read_query() if options.query == "-" else options.query
    if not query.strip(" \t\r\n;"):
        raise CommandError("sql: the query is empty", USAGE_ERROR)
    if find_spec("pyspark") is None:
        raise CommandError("sql: PySpark is not installed: pip install 'ottla[spark]'")
    with open_own_client(options) as own:  # reports a missing broker before Spark starts
        address = own.raw_settings[BOOTSTRAP]
    from ottla.cli.sql.complaints import explain_spark_errors
    from ottla.cli.sql.quiet import quiet_session

    progress = ProgressLine("sql")
    progress.say("starting Spark ...")
    with progress, quiet_session() as spark, explain_spark_errors():
        from ottla.spark.topic_tables import sql

        progress.say("running the query ...")
        frame = sql(query, bootstrap=address, options=settings, streaming=options.follow, spark=spark)
        if options.follow:
            from ottla.cli.sql.following import follow

            progress.clear()
            follow(frame, options.format, options.limit or None)
        else:
            _show(frame, options.format, options.limit, progress)
    return 0


def _read_query() -> str:
    try:
        return sys.stdin.read()
    except UnicodeDecodeError:
        raise CommandError("sql: standard input is not UTF-8 text", USAGE_ERROR) from None


def _show(frame: "DataFrame", form: str, limit: int | None, progress: ProgressLine) -> None:
    from ottla.cli.sql.rows import show_rows_as_json, show_rows_as_table

    if form != TABLE:
        chosen = frame.limit(limit) if limit else frame
        progress.clear()
        show_rows_as_json(chosen.columns, chosen.toLocalIterator())
        return
    most = TABLE_ROWS if limit is None else limit
    rows = (frame.limit(most + 1) if most else frame).collect()
    progress.clear()
    more = bool(most) and len(rows) > most
    show_rows_as_table(frame.columns, rows[:most] if most else rows)
    if more and limit is None:
        print(f"ottla: there are more than {most} rows; --limit 0 shows all", file=sys.stderr)


def _read_settings(options: argparse.Namespace, now_ms: int) -> dict[str, str]:
    """Options of format("ottla"), the strongest last."""
    given = read_client_settings(options).settings
    found = {f"kafka.{name}": value for name, value in given.items() if name != BOOTSTRAP}
    for column in ("key", "value"):
        form, schema = getattr(options, f"{column}_format"), getattr(options, f"{column}_schema")
        found[f"{column}Format"] = form
        if schema is None and form == "json" and options.registry is None:
            schema = "infer"
        if schema is not None:
            found[f"{column}Schema"] = schema
    if options.registry is not None:
        found["schemaRegistry"] = options.registry
    if options.since is not None:
        found["startingTimestamp"] = str(time_ms(options.since, now_ms))
        found["startingOffsetsByTimestampStrategy"] = "latest"
    return found | parse_pairs(options.options, "--option")
