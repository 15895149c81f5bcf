"""What a broker counts while it works, and the text that Prometheus reads (exposition format 0.0.4).

Counting is for the hot path: a plain integer attribute that is increased, no lock, no lookup by label. Who wants the
numbers reads them (`ottla.monitoring`). Labels hold names that the broker gave or accepted (topics that exist, APIs,
error codes), never text that a client merely sent, so the number of series is bounded by what the cluster has.

    # HELP name what it means          backslash and line feed escaped
    # TYPE name counter
    name{label="value"} 12             quotes escaped as well; a label whose value is empty is left out
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

BOUNDS_MS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0, 2500.0, 5000.0, 10000.0)
"""Upper bounds of a histogram's buckets: from a request answered at once to one that waited for the disk of a sick
machine. Long polls fall where their fetch.max.wait.ms is."""

COUNTER, GAUGE, HISTOGRAM = "counter", "gauge", "histogram"

Labels = tuple[str, ...]


# Counting


class Histogram:
    """How many values fell into which bucket, and their sum. A bucket holds its upper bound."""

    __slots__ = ("counts", "sum")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_MS) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(BOUNDS_MS, value)] += 1
        self.sum += value


class RequestMeter:
    """The requests of one API: how many of each version, how long they took, which errors their answers told."""

    __slots__ = ("by_version", "durations", "errors", "request")

    def __init__(self, request: str, last_version: int) -> None:
        self.request = request
        self.by_version = [0] * (last_version + 1)
        self.durations = Histogram()
        self.errors: dict[int, int] = {}

    def answered(self, version: int, duration_ms: float) -> None:
        self.by_version[version] += 1
        self.durations.observe(duration_ms)

    def told(self, codes: Iterable[int]) -> None:
        for code in codes:
            self.errors[code] = self.errors.get(code, 0) + 1


class RequestMeters:
    """All APIs of a broker, and the requests that were none of them."""

    def __init__(self) -> None:
        self.by_key: dict[int, RequestMeter] = {}
        self.malformed = 0
        self.unsupported = 0


class TopicMeter:
    """What went in and out of one topic on this broker."""

    __slots__ = (
        "bytes_in", "bytes_out", "failed_fetches", "failed_produces", "fetches", "messages_in", "produces",
    )  # fmt: skip

    def __init__(self) -> None:
        self.messages_in = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.produces = 0
        self.fetches = 0
        self.failed_produces = 0
        self.failed_fetches = 0

    def add(self, other: "TopicMeter") -> None:
        self.messages_in += other.messages_in
        self.bytes_in += other.bytes_in
        self.bytes_out += other.bytes_out
        self.produces += other.produces
        self.fetches += other.fetches
        self.failed_produces += other.failed_produces
        self.failed_fetches += other.failed_fetches


class TopicMeters:
    """One meter for each topic that has a partition here."""

    def __init__(self) -> None:
        self.by_topic: dict[str, TopicMeter] = {}
        self.elsewhere = TopicMeter()
        """Requests for topics that are not here, and all that topics counted before they were deleted."""

    def of(self, topic: str) -> TopicMeter:
        return self.by_topic.setdefault(topic, TopicMeter())

    def forget(self, topic: str) -> None:
        """The topic is gone; its numbers stay in the sum, which must never go back."""
        gone = self.by_topic.pop(topic, None)
        if gone is not None:
            self.elsewhere.add(gone)


# Text


class Family(NamedTuple):
    """A metric: its series differ in the values of its labels only."""

    name: str
    kind: str
    help: str
    labels: Labels = ()

    def head(self) -> str:
        return f"# HELP {self.name} {escaped_help(self.help)}\n# TYPE {self.name} {self.kind}\n"

    def line(self, value: float, labels: Sequence[str] = ()) -> str:
        return f"{self.name}{label_text(self.labels, labels)} {number_text(value)}\n"

    def histogram_lines(self, histogram: Histogram, labels: Sequence[str] = ()) -> Iterator[str]:
        names = (*self.labels, "le")
        total = 0
        for bound, count in zip((*map(number_text, BOUNDS_MS), "+Inf"), histogram.counts, strict=True):
            total += count
            yield f"{self.name}_bucket{label_text(names, (*labels, bound))} {total}\n"
        own = label_text(self.labels, labels)
        yield f"{self.name}_sum{own} {number_text(histogram.sum)}\n"
        yield f"{self.name}_count{own} {total}\n"


Value = float | Histogram
Series = Iterable[tuple[Labels, Value]]


def family_lines(family: Family, series: Series) -> Iterator[str]:
    """The whole of a family, or nothing if it has no series: a head alone would say nothing."""
    begun = False
    for labels, value in series:
        if not begun:
            begun = True
            yield family.head()
        if isinstance(value, Histogram):
            yield from family.histogram_lines(value, labels)
        else:
            yield family.line(value, labels)


_HELP_ESCAPES: Mapping[int, str] = {ord("\\"): r"\\", ord("\n"): r"\n"}
_VALUE_ESCAPES: Mapping[int, str] = {**_HELP_ESCAPES, ord('"'): r"\""}


def escaped_help(text: str) -> str:
    return text.translate(_HELP_ESCAPES)


def label_text(names: Sequence[str], values: Sequence[str]) -> str:
    pairs = [
        f'{name}="{value.translate(_VALUE_ESCAPES)}"' for name, value in zip(names, values, strict=True) if value
    ]
    return f"{{{','.join(pairs)}}}" if pairs else ""


def number_text(value: float) -> str:
    """Whole numbers without a point, so that offsets above 2^53 stay exact as far as the reader's floats go."""
    if isinstance(value, int):
        return str(int(value))
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "+Inf" if value > 0 else "-Inf"
    return repr(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
