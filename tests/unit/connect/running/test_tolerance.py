"""What becomes of a record that fails."""

import pytest

from ottla.client.client import Client
from ottla.connect.errors import ConnectError, RecordError, RetriableError
from ottla.connect.running.tolerance import (
    TRANSFORMATION,
    VALUE_CONVERTER,
    ErrorHandler,
    ErrorPolicy,
    Original,
    RecordFailure,
)
from ottla.connect.transforms.chain import TransformError

ORIGINAL = Original("t", 1, 17, 5_000, b"k", b"v", [("h", b"1")])


def make_handler(**policy: object) -> ErrorHandler:
    return ErrorHandler(ErrorPolicy(**policy), "name", 3, Client({"bootstrap.servers": "localhost:1"}))  # type: ignore[arg-type]


def fail_with(error: Exception) -> None:
    raise error


def catch(handler: ErrorHandler, error: Exception, stage: str = VALUE_CONVERTER) -> RecordFailure:
    with pytest.raises(RecordFailure) as caught:
        handler.attempt(stage, handler, fail_with, error)
    return caught.value


def test_without_tolerance_the_first_line_says_which_record() -> None:
    handler = make_handler()
    failure = catch(handler, RecordError("not\nwell"))
    with pytest.raises(
        ConnectError, match=r"^a record of t-1 at offset 17 failed at stage VALUE_CONVERTER in .*: not well;"
    ):
        handler.handle(failure, ORIGINAL)
    assert handler.counts == {"total-record-failures": 1}


def test_a_failed_transformation_is_named() -> None:
    failure = catch(make_handler(), TransformError("bad", "org.apache.kafka.connect.transforms.Cast$Value"))
    assert failure.operator == "org.apache.kafka.connect.transforms.Cast$Value"


def test_a_dead_letter_has_the_record_and_kafkas_headers() -> None:
    """The headers only if they are wanted; log lines too."""
    plain = make_handler(is_tolerant=True, dead_letter_topic="dead")
    plain.handle(catch(plain, ValueError("bad")), ORIGINAL)
    assert [tuple(each) for each in plain.dead_letters] == [(17, b"k", b"v", 5_000, [("h", b"1")])]
    assert plain.log_lines == []
    full = make_handler(
        is_tolerant=True, dead_letter_topic="dead", with_context=True, log_errors=True, log_messages=True
    )
    full.handle(catch(full, ValueError("bad"), TRANSFORMATION), ORIGINAL)
    headers = dict(full.dead_letters[0].headers)
    assert {
        name: headers[f"__connect.errors.{name}"] for name in ("topic", "partition", "offset", "stage", "task.id")
    } == {
        "topic": b"t",
        "partition": b"1",
        "offset": b"17",
        "stage": b"TRANSFORMATION",
        "task.id": b"3",
    }
    assert headers["__connect.errors.exception.class.name"] == b"builtins.ValueError"
    assert b"ValueError: bad" in (headers["__connect.errors.exception.stacktrace"] or b"")
    assert "key b'k', value b'v'" in full.log_lines[0]
    assert full.counts["deadletterqueue-produce-requests"] == 1


def test_an_operation_is_tried_again_while_errors_retry_timeout_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only after RetriableError, and not at all by default."""
    monkeypatch.setattr("ottla.connect.running.tolerance.RETRY_PAUSE_S", 0.001)
    answers = [RetriableError("busy"), RetriableError("busy"), None]

    def operation() -> str:
        error = answers.pop(0)
        if error is not None:
            raise error
        return "done"

    patient = make_handler(retry_timeout_ms=-1)
    assert patient.attempt(TRANSFORMATION, patient, operation) == "done"
    assert patient.counts["total-retries"] == 2
    hasty = make_handler()
    assert str(catch(hasty, RetriableError("busy")).cause) == "busy"
    assert not hasty.counts
