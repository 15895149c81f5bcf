"""What becomes of a record that cannot be converted, transformed or written: the only place that decides it.

`errors.tolerance`, the retries of an operation, log lines and dead letters are Kafka Connect's, and so are the names of
stages, counters and headers.
"""

import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeVar

from ottla.client.backoff import Backoff
from ottla.client.client import Client
from ottla.connect.errors import ConnectError, RetriableError
from ottla.connect.transforms.chain import TransformError

T = TypeVar("T")

KEY_CONVERTER: Final = "KEY_CONVERTER"
VALUE_CONVERTER: Final = "VALUE_CONVERTER"
HEADER_CONVERTER: Final = "HEADER_CONVERTER"
TRANSFORMATION: Final = "TRANSFORMATION"
TASK_PUT: Final = "TASK_PUT"

RETRY_PAUSE_S: Final = 0.3
"""The first pause between two tries of an operation, as in Kafka Connect."""
LOG_LINES_MAX: Final = 100
"""Log lines of one batch; the records beyond are counted only."""
FOREVER_S: Final = 3600.0 * 24 * 365

_HEADER: Final = "__connect.errors."


@dataclass(frozen=True)
class ErrorPolicy:
    """The settings `errors.*` of a connector."""

    is_tolerant: bool = False
    retry_timeout_ms: int = 0
    """-1: for ever."""
    retry_delay_max_ms: int = 60_000
    log_errors: bool = False
    log_messages: bool = False
    dead_letter_topic: str = ""
    dead_letter_replication: int = 3
    with_context: bool = False

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> "ErrorPolicy":
        """From parsed settings."""
        return cls(
            config["errors.tolerance"] == "all",
            config["errors.retry.timeout"],
            config["errors.retry.delay.max.ms"],
            config["errors.log.enable"],
            config["errors.log.include.messages"],
            config.get("errors.deadletterqueue.topic.name", ""),
            config.get("errors.deadletterqueue.topic.replication.factor", 3),
            config.get("errors.deadletterqueue.context.headers.enable", False),
        )


class Original(NamedTuple):
    """The record of a topic that a sink's record was made of."""

    topic: str
    partition: int
    offset: int
    timestamp: int | None
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} at offset {self.offset}"


class DeadLetter(NamedTuple):
    offset: int
    """Where the record was, within the range that is being written."""
    key: bytes | None
    value: bytes | None
    timestamp: int | None
    headers: Sequence[tuple[str, bytes | None]]


class RecordFailure(Exception):
    """An operation on one record has failed. `ErrorHandler.handle` decides what follows."""

    def __init__(self, stage: str, operator: str, cause: Exception) -> None:
        super().__init__(str(cause))
        self.stage = stage
        self.operator = operator
        """The class that has failed. Of a chain of transformations, the one that did."""
        if isinstance(cause, TransformError):
            self.operator = cause.class_name
        self.cause = cause


class ErrorHandler:
    """Handles the failures of one batch of one task."""

    def __init__(self, policy: ErrorPolicy, connector: str, task: int, client: Client) -> None:
        self._policy = policy
        self._connector = connector
        self._task = task
        self._client = client
        self.counts: Counter[str] = Counter()
        self.log_lines: list[str] = []
        self.dead_letters: list[DeadLetter] = []

    def attempt(self, stage: str, operator: object, operation: Callable[..., T], *arguments: Any) -> T:
        """The result of an operation on one record. Raises RecordFailure."""
        try:
            return operation(*arguments)
        except RetriableError as error:
            return self._retry(error, stage, operator, operation, *arguments)
        except Exception as error:
            raise RecordFailure(stage, _name_class(operator), error) from error

    def _retry(self, error: Exception, stage: str, operator: object, operation: Callable[..., T], *arguments: Any) -> T:
        limit_ms = self._policy.retry_timeout_ms
        limit_s = FOREVER_S if limit_ms < 0 else limit_ms / 1000
        longest_s = max(self._policy.retry_delay_max_ms / 1000, RETRY_PAUSE_S)
        backoff = Backoff(limit_s, self._client.random, pause_s=RETRY_PAUSE_S, pause_max_s=longest_s)
        while backoff.pause():
            self.counts["total-retries"] += 1
            try:
                return operation(*arguments)
            except RetriableError as again:
                error = again
            except Exception as again:
                raise RecordFailure(stage, _name_class(operator), again) from again
        raise RecordFailure(stage, _name_class(operator), error) from error

    def handle(self, failure: RecordFailure, original: Original | None) -> None:
        """Leave the record out, with a log line and a dead letter if they are wanted. Raises ConnectError instead if
        failures are not tolerated. A source's record has no original."""
        policy = self._policy
        where = "" if original is None else f" of {original}"
        line = f"a record{where} failed at stage {failure.stage} in {failure.operator}: {_one_line(str(failure.cause))}"
        self.counts["total-record-failures"] += 1
        if not policy.is_tolerant:
            raise ConnectError(f"{line}; errors.tolerance=all would leave it out") from failure.cause
        self.counts["total-record-errors"] += 1
        self.counts["total-records-skipped"] += 1
        if policy.log_errors and len(self.log_lines) < LOG_LINES_MAX:
            self.counts["total-errors-logged"] += 1
            shown = f"; key {original.key!r}, value {original.value!r}" if policy.log_messages and original else ""
            self.log_lines.append(line + shown)
        if policy.dead_letter_topic and original is not None:
            context = self._describe(failure, original) if policy.with_context else ()
            headers = [*original.headers, *context]
            self.counts["deadletterqueue-produce-requests"] += 1
            self.dead_letters.append(
                DeadLetter(original.offset, original.key, original.value, original.timestamp, headers)
            )

    def _describe(self, failure: RecordFailure, original: Original) -> list[tuple[str, bytes | None]]:
        cause = failure.cause
        described = {
            "topic": original.topic,
            "partition": original.partition,
            "offset": original.offset,
            "connector.name": self._connector,
            "task.id": self._task,
            "stage": failure.stage,
            "class.name": failure.operator,
            "exception.class.name": _name_class(cause),
            "exception.message": str(cause),
            "exception.stacktrace": "".join(traceback.format_exception(cause)),
        }
        return [(_HEADER + name, str(value).encode()) for name, value in described.items()]


def _name_class(thing: object) -> str:
    return f"{type(thing).__module__}.{type(thing).__qualname__}"


def _one_line(text: str) -> str:
    return " ".join(text.split())
