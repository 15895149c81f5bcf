"""The one exception that carries Kafka's codes to a client."""

from ottla.errors import MESSAGE_LENGTH_MAX, ErrorCode, KafkaError


def test_a_message_fits_into_any_answer() -> None:
    """A long quotation is cut in the middle: its beginning and the reason at the end stay."""
    error = KafkaError(ErrorCode.INVALID_CONFIG, f"unknown setting {'x' * 32767}; did you mean 'y'?")
    assert len(error.message) <= MESSAGE_LENGTH_MAX
    assert error.message.startswith("unknown setting xxx")
    assert error.message.endswith("xxx; did you mean 'y'?")
    assert "[...]" in str(error)


def test_a_short_message_stays_as_it_is() -> None:
    """A message up to the limit is not cut."""
    text = "x" * MESSAGE_LENGTH_MAX
    assert KafkaError(ErrorCode.INVALID_CONFIG, text).message == text
    assert str(KafkaError(ErrorCode.INVALID_CONFIG)) == "INVALID_CONFIG"
