"""Counters, and the text format of Prometheus, checked with a strict parser."""

from bisect import bisect_left
from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.observability.metrics import (
    BOUNDS_MS,
    BOUNDS_S,
    Family,
    Histogram,
    RequestMeter,
    RequestMeters,
    TopicMeter,
    TopicMeters,
    format_family,
    format_number,
)
from tests.exposition import Exposition, FormatError

GAUGE = Family("depth", "gauge", "How deep.", ("place", "time"))


def test_a_family_is_head_and_samples() -> None:
    # This text is compared literally. All other tests use the parser.
    text = "".join(format_family(GAUGE, [(("sea", "now"), 3), (("lake", ""), 0.5)]))
    assert text == (
        '# HELP depth How deep.\n# TYPE depth gauge\ndepth{place="sea",time="now"} 3\ndepth{place="lake"} 0.5\n'
    )


def test_the_parts_of_a_requests_time_add_up() -> None:
    # Two requests are answered at once. One waits for its handler, in it, and then for something else.
    meter = RequestMeter("Fetch", 1)
    for seconds, waited in ((0.0001, None), (0.003, None), (0.7, (0.04, 0.002))):
        meter.by_version[1][bisect_left(BOUNDS_S, seconds)] += 1
        meter.seconds += seconds
        if waited is not None:
            meter.waits.count_wait(seconds, *waited)
    parts = (meter.queue_times(), meter.local_times(), meter.remote_times())
    assert sum(part.sum for part in parts) == pytest.approx(meter.durations().sum)
    assert all(sum(part.counts) == 3 for part in parts)
    slots = [[bound for bound, count in zip(BOUNDS_MS, part.counts, strict=False) if count] for part in parts]
    assert slots == [[0.1, 50], [0.1, 2.5, 5], [0.1, 1000]]


def test_a_family_without_series_is_left_out() -> None:
    assert list(format_family(GAUGE, [])) == []


@given(st.text(), st.text(alphabet='\\"\n{},= a'))
def test_any_label_value_can_be_parsed_again(one: str, other: str) -> None:
    # Quotes, backslashes, line feeds, braces: no value can end its line or be taken for something else.
    text = "".join(format_family(GAUGE, [((one, other), 1)]))
    assert len(text.split("\n")) == 4
    if "\r" not in text:
        expected = {name: value for name, value in (("place", one), ("time", other)) if value}
        assert Exposition(text).value("depth", **expected) == 1


def test_help_is_escaped() -> None:
    family = Family("x", "gauge", 'a\nb\\c "d"')
    assert family.head() == '# HELP x a\\nb\\\\c "d"\n# TYPE x gauge\n'


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (2**62, str(2**62)),
        (True, "1"),
        (1.0, "1"),
        (0.25, "0.25"),
        (1e-7, "1e-07"),
        (1e18, "1e+18"),
        (inf, "+Inf"),
        (-inf, "-Inf"),
        (nan, "NaN"),
    ],
)
def test_numbers_are_written_as_go_reads_them(value: float, text: str) -> None:
    assert format_number(value) == text


def test_a_histogram_adds_up_its_buckets() -> None:
    # A bucket counts all values up to its bound, including those of smaller buckets.
    family = Family("time", "histogram", "How long.", ("who",))
    text = "".join(format_family(family, [(("me",), Histogram((1, 2.5), (3, 0, 2), 10.25))]))
    read = Exposition(text)
    assert [read.value("time_bucket", who="me", le=bound) for bound in ("1", "2.5", "+Inf")] == [3, 3, 5]
    assert (read.value("time_sum", who="me"), read.value("time_count", who="me")) == (10.25, 5)


def test_a_request_meter_sums_its_versions() -> None:
    # A value on a bound belongs to that bound; one above all of them to the last bucket.
    meter = RequestMeter("Fetch", 3)
    for version, seconds in ((0, BOUNDS_S[0]), (3, BOUNDS_S[0] * 1.01), (3, 99.0)):
        meter.by_version[version][bisect_left(BOUNDS_S, seconds)] += 1
        meter.seconds += seconds
    durations = meter.durations()
    assert list(durations.counts) == [1, 1, *[0] * (len(BOUNDS_MS) - 2), 1]
    assert durations.sum == pytest.approx(99_000.201)
    assert durations.bounds is BOUNDS_MS


def test_errors_are_counted_by_api_and_code() -> None:
    meters = RequestMeters()
    for code in (3, 3, 7):
        meters.count_error(0, code)
    assert meters.errors == {(0, 3): 2, (0, 7): 1}


def test_a_meter_adds_every_number() -> None:
    # A new counter that `add` forgets would be lost when its topic is deleted.
    one, other = TopicMeter(), TopicMeter()
    for place, name in enumerate(TopicMeter.__slots__, 1):
        setattr(other, name, place)
    one.add(other)
    one.add(other)
    assert [getattr(one, name) for name in TopicMeter.__slots__] == [
        2 * place for place in range(1, len(TopicMeter.__slots__) + 1)
    ]


def test_counts_of_a_deleted_topic_are_kept_and_a_new_one_begins_at_zero() -> None:
    meters = TopicMeters()
    meters.of("orders").bytes_in += 10
    assert meters.of("orders").bytes_in == 10
    meters.forget("orders")
    meters.forget("orders")
    assert (meters.elsewhere.bytes_in, meters.of("orders").bytes_in) == (10, 0)


@pytest.mark.parametrize(
    "text",
    [
        "x 1\n",
        "# HELP x a\n# TYPE x gauge\nx 1",
        "# HELP x a\n# TYPE x gauge\n",
        "# HELP x a\n# TYPE y gauge\nx 1\n",
        "# TYPE x gauge\nx 1\n",
        "# HELP x a\n# TYPE x gauge\nx 1\nx 2\n",
        "# HELP x a\n# TYPE x gauge\nx one\n",
        '# HELP x a\n# TYPE x gauge\nx{a="1",a="2"} 1\n',
        '# HELP x a\n# TYPE x gauge\nx{a="b"c"} 1\n',
        "# HELP x a\n# TYPE x gauge\nx{} 1\n",
        "# HELP x a\n# TYPE x counter\nx 1\n",
        '# HELP x a\n# TYPE x histogram\nx_bucket{le="1"} 1\nx_sum 1\nx_count 1\n',
        '# HELP x a\n# TYPE x histogram\nx_bucket{le="1"} 2\nx_bucket{le="+Inf"} 1\nx_sum 1\nx_count 1\n',
        '# HELP x a\n# TYPE x histogram\nx_bucket{le="+Inf"} 1\nx_sum 1\nx_count 2\n',
    ],
)
def test_the_reader_is_strict(text: str) -> None:
    with pytest.raises((FormatError, KeyError)):
        Exposition(text)
