"""Spark's errors in one line each: what is wrong, without where in Java and Python it was noticed."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import AnalysisException, PySparkException

from ottla.cli.command_error import FAILURE, USAGE_ERROR, CommandError
from ottla.client.connection import Unreachable
from ottla.errors import KafkaError
from ottla.spark.topic_tables import silence_query_loggers

_TRACEBACK = "Traceback (most recent call last)"
_RAISED = re.compile(r"^[\w.]+: ")
_CONDITION = re.compile(r"^\[[A-Z_.0-9]+\] ")
_STATE = re.compile(r"\s*SQLSTATE: \w{5}.*$")
_SOURCE = "PYTHON_DATA_SOURCE_ERROR"


@contextmanager
def one_line() -> Iterator[None]:
    """What goes wrong within becomes a refusal."""
    try:
        with silence_query_loggers():
            yield
    except (KafkaError, Unreachable) as error:
        raise CommandError(f"sql: {getattr(error, 'message', '') or error}") from None
    except PySparkException as error:
        asked_wrongly = isinstance(error, AnalysisException) and error.getCondition() != _SOURCE
        raise CommandError(f"sql: {reason(str(error))}", USAGE_ERROR if asked_wrongly else FAILURE) from None
    except Py4JError:
        raise CommandError("sql: Spark has ended") from None


def reason(text: str) -> str:
    """The message of the Python error in it, if there is one; else the first line, without Spark's codes."""
    _, traceback, after = text.rpartition(_TRACEBACK)
    if traceback:
        raised = (line for line in after.splitlines()[1:] if line.strip() and not line[0].isspace())
        return _RAISED.sub("", next(raised, "no reason is given")).strip()
    line = next((line.strip() for line in text.splitlines() if line.strip()), "no reason is given")
    return _STATE.sub("", _CONDITION.sub("", line)).rstrip(".;")
