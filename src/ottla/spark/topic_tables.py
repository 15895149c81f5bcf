"""Topics as tables of SQL: `ottla.spark.sql("select value from orders")`, and temporary views of topics.

The defaults suit SQL: keys and values are text unless a format is given, fields of the value are columns, and a value
that cannot be decoded is null, with the reason in the column `error`.
"""

import re
from collections.abc import Mapping

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from ottla.client.client import Client, UnknownTopic
from ottla.pipeline.formats import NULL
from ottla.spark.cluster_options import complete_cluster
from ottla.spark.query_logs import silence_query_loggers
from ottla.spark.sessions import session
from pyspark_ottla.options import KAFKA_PREFIX

DEFAULTS = {"keyformat": "string", "valueformat": "string"}
COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp")

_PLAIN = ("string", "binary")
_NOT_FOUND = "TABLE_OR_VIEW_NOT_FOUND"
_PART = re.compile(r"`((?:[^`]|``)+)`")


def tables(
    spark: SparkSession,
    *topics: str,
    bootstrap: str | None = None,
    options: Mapping[str, str] | None = None,
    streaming: bool = False,
) -> list[str]:
    """Create a temporary view of each topic, or of all topics, with the topic's name. Returns their names.

    `options` are those of format("ottla"). Without an address, the cluster is that of the command line: of
    $OTTLA_BOOTSTRAP, of the profile in use, or localhost:9092. In SQL a name with dots or dashes needs backquotes.
    """
    given = complete_options(bootstrap, options)
    names = list(topics) or _list_topics(given)
    for name in names:
        _load(spark, name, given, streaming).createOrReplaceTempView(_quote(name))
    return names


def sql(
    text: str,
    *,
    bootstrap: str | None = None,
    options: Mapping[str, str] | None = None,
    streaming: bool = False,
    spark: SparkSession | None = None,
) -> DataFrame:
    """The result of a query whose tables are topics. Views and tables of the session win over topics of the same name.

    Only topics that the query names are read, and no view is left behind. Raises UnknownTopic for a name that is no
    topic, and AnalysisException for other errors of the query.
    """
    running = session() if spark is None else spark
    given = complete_options(bootstrap, options)
    known: list[str] | None = None
    made: list[str] = []
    try:
        while True:
            try:
                with silence_query_loggers():
                    return running.sql(text)
            except AnalysisException as error:
                missing = _list_missing(error)
                if missing is None:
                    raise
            known = _list_topics(given) if known is None else known
            view, topic = _find_topic(missing, known)
            if view in made:
                raise UnknownTopic(f"topic {topic!r} cannot be used here")
            _load(running, topic, given, streaming).createOrReplaceTempView(_quote(view))
            made.append(view)
    finally:
        for view in made:
            running.catalog.dropTempView(view)


def complete_options(bootstrap: str | None, options: Mapping[str, str] | None) -> dict[str, str]:
    """All options of a read except its topic, with the defaults for SQL and names in lower case."""
    found = {**DEFAULTS, **complete_cluster(bootstrap, options)}
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
        options["startingOffsets"] = "earliest"  # a table holds all its records
    return spark.readStream.format("ottla").options(**options).load()


def _list_topics(given: Mapping[str, str]) -> list[str]:
    kafka = {name: value for name, value in given.items() if name.startswith(KAFKA_PREFIX)}
    client = Client({name.removeprefix(KAFKA_PREFIX): value for name, value in kafka.items()})
    try:
        return sorted(client.count_partitions(pattern=".*"))
    finally:
        client.close()


def _find_topic(parts: list[str], known: list[str]) -> tuple[str, str]:
    """The name of the view and the topic for it. The topic may differ in case if it is the only one."""
    name = ".".join(parts)
    same = [topic for topic in known if topic == name] or [topic for topic in known if topic.lower() == name.lower()]
    if not same:
        raise UnknownTopic(f"there is no topic {name!r}")
    if len(parts) > 1:
        raise UnknownTopic(f"topic {name!r} must stand in backquotes, because of its dots: `{same[0]}`")
    if len(same) > 1:
        raise UnknownTopic(f"{name!r} could be one of {', '.join(same)}")
    return name, same[0]


def _list_missing(error: AnalysisException) -> list[str] | None:
    """The parts of the table name that Spark did not find; None for another error."""
    if not (error.getCondition() or "").startswith(_NOT_FOUND):
        return None
    name = (error.getMessageParameters() or {}).get("relationName", "")
    return [part.replace("``", "`") for part in _PART.findall(name)] or None


def _quote(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
