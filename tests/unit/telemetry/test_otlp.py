"""OpenTelemetry's format: every kind of value that clients send, and bytes that are none."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.telemetry.otlp import POINTS_MAX, MalformedMetrics, Point, decode_metrics
from tests.samples import sample_size
from tests.unit.telemetry.otlp_writer import (
    GAUGE,
    HISTOGRAM,
    SUM,
    field,
    histogram_point,
    metric,
    metrics_data,
    number_point,
)

WHOLE = metrics_data(
    metric("queue", GAUGE, number_point(1.5, node="1", topic="a"), number_point(-3)),
    metric("bytes", SUM, number_point(7)),
    metric("total", SUM, number_point(8.0), temporality=2),
    metric("latency", HISTOGRAM, histogram_point(3, 4.5)),
)


def test_every_kind_of_value() -> None:
    assert decode_metrics(WHOLE) == [
        Point("queue", (("node", "1"), ("topic", "a")), 1.5, False, False),
        Point("queue", (), -3, False, False),
        Point("bytes", (), 7, True, True),
        Point("total", (), 8.0, True, False),
        Point("latency.count", (), 3.0, True, True),
        Point("latency.sum", (), 4.5, True, True),
    ]


def test_a_message_that_is_cut_off_is_refused_or_shorter() -> None:
    # At every byte. Nothing but MalformedMetrics is raised.
    for end in range(len(WHOLE)):
        try:
            decode_metrics(WHOLE[:end])
        except MalformedMetrics:
            continue
        assert end == 0


@settings(max_examples=sample_size(50, 10_000))
@given(st.binary(max_size=200))
def test_any_bytes_are_metrics_or_refused(data: bytes) -> None:
    try:
        decode_metrics(data)
        decode_metrics(metrics_data(data))
    except MalformedMetrics:
        pass


@pytest.mark.parametrize(
    "data",
    [
        metrics_data(metric("many", GAUGE, *[number_point(1)] * (POINTS_MAX + 1))),
        metrics_data(metric("wide", GAUGE, number_point(1, **{f"a{number}": "" for number in range(21)}))),
        b"\xff" * 11,
        field(1, b"\x0b"),
    ],
    ids=["values", "attributes", "number", "wire type"],
)
def test_too_much_is_refused(data: bytes) -> None:
    with pytest.raises(MalformedMetrics):
        decode_metrics(data)
