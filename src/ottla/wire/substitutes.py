"""Error codes that clients of an old version do not know, and the codes that are sent instead.

A code may be newer than the version of a request, and a client would take an unknown code for a fatal error. The
substitute makes the client do what the code demands: refresh its metadata, find its coordinator, try again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ottla.errors import ErrorCode
from ottla.wire.error_codes import get_finder
from ottla.wire.message import Message

_TABLE: Final = (
    # response, error, versions below this one, substitute
    ("ProduceResponse", ErrorCode.KAFKA_STORAGE_ERROR, 4, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ("FetchResponse", ErrorCode.KAFKA_STORAGE_ERROR, 6, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ("ListOffsetsResponse", ErrorCode.OFFSET_NOT_AVAILABLE, 5, ErrorCode.LEADER_NOT_AVAILABLE),
    ("MetadataResponse", ErrorCode.LISTENER_NOT_FOUND, 6, ErrorCode.LEADER_NOT_AVAILABLE),
    ("DeleteTopicsResponse", ErrorCode.TOPIC_DELETION_DISABLED, 3, ErrorCode.INVALID_REQUEST),
    ("InitProducerIdResponse", ErrorCode.PRODUCER_FENCED, 4, ErrorCode.INVALID_PRODUCER_EPOCH),
    ("AddPartitionsToTxnResponse", ErrorCode.PRODUCER_FENCED, 2, ErrorCode.INVALID_PRODUCER_EPOCH),
    ("AddOffsetsToTxnResponse", ErrorCode.PRODUCER_FENCED, 2, ErrorCode.INVALID_PRODUCER_EPOCH),
    ("EndTxnResponse", ErrorCode.PRODUCER_FENCED, 2, ErrorCode.INVALID_PRODUCER_EPOCH),
    ("TxnOffsetCommitResponse", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 2, ErrorCode.COORDINATOR_NOT_AVAILABLE),
)
_RULES: Final = {name: (error, below, substitute) for name, error, below, substitute in _TABLE}
assert len(_RULES) == len(_TABLE)  # at most one rule per response


def substitute(response_name: str, version: int, code: int) -> int:
    """The code to send. For hand-written codecs."""
    rule = _RULES.get(response_name)
    return rule[2] if rule is not None and code == rule[0] and version < rule[1] else code


def find_substitution(response_class: type[Message], version: int) -> Callable[[Message], None] | None:
    """The function that replaces the codes in such a response, at any depth; None if the version knows every code."""
    rule = _RULES.get(response_class.__name__)
    if rule is None or version >= rule[1]:
        return None
    error, _, replacement = rule
    find = get_finder(response_class)
    assert find is not None  # it has a rule, so it has error codes

    def apply(response: Message) -> None:
        if error in find(response):  # rarely
            _replace(response, error, replacement)

    return apply


def _replace(message: Message, error: ErrorCode, replacement: ErrorCode) -> None:
    for row in message.FIELDS:
        value = getattr(message, row[0])
        if row[0].endswith("error_code"):
            if value == error:
                setattr(message, row[0], replacement)
        elif isinstance(value, Message):
            _replace(value, error, replacement)
        elif isinstance(value, list):
            for element in value:
                if isinstance(element, Message):
                    _replace(element, error, replacement)
