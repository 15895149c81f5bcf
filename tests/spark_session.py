"""One Spark session for all tests of a process.

If the jars of Spark's own Kafka connector can be found, the session has them, for comparisons. Ours needs none.
"""

import functools
import os
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks.peers.apache_kafka import Unavailable
from benchmarks.spark.stock_connector import find_connector_jars
from tests.kafka_peer import FETCH_S
from tests.needs import skip_without
from tests.patience import PATIENCE_S, PAUSE_S
from tests.spark.early_python import run_early_python
from tests.spark.settings import SETTINGS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


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
def early_python(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Python for Spark that starts in no time."""
    with run_early_python(tmp_path_factory.mktemp("python")) as executable:
        yield executable


@pytest.fixture(scope="session")
def patient_starts() -> Iterator[None]:
    """A streaming query is started again if the Python process that plans it came too late for Spark, which gives it
    ten seconds, on a busy machine. The query has done nothing then."""
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    start = DataStreamWriter.start

    def start_patiently(writer: DataStreamWriter, *arguments: Any, **options: Any) -> "StreamingQuery":
        deadline = time.monotonic() + PATIENCE_S
        while is_late(query := start(writer, *arguments, **options)) and time.monotonic() < deadline:
            continue
        return query

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DataStreamWriter, "start", start_patiently)
        yield


def is_late(query: "StreamingQuery") -> bool:
    """Whether a query that was just started has failed for that reason."""
    while query.isActive and query.status["message"].startswith("Initializing"):
        time.sleep(PAUSE_S)
    failure = None if query.isActive else query.exception()
    return failure is not None and "Python worker failed to connect back" in str(failure)


@pytest.fixture(scope="session")
def spark(early_python: str, patient_starts: None) -> "Iterator[SparkSession]":
    """The Spark session. The first test that needs it starts it. The JVM and Python's daemon end with it."""
    from pyspark.logger import PySparkLogger

    import ottla.spark

    # PySpark's loggers set their own formatter on every handler, also on the one with which pytest captures logs.
    del PySparkLogger.addHandler
    before = dict(os.environ)
    os.environ["PYSPARK_PYTHON"] = early_python
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
