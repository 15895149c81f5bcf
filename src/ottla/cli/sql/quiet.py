"""A Spark session for one command: started quickly, and silent.

Java and Spark write to stderr before anybody can tell them not to. So their stderr is a file that nobody reads, unless
Spark does not start: then its last line says why.
"""

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

from ottla.cli.command_error import CommandError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A command's life is short: code is compiled simply and at once, and memory is tidied up by one thread.
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"
SETTINGS = {
    "spark.driver.extraJavaOptions": JAVA_OPTIONS,
    "spark.log.level": "OFF",
    "spark.sql.streaming.forceDeleteTempCheckpointLocation": "true",
    "spark.sql.adaptive.enabled": "false",
    "spark.task.maxFailures": "1",
}
_STDERR = 2


@contextmanager
def quiet_session() -> "Iterator[SparkSession]":
    """A session that ends with the block; one that was there already is used, and left as it is."""
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        yield active
        return
    spark = _started()
    try:
        yield spark
    finally:
        spark.stop()


def _started() -> "SparkSession":
    from pyspark.errors import PySparkException

    from ottla.spark.sessions import session

    os.environ["TZ"] = "UTC"  # Spark's SQL has this zone; rows that come to Python have that of Python
    time.tzset()
    with tempfile.TemporaryFile() as log, _stderr_to(log):
        try:
            return session("ottla sql", config=SETTINGS)
        except (PySparkException, RuntimeError, OSError) as error:
            raise CommandError(f"sql: Spark does not start: {_last_line(log) or error}") from None


@contextmanager
def _stderr_to(log: IO[bytes]) -> Iterator[None]:
    """For children: they keep what they were started with."""
    sys.stderr.flush()
    kept = os.dup(_STDERR)
    os.dup2(log.fileno(), _STDERR)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, _STDERR)
        os.close(kept)


def _last_line(log: IO[bytes]) -> str:
    log.seek(0)
    lines = [line for line in log.read().decode("utf-8", "replace").splitlines() if line.strip()]
    return lines[-1].strip() if lines else ""
