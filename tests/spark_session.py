"""One Spark session for all tests of a process.

If the jars of Spark's own Kafka connector can be found, the session has them, for comparisons. Ours needs none.
"""

import functools
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from benchmarks.peers.apache_kafka import Unavailable
from benchmarks.spark.stock_connector import find_connector_jars
from tests.kafka_peer import FETCH_S
from tests.needs import skip_without
from tests.patience import PATIENCE_S
from tests.spark.early_python import create_early_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Options for a JVM that lives for seconds, and would spend half of them on optimising code that hardly runs."""

SETTINGS = {
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": QUICK_JAVA,
    "spark.sql.shuffle.partitions": "2",
    "spark.task.maxFailures": "1",
}


@functools.cache
def jars_or_reason() -> tuple[str, str]:
    """The jars of the stock connector, or the reason why there are none."""
    try:
        return find_connector_jars(FETCH_S), ""
    except Unavailable as reason:
        return "", str(reason)


@pytest.fixture(scope="session")
def stock_connector() -> None:
    """For tests that need `format("kafka")`. Skips them if its jars are missing."""
    if reason := jars_or_reason()[1]:
        skip_without("Spark's Kafka connector", reason)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[SparkSession]":
    """The Spark session. The first test that needs it starts it. The JVM and Python's daemon end with it."""
    from pyspark.logger import PySparkLogger

    import ottla.spark

    # PySpark's loggers set their own formatter on every handler, also on the one with which pytest captures logs.
    del PySparkLogger.addHandler
    before = dict(os.environ)
    os.environ["PYSPARK_PYTHON"] = create_early_python(tmp_path_factory.mktemp("python"))
    session = ottla.spark.session("tests", master="local[2]", config={**SETTINGS, "spark.jars": jars_or_reason()[0]})
    gateway = session.sparkContext._gateway
    assert gateway is not None
    yield session
    session.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(PATIENCE_S)
    os.environ.clear()
    os.environ.update(before)
