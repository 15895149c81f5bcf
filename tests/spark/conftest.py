"""One Spark for all tests of this folder, and one broker; each test has topics of its own.

Where the jars of Spark's own Kafka connector are in reach, Spark has them: for comparisons, ours needs none.
"""

import functools
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from benchmarks.peers.apache_kafka import Unavailable
from benchmarks.spark.stock_connector import find_connector_jars
from ottla.testing import LocalBroker
from tests.kafka_peer import FETCH_S
from tests.needs import skip_without
from tests.patience import PATIENCE_S
from tests.spark.early_python import early_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For a JVM that lives for seconds: half of its time would go into making code fast that is then hardly run."""

SETTINGS = {
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": QUICK_JAVA,
    "spark.sql.shuffle.partitions": "2",
    "spark.task.maxFailures": "1",
}


@functools.cache
def jars_or_reason() -> tuple[str, str]:
    """The stock connector's jars, or why there are none."""
    try:
        return find_connector_jars(FETCH_S), ""
    except Unavailable as reason:
        return "", str(reason)


@pytest.fixture(scope="session")
def stock_connector() -> None:
    """`format("kafka")` works in this session."""
    if reason := jars_or_reason()[1]:
        skip_without("Spark's Kafka connector", reason)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[SparkSession]":
    """Started by the first test that wants it. Its JVM and Python's daemon end with it."""
    from pyspark.logger import PySparkLogger

    import ottla.spark

    # PySpark's loggers give every handler their own form, and pytest hands them the one by which all tests see logs.
    del PySparkLogger.addHandler
    before = dict(os.environ)
    os.environ["PYSPARK_PYTHON"] = early_python(tmp_path_factory.mktemp("python"))
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


@pytest.fixture
def broker(ottla_session_broker: LocalBroker) -> LocalBroker:
    return ottla_session_broker
