"""A Spark session for one command: started quickly, and silent.

Java and Spark write to stderr before their logging can be configured. So their stderr goes to a temporary file. If
Spark does not start, the error message has the last line of that file.
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

# A command runs for a short time only, so the JVM compiles code simply and at once, and one thread collects garbage.
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
    """A session that is stopped at the end of the block. If a session is already active, that one is used and not
    stopped."""
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        yield active
        return
    spark = _start()
    try:
        yield spark
    finally:
        spark.stop()


def _start() -> "SparkSession":
    from pyspark.errors import PySparkException

    from ottla.spark.sessions import session

    os.environ["TZ"] = "UTC"  # rows in Python have Python's time zone; it must be that of Spark's SQL
    time.tzset()
    with tempfile.TemporaryFile() as log, _stderr_to(log):
        try:
            return session("ottla sql", config=SETTINGS)
        except (PySparkException, RuntimeError, OSError) as error:
            raise CommandError(f"sql: Spark does not start: {_last_line(log) or error}") from None


@contextmanager
def _stderr_to(log: IO[bytes]) -> Iterator[None]:
    """Redirects stderr within the block. Child processes that are started there keep it redirected."""
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
