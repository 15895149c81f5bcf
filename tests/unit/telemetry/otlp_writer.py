"""Writes OpenTelemetry's MetricsData, for tests."""

from struct import pack

GAUGE, SUM, HISTOGRAM = 5, 7, 9


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def field(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(data)) + data


def attribute(key: str, value: str) -> bytes:
    return field(1, key.encode()) + field(2, field(1, value.encode()))


def number_point(value: float, **attributes: str) -> bytes:
    content = varint(4 << 3 | 1) + pack("<d", value) if isinstance(value, float) else b"\x31" + pack("<q", value)
    return content + b"".join(field(7, attribute(key, each)) for key, each in attributes.items())


def histogram_point(count: int, total: float) -> bytes:
    return varint(4 << 3 | 1) + pack("<Q", count) + varint(5 << 3 | 1) + pack("<d", total)


def metric(name: str, kind: int, *points: bytes, temporality: int = 1) -> bytes:
    data = b"".join(field(1, point) for point in points)
    if kind != GAUGE:
        data += varint(2 << 3) + varint(temporality)
    return field(1, name.encode()) + field(kind, data)


def metrics_data(*metrics: bytes) -> bytes:
    return field(1, field(2, b"".join(field(2, each) for each in metrics)))
