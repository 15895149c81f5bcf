"""A SparkSession that is set up right: this Python, a Java that is there, RocksDB state, Arrow, quiet logs."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from ottla.spark.java import java_environment

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
# A laptop: one machine, where a shuffle into 200 parts takes longer than the work, and nobody else needs to find it.
LOCAL_DEFAULTS = {
    "spark.sql.shuffle.partitions": "4",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
}


def session(
    name: str = "ottla", *, master: str = "local[*]", config: Mapping[str, object] | None = None
) -> SparkSession:
    """The session of this process, made if there is none. `config` overrides what is set here.

    Where Spark runs already, `config` changes what can be changed in a running session, as Spark's own builder does.
    """
    _prepare_environment()
    settings = {**DEFAULTS, **(LOCAL_DEFAULTS if master.startswith("local") else {}), **(config or {})}
    builder = SparkSession.builder.appName(name).master(master)
    for key, value in settings.items():
        builder = builder.config(key, _text(value))
    return builder.getOrCreate()


def _prepare_environment() -> None:
    """The launcher of the JVM, and through it every Python worker, inherits it."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    os.environ.update(java_environment(os.environ))
    home = str(Path(__file__).parents[2])
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if home not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join(path for path in (home, *paths) if path)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
