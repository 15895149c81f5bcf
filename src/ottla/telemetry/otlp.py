"""OpenTelemetry's MetricsData (protobuf), as far as Kafka's clients use it: gauges, sums and histograms.

A message is a row of fields. A field begins with a varint, of which the low three bits are the wire type (0 varint,
1 eight bytes, 2 a length and so many bytes, 5 four bytes) and the others the number. Unknown fields are skipped.

    MetricsData      1 ResourceMetrics*
    ResourceMetrics  2 ScopeMetrics*
    ScopeMetrics     2 Metric*
    Metric           1 name, 5 Gauge, 7 Sum, 9 Histogram; each of these three: 1 data points*, 2 temporality
    NumberDataPoint  7 KeyValue*, 4 double, 6 sfixed64
    HistogramPoint   9 KeyValue*, 4 count as fixed64, 5 sum as double
    KeyValue         1 key, 2 AnyValue: 1 string, 2 bool, 3 int, 4 double
"""

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

VARINT, EIGHT_BYTES, BYTES, FOUR_BYTES = 0, 1, 2, 5
DELTA = 1
"""The temporality of a value that counts from the last push on. Otherwise it counts from the start of the client."""

POINTS_MAX = 10_000
ATTRIBUTES_MAX = 20
_VARINT_BYTES_MAX = 10

_DOUBLE = Struct("<d")
_INT64 = Struct("<q")
_UINT64 = Struct("<Q")

Field = tuple[int, int, int | memoryview]
"""Number, wire type, and a number or bytes."""


class MalformedMetrics(ValueError):
    """These bytes are no metrics."""


class Point(NamedTuple):
    """One value of a metric."""

    name: str
    attributes: tuple[tuple[str, str], ...]
    value: float
    is_sum: bool
    is_delta: bool


def decode_metrics(data: bytes | bytearray | memoryview) -> list[Point]:
    """All values. MalformedMetrics if the bytes are not MetricsData, or are too many values."""
    points: list[Point] = []
    for resource in _read_messages(memoryview(data), 1):
        for scope in _read_messages(resource, 2):
            for metric in _read_messages(scope, 2):
                points.extend(_read_metric(metric))
                if len(points) > POINTS_MAX:
                    raise MalformedMetrics(f"more than {POINTS_MAX} values")
    return points


def _read_metric(metric: memoryview) -> Iterator[Point]:
    name = ""
    for number, _, value in _read_fields(metric):
        if number == 1 and isinstance(value, memoryview):
            name = _read_text(value)
    for number, _, value in _read_fields(metric):
        if not isinstance(value, memoryview):
            continue
        if number in (5, 7):
            is_delta = _is_delta(value)
            for point in _read_messages(value, 1):
                yield _read_number(name, point, is_sum=number == 7, is_delta=is_delta)
        elif number == 9:
            is_delta = _is_delta(value)
            for point in _read_messages(value, 1):
                yield from _read_histogram(name, point, is_delta)


def _is_delta(data: memoryview) -> bool:
    return any(number == 2 and value == DELTA for number, _, value in _read_fields(data))


def _read_number(name: str, point: memoryview, *, is_sum: bool, is_delta: bool) -> Point:
    value, attributes = 0.0, []
    for number, wire, content in _read_fields(point):
        if number == 7 and isinstance(content, memoryview):
            attributes.append(_read_attribute(content))
        elif number == 4 and wire == EIGHT_BYTES and isinstance(content, memoryview):
            (value,) = _DOUBLE.unpack(content)
        elif number == 6 and wire == EIGHT_BYTES and isinstance(content, memoryview):
            (value,) = _INT64.unpack(content)
    return Point(name, _sort(attributes), value, is_sum, is_delta)


def _read_histogram(name: str, point: memoryview, is_delta: bool) -> Iterator[Point]:
    count, total, attributes = 0, 0.0, []
    for number, wire, content in _read_fields(point):
        if number == 9 and isinstance(content, memoryview):
            attributes.append(_read_attribute(content))
        elif number == 4 and wire == EIGHT_BYTES and isinstance(content, memoryview):
            (count,) = _UINT64.unpack(content)
        elif number == 5 and wire == EIGHT_BYTES and isinstance(content, memoryview):
            (total,) = _DOUBLE.unpack(content)
    for suffix, value in ((".count", float(count)), (".sum", total)):
        yield Point(name + suffix, _sort(attributes), value, is_sum=True, is_delta=is_delta)


def _sort(attributes: list[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    if len(attributes) > ATTRIBUTES_MAX:
        raise MalformedMetrics(f"more than {ATTRIBUTES_MAX} attributes")
    return tuple(sorted(attributes))


def _read_attribute(data: memoryview) -> tuple[str, str]:
    key = value = ""
    for number, _, content in _read_fields(data):
        if isinstance(content, memoryview):
            if number == 1:
                key = _read_text(content)
            elif number == 2:
                value = _read_any(content)
    return key, value


def _read_any(data: memoryview) -> str:
    for number, wire, content in _read_fields(data):
        if isinstance(content, int):
            return str(bool(content)).lower() if number == 2 else str(content)
        if number == 1 and wire == BYTES:
            return _read_text(content)
        if number == 4 and wire == EIGHT_BYTES:
            return str(_DOUBLE.unpack(content)[0])
    return ""


def _read_text(data: memoryview) -> str:
    return bytes(data).decode(errors="replace")


def _read_messages(data: memoryview, wanted: int) -> Iterator[memoryview]:
    for number, _, value in _read_fields(data):
        if number == wanted and isinstance(value, memoryview):
            yield value


def _read_fields(data: memoryview) -> Iterator[Field]:
    position, size = 0, len(data)
    while position < size:
        tag, position = _read_varint(data, position)
        number, wire = tag >> 3, tag & 7
        if wire == VARINT:
            value, position = _read_varint(data, position)
            yield number, wire, value
            continue
        if wire == BYTES:
            length, position = _read_varint(data, position)
        elif wire in (EIGHT_BYTES, FOUR_BYTES):
            length = 8 if wire == EIGHT_BYTES else 4
        else:
            raise MalformedMetrics(f"there is no wire type {wire}")
        if length > size - position:
            raise MalformedMetrics("a field is cut off")
        yield number, wire, data[position : position + length]
        position += length


def _read_varint(data: memoryview, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 7 * _VARINT_BYTES_MAX, 7):
        if position >= len(data):
            raise MalformedMetrics("a number is cut off")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise MalformedMetrics("a number has more than 64 bits")
