"""What a failure means for the task: try again, start anew, or wait for somebody."""

import traceback
from typing import Final

from ottla.client.client import RETRIABLE
from ottla.client.connection import NotAuthenticated, Unreachable
from ottla.client.fetching import DataLoss
from ottla.connect.errors import ConnectError, RetriableError
from ottla.connect.running.work import FAILED, FENCED, RETRY, Failure
from ottla.errors import ErrorCode, KafkaError

TRACE_LINES_MAX: Final = 40

_FENCING: Final = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.UNKNOWN_PRODUCER_ID,
    }
)
"""Somebody else has ended the transaction or taken the transactional id."""


def explain_failure(error: BaseException) -> Failure:
    """The kind of a failure and its trace, whose first line is the message of a failure that we know."""
    match error:
        case DataLoss():
            return Failure(RETRY, _one_line(str(error)))  # the loop looks where the log begins and ends
        case NotAuthenticated():
            return Failure(FAILED, _one_line(str(error)))
        case KafkaError() if error.code in _FENCING:
            return Failure(FENCED, _one_line(str(error)))
        case KafkaError() if error.code in RETRIABLE:
            return Failure(RETRY, _one_line(str(error)))
        case RetriableError() | Unreachable():
            return Failure(RETRY, _one_line(str(error)))
        case ConnectError() | KafkaError():
            return Failure(FAILED, str(error))
    lines = "".join(traceback.format_exception(error)).splitlines()
    return Failure(FAILED, "\n".join([_one_line(f"{type(error).__name__}: {error}"), *lines[-TRACE_LINES_MAX:]]))


def _one_line(text: str) -> str:
    return " ".join(text.split())
