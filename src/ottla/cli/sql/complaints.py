"""Errors of Spark as one line each, without the stack traces of Java and Python."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import AnalysisException, PySparkException

from ottla.cli.command_error import FAILURE, USAGE_ERROR, CommandError
from ottla.client.connection import Unreachable
from ottla.errors import KafkaError
from ottla.spark.query_logs import silence_query_loggers

_TRACEBACK = "Traceback (most recent call last)"
_RAISED = re.compile(r"^[\w.]+: ")
_CONDITION = re.compile(r"^\[[A-Z_.0-9]+\] ")
_STATE = re.compile(r"\s*SQLSTATE: \w{5}.*$")
_SOURCE = "PYTHON_DATA_SOURCE_ERROR"


@contextmanager
def explain_spark_errors() -> Iterator[None]:
    """Turns errors of Spark, of brokers and of the client within the block into CommandErrors."""
    try:
        with silence_query_loggers():
            yield
    except (KafkaError, Unreachable) as error:
        raise CommandError(f"sql: {getattr(error, 'message', '') or error}") from None
    except PySparkException as error:
        is_usage_error = isinstance(error, AnalysisException) and error.getCondition() != _SOURCE
        raise CommandError(f"sql: {find_reason(str(error))}", USAGE_ERROR if is_usage_error else FAILURE) from None
    except Py4JError:
        raise CommandError("sql: Spark has ended") from None


def find_reason(text: str) -> str:
    """The message of the last Python error in the text, or else its first line without Spark's error codes."""
    _, traceback, after = text.rpartition(_TRACEBACK)
    if traceback:
        raised = (line for line in after.splitlines()[1:] if line.strip() and not line[0].isspace())
        return _RAISED.sub("", next(raised, "no reason is given")).strip()
    line = next((line.strip() for line in text.splitlines() if line.strip()), "no reason is given")
    return _STATE.sub("", _CONDITION.sub("", line)).rstrip(".;")
