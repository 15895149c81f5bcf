"""Where `ottla consume` begins and ends in each partition."""

import argparse
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, cast

import pytest
from confluent_kafka.admin import OffsetSpec

from ottla.cli.client import CommandClient
from ottla.cli.command_error import CommandError
from ottla.cli.offset_ranges import OffsetRange, ranges_of, time_ms

NOW = 1_700_000_000_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10m", NOW - 600_000),
        ("5s", NOW - 5_000),
        ("250ms", NOW - 250),
        ("2h", NOW - 7_200_000),
        ("8d", NOW - 8 * 86_400_000),
        ("1234567890123", 1_234_567_890_123),
        ("2023-11-14T22:13:20Z", NOW),
        ("2023-11-14T23:13:20.5+01:00", NOW + 500),
        ("2023-11-14", int(datetime(2023, 11, 14).timestamp() * 1000)),
    ],
)
def test_a_time_has_several_formats(text: str, expected: int) -> None:
    assert time_ms(text, NOW) == expected


@pytest.mark.parametrize("text", ["yesterday", "", "10 m", "-5", "10w", "2023-13-01", "²"])
def test_an_invalid_time_is_refused(text: str) -> None:
    with pytest.raises(CommandError, match="is not a time such as"):
        time_ms(text, NOW)


class OneTopic:
    """A topic whose partition 0 has the offsets 10 to 99, one a second since the epoch. Partition 1 is empty and begins
    at 5."""

    def list_offsets(
        self, topic: str, partitions: Iterable[int], spec: Any, *, uncommitted: bool = False
    ) -> dict[int, int]:
        if spec._value == OffsetSpec.earliest()._value:
            found = {0: 10, 1: 5}
        elif spec._value == OffsetSpec.latest()._value:
            found = {0: 100, 1: 5}
        else:
            second = -(-spec._value // 1000)
            found = {0: max(second, 10) if second < 100 else -1, 1: -1}
        return {partition: found[partition] for partition in partitions}


def ranges(last: int | None = None, **given: Any) -> list[OffsetRange]:
    options = argparse.Namespace(
        **{"since": None, "until": None, "offset": None, "isolation": "read_committed"} | given
    )
    found = ranges_of(cast(CommandClient, OneTopic()), "orders", [0, 1], options, NOW, last)
    return [found[0], found[1]]


def test_without_options_everything_is_read() -> None:
    assert ranges() == [(10, 100), (5, 5)]


@pytest.mark.parametrize(("offset", "start"), [(0, 10), (42, 42), (100, 100), (1000, 100)])
def test_an_offset_is_limited_to_the_log(offset: int, start: int) -> None:
    assert ranges(offset=offset) == [(start, 100), (5, 5)]


@pytest.mark.parametrize(("last", "start"), [(0, 100), (7, 93), (1000, 10)])
def test_the_newest_records_of_each_partition(last: int, start: int) -> None:
    assert ranges(last=last) == [(start, 100), (5, 5)]


@pytest.mark.parametrize(("since", "start"), [("1970-01-01T00:00:42Z", 42), ("3000", 10), ("2020-01-01", 100)])
def test_reading_begins_at_a_time(since: str, start: int) -> None:
    # A time after every record means the end: nothing is read, unless the command follows the topic.
    assert ranges(since=since) == [(start, 100), (5, 5)]


@pytest.mark.parametrize(("until", "end"), [("42000", 42), ("2020-01-01", 100)])
def test_reading_ends_before_a_time(until: str, end: int) -> None:
    assert ranges(until=until) == [(10, end), (5, 5)]


def test_the_newest_records_before_a_time() -> None:
    assert ranges(last=2, until="42000") == [(40, 42), (5, 5)]


def test_times_are_in_utc_only_if_they_say_so() -> None:
    local = time_ms("2023-06-01T12:00:00", NOW)
    assert datetime.fromtimestamp(local / 1000).hour == 12
    assert datetime.fromtimestamp(time_ms("2023-06-01T12:00:00Z", NOW) / 1000, UTC).hour == 12
