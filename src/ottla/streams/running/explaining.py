"""Failures of a task as one line, and whether a repetition can help."""

import traceback
from typing import Final

from ottla.client.client import UnknownTopic
from ottla.client.connection import Unreachable
from ottla.client.fetching import DataLoss
from ottla.errors import ErrorCode, KafkaError
from ottla.streams.errors import StreamsError
from ottla.streams.running.work import BROKEN, FENCED, REFUSED, STILL_RESTORING, Failure
from ottla.streams.state.client import StateRestoring, StateUnavailable
from ottla.streams.state.protocol import StateAhead

FENCING: Final = frozenset(
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

_HOPELESS: Final = frozenset(
    {
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_TRANSACTION_TIMEOUT,
    }
)


def explain_failure(error: Exception) -> Failure:
    if isinstance(error, KafkaError) and error.code in FENCING:
        return Failure(FENCED, str(error))
    if isinstance(error, StateRestoring):
        return Failure(STILL_RESTORING, str(error))
    if isinstance(error, StateUnavailable | StateAhead):
        return Failure(BROKEN, str(error))
    if isinstance(error, StreamsError | DataLoss | UnknownTopic):
        return Failure(REFUSED, _one_line(str(error)))
    if isinstance(error, KafkaError):
        return Failure(REFUSED if error.code in _HOPELESS else BROKEN, str(error))
    if isinstance(error, Unreachable | ConnectionError | TimeoutError):
        return Failure(BROKEN, _one_line(str(error)))
    place = traceback.extract_tb(error.__traceback__)[-1]
    return Failure(BROKEN, _one_line(f"{type(error).__name__}: {error} ({place.filename}:{place.lineno})"))


def _one_line(text: str) -> str:
    return " ".join(text.split())
