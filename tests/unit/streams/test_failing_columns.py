"""Rows for which a Column fails, in the test driver: they are handled as `on_error` says, as in a running app."""

from typing import TYPE_CHECKING, Any

import pytest

from ottla.streams import App, StreamsError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TEXTS = [{"value": text} for text in ("1", "x", "2")]


def make_app(**options: Any) -> App:
    app = App("casts", **options)
    app.stream("texts", value="string").select("cast(value as long) as amount").to("amounts")
    return app


def test_the_first_failing_row_ends_the_app_with_one_line(spark: "SparkSession") -> None:
    reason = r"^select-1: offset 1 of texts-0: \[CAST_INVALID_INPUT\] The value 'x'"
    with make_app().test(partitions=1) as test, pytest.raises(StreamsError, match=reason) as refusal:
        test.feed("texts", TEXTS)
    assert "\n" not in str(refusal.value)


def test_failing_rows_are_skipped_however_the_input_is_cut(spark: "SparkSession") -> None:
    with make_app(on_error="skip").test(partitions=2, split=5) as test:
        test.feed("texts", TEXTS)
        assert sorted(each["value"]["amount"] for each in test.read("amounts")) == [1, 2]
        assert test.read("casts-dead-letters") == []


def test_failing_rows_become_dead_letters(spark: "SparkSession") -> None:
    with make_app(on_error="dead-letter").test(partitions=2) as test:
        test.feed("texts", TEXTS, partition=1)
        assert [each["value"]["amount"] for each in test.read("amounts")] == [1, 2]
        (letter,) = test.read("casts-dead-letters")
    assert letter["value"] == b'{"key":null,"value":"x"}'
    headers = dict(letter["headers"])
    assert (headers["__connect.errors.partition"], headers["__connect.errors.offset"]) == (b"1", b"1")
    assert b"CAST_INVALID_INPUT" in headers["__connect.errors.exception.message"]
