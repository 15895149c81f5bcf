"""Creates a SparkSession with this Python, a Java that is found, RocksDB state, Arrow, and quiet logs.

A program that needs nothing of SQL has a SparkContext only, which takes half the time and memory in the JVM."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from weakref import WeakSet

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from ottla.spark.java import java_environment
from ottla.spark.progress import WaitingQueries

STATE_STORE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"

DEFAULTS = {
    "spark.sql.streaming.stateStore.providerClass": STATE_STORE,
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}
# For one machine: a shuffle into 200 partitions would take longer than the work, and nobody else connects to it.
LOCAL_DEFAULTS = {
    "spark.sql.shuffle.partitions": "4",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
}

_LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"

_with_listener: "WeakSet[SparkSession]" = WeakSet()
"""Sessions that have the listener which commits to the groups of queries."""


def session(
    name: str = "ottla", *, master: str = "local[*]", config: Mapping[str, object] | None = None
) -> SparkSession:
    """The session of this process, created if there is none. `config` overrides the defaults.

    In a running session `config` changes only what Spark can change at run time.
    """
    builder = SparkSession.builder.appName(name).master(master)
    for key, value in _prepare(master, config).items():
        builder = builder.config(key, value)
    found = builder.getOrCreate()
    if found not in _with_listener:
        found.streams.addListener(WaitingQueries(found))
        _with_listener.add(found)
    return found


def context(name: str, *, master: str, config: Mapping[str, object] | None = None) -> SparkContext:
    """The context of this process, created if there is none."""
    settings = SparkConf().setAppName(name).setMaster(master)
    for key, value in _prepare(master, config).items():
        settings.set(key, value)
    return SparkContext.getOrCreate(settings)


def _prepare(master: str, config: Mapping[str, object] | None) -> dict[str, str]:
    """The settings of Spark. Sets the environment too."""
    _prepare_environment()
    settings = {**DEFAULTS, **(LOCAL_DEFAULTS if master.startswith("local") else {}), **(config or {})}
    settings[_JAVA_OPTIONS] = _silence(str(settings.get(_JAVA_OPTIONS, "")))
    return {key: _to_text(value) for key, value in settings.items()}


def _silence(options: str) -> str:
    """Options of the JVM that keep its start from logging warnings, unless the user has settings for its log."""
    is_settled = "log4j" in options or "SPARK_CONF_DIR" in os.environ or " " in str(_LOG_SETTINGS)
    return options if is_settled else f"-Dlog4j2.configurationFile={_LOG_SETTINGS} {options}".strip()


def _prepare_environment() -> None:
    """Set the environment that the JVM and, through it, every Python worker inherits."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    os.environ.update(java_environment(os.environ))
    home = str(Path(__file__).parents[2])
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if home not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join(path for path in (home, *paths) if path)


def _to_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
