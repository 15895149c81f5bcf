"""Topics as tables of SQL: `ottla.spark.sql("select value from orders")`, and views for those who write SQL themselves.

Whoever asks in SQL wants to read what is there: keys and values are text unless a format is named, their fields are
columns if they have any, and what cannot be decoded is null, with the reason in the column `error`.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from logging import LogRecord

from pyspark.errors import AnalysisException
from pyspark.logger import PySparkLogger
from pyspark.sql import DataFrame, SparkSession

from ottla.client.client import Client, UnknownTopic
from ottla.pipeline.formats import NULL
from ottla.spark.sessions import session
from pyspark_ottla.options import KAFKA_PREFIX

BOOTSTRAP = "kafka.bootstrap.servers"
DEFAULTS = {"keyformat": "string", "valueformat": "string"}
COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp")

_PLAIN = ("string", "binary")
_NOT_FOUND = "TABLE_OR_VIEW_NOT_FOUND"
_PART = re.compile(r"`((?:[^`]|``)+)`")


def tables(
    spark: SparkSession,
    *topics: str,
    bootstrap: str = "localhost:9092",
    options: Mapping[str, str] | None = None,
    streaming: bool = False,
) -> list[str]:
    """Make a temporary view of each topic, or of all topics that there are, and say which. They have the topics' names.

    `options` are those of format("ottla"), for all of them. A name with dots or dashes stands in backquotes in SQL.
    """
    given = table_options(bootstrap, options)
    names = list(topics) or _topics(given)
    for name in names:
        _load(spark, name, given, streaming).createOrReplaceTempView(_quoted(name))
    return names


def sql(
    text: str,
    *,
    bootstrap: str = "localhost:9092",
    options: Mapping[str, str] | None = None,
    streaming: bool = False,
    spark: SparkSession | None = None,
) -> DataFrame:
    """What a query gives, whose tables are topics. Views and tables of the session go before topics of their name.

    Only the topics that the query names are looked at, and no view of them is left behind. UnknownTopic if it names
    what is no topic; AnalysisException for what else is wrong with it.
    """
    running = session() if spark is None else spark
    given = table_options(bootstrap, options)
    known: list[str] | None = None
    made: list[str] = []
    try:
        while True:
            try:
                with unlogged():
                    return running.sql(text)
            except AnalysisException as error:
                missing = _missing(error)
                if missing is None:
                    raise
            known = _topics(given) if known is None else known
            view, topic = _topic_of(missing, known)
            if view in made:
                raise UnknownTopic(f"topic {topic!r} cannot be used here")
            _load(running, topic, given, streaming).createOrReplaceTempView(_quoted(view))
            made.append(view)
    finally:
        for view in made:
            running.catalog.dropTempView(view)


def table_options(bootstrap: str, options: Mapping[str, str] | None) -> dict[str, str]:
    """All options of a read but its topic, with their names in lower case, as Spark hands them on."""
    found = {**DEFAULTS, BOOTSTRAP: bootstrap, **{name.lower(): str(value) for name, value in (options or {}).items()}}
    value = found["valueformat"].lower()
    if {value, found["keyformat"].lower()} != {"binary"}:
        found.setdefault("badrecords", NULL)
    if value not in _PLAIN:
        found.setdefault("expandvalue", "true")
    headers = ("headers",) if found.get("includeheaders", "").lower() == "true" else ()
    error = ("error",) if found.get("badrecords", "").lower() == NULL else ()
    found.setdefault("columns", ",".join((*COLUMNS, *headers, *error)))
    return found


def _load(spark: SparkSession, topic: str, given: Mapping[str, str], streaming: bool) -> DataFrame:
    options = {**given, "subscribe": topic}
    if not streaming:
        return spark.read.format("ottla").options(**options).load()
    if not {"startingoffsets", "startingtimestamp", "startingoffsetsbytimestamp"} & given.keys():
        options["startingOffsets"] = "earliest"  # a table has all that was ever put into it
    return spark.readStream.format("ottla").options(**options).load()


def _topics(given: Mapping[str, str]) -> list[str]:
    kafka = {name: value for name, value in given.items() if name.startswith(KAFKA_PREFIX)}
    client = Client({name.removeprefix(KAFKA_PREFIX): value for name, value in kafka.items()})
    try:
        return sorted(client.count_partitions(pattern=".*"))
    finally:
        client.close()


def _topic_of(parts: list[str], known: list[str]) -> tuple[str, str]:
    """The view that the query wants and the topic it means: of that name, or of one that differs only in case."""
    name = ".".join(parts)
    same = [topic for topic in known if topic == name] or [topic for topic in known if topic.lower() == name.lower()]
    if not same:
        raise UnknownTopic(f"there is no topic {name!r}")
    if len(parts) > 1:
        raise UnknownTopic(f"topic {name!r} must stand in backquotes, because of its dots: `{same[0]}`")
    if len(same) > 1:
        raise UnknownTopic(f"{name!r} could be one of {', '.join(same)}")
    return name, same[0]


def _missing(error: AnalysisException) -> list[str] | None:
    """The parts of the name that the query has and Spark does not know, if that is what is wrong."""
    if not (error.getCondition() or "").startswith(_NOT_FOUND):
        return None
    name = (error.getMessageParameters() or {}).get("relationName", "")
    return [part.replace("``", "`") for part in _PART.findall(name)] or None


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


@contextmanager
def unlogged() -> Iterator[None]:
    """PySpark writes errors of queries to stderr, with all of Java's stack, and raises them too. One is enough."""
    loggers = [PySparkLogger.getLogger(f"{kind}QueryContextLogger") for kind in ("SQL", "DataFrame")]

    def nothing(record: LogRecord) -> bool:
        return False

    for logger in loggers:
        logger.addFilter(nothing)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(nothing)
