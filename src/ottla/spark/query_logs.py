"""PySpark raises errors of queries and also logs them, with Java's stack trace: what to do without the log.

PySpark's loggers are of a class of its own. Whoever asks Python's `logging` for one of them before PySpark does makes a
plain logger of that name, and every later error of a query in the process becomes a TypeError, because a plain logger
does not take the arguments that PySpark gives.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from logging import LogRecord

from pyspark.logger import PySparkLogger


@contextmanager
def silence_query_loggers() -> Iterator[None]:
    """Drops what PySpark logs about errors of queries within the block."""
    loggers = [PySparkLogger.getLogger(f"{kind}QueryContextLogger") for kind in ("SQL", "DataFrame")]

    def nothing(record: LogRecord) -> bool:
        return False

    for logger in loggers:
        logger.addFilter(nothing)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(nothing)
