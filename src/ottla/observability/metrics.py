"""What a broker counts while it works, and the text that Prometheus reads (exposition format 0.0.4).

Counting is for the hot path: a plain integer attribute that is increased, no lock, no lookup by label. Who wants the
numbers reads them (`ottla.observability`). Labels hold names that the broker gave or accepted (topics that exist, APIs,
error codes), never text that a client merely sent, so the number of series is bounded by what the cluster has.

    # HELP name what it means          backslash and line feed escaped
    # TYPE name counter
    name{label="value"} 12             quotes escaped as well; a label whose value is empty is left out
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

BOUNDS_MS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10000)
BOUNDS_S = tuple(bound / 1000 for bound in BOUNDS_MS)
"""Upper bounds of the buckets of durations: from a request answered at once to one that waited for the disk of a sick
machine. Long polls fall where their fetch.max.wait.ms is."""

COUNTER, GAUGE, HISTOGRAM = "counter", "gauge", "histogram"

Labels = tuple[str, ...]


# Counting


class RequestMeter:
    """The requests of one API: how many of each version took how long.

    `by_version[version][bucket]`, the buckets being those of BOUNDS_S and one above them. Whoever answers a request
    counts it there and adds to `seconds`; it does so itself, because a call would cost as much as all of the counting.
    """

    __slots__ = ("by_version", "request", "seconds")

    def __init__(self, request: str, last_version: int) -> None:
        self.request = request
        self.by_version = [[0] * (len(BOUNDS_S) + 1) for _ in range(last_version + 1)]
        self.seconds = 0.0

    def durations(self) -> "Histogram":
        """Of all versions, in milliseconds."""
        counts = [sum(buckets) for buckets in zip(*self.by_version, strict=True)]
        return Histogram(BOUNDS_MS, counts, self.seconds * 1000)


class RequestMeters:
    """All APIs of a broker, and the requests that were none of them."""

    def __init__(self) -> None:
        self.by_key: dict[int, RequestMeter] = {}
        self.errors: dict[tuple[int, int], int] = {}
        """API key and error code: how often an answer count_error it."""
        self.malformed = 0
        self.unsupported = 0

    def count_error(self, api_key: int, code: int) -> None:
        self.errors[api_key, code] = self.errors.get((api_key, code), 0) + 1


class DurationMeter:
    """How often something happened that is rarer than a request, and how long it took."""

    __slots__ = ("counts", "seconds")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_S) + 1)
        self.seconds = 0.0

    def took(self, seconds: float) -> None:
        self.counts[bisect_left(BOUNDS_S, seconds)] += 1
        self.seconds += seconds

    def durations(self) -> "Histogram":
        """In milliseconds."""
        return Histogram(BOUNDS_MS, self.counts, self.seconds * 1000)


class GroupMeter:
    """What the groups of a broker went through."""

    __slots__ = (
        "classic_rebalances",
        "consumer_rebalances",
        "epochs_raised",
        "offsets_committed",
        "offsets_deleted",
        "offsets_expired",
    )

    def __init__(self) -> None:
        self.offsets_committed = 0
        self.offsets_expired = 0
        self.offsets_deleted = 0
        self.epochs_raised = 0
        """Of consumer groups: each lets members move."""
        self.classic_rebalances = DurationMeter()
        """From the first that is asked to join again to the assignment."""
        self.consumer_rebalances = DurationMeter()
        """From a raised epoch until every member has come to it."""


class TransactionMeter:
    """How the transactions that a broker coordinates came to an end."""

    __slots__ = ("aborted", "committed", "fenced", "markers", "timed_out", "waiting_markers")

    def __init__(self) -> None:
        self.committed = 0
        self.aborted = 0
        self.timed_out = 0
        self.fenced = 0
        """Aborted because somebody else took over their transactional id."""
        self.markers = DurationMeter()
        """From the decision until it is known in every partition."""
        self.waiting_markers = 0
        """Partitions that could not be count_error, and are to be tried again."""


class TopicMeter:
    """What went in and out of one topic on this broker."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "failed_fetches",
        "failed_produces",
        "fetches",
        "messages_in",
        "produces",
    )

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


class Compacted(Protocol):
    """What a compaction tells of itself."""

    @property
    def bytes_read(self) -> int: ...

    @property
    def bytes_written(self) -> int: ...

    @property
    def records_read(self) -> int: ...

    @property
    def records_written(self) -> int: ...

    @property
    def map_used(self) -> float: ...


class CompactionMeter:
    """What the compaction of logs did, and how far it is behind."""

    __slots__ = (
        "bytes_read",
        "bytes_written",
        "dirtiest",
        "last_map_used",
        "last_recopied",
        "last_seconds",
        "looked_at_ms",
        "overdue_ms",
        "records_read",
        "records_written",
        "runs",
    )

    def __init__(self, now_ms: int) -> None:
        self.runs = 0
        self.bytes_read = 0
        self.bytes_written = 0
        self.records_read = 0
        self.records_written = 0
        self.last_recopied = 0.0
        self.last_map_used = 0.0
        self.last_seconds = 0.0
        self.dirtiest = 0.0
        self.overdue_ms = 0
        self.looked_at_ms = now_ms

    def looked(self, now_ms: int, dirtiest: float, overdue_ms: int) -> None:
        self.looked_at_ms, self.dirtiest, self.overdue_ms = now_ms, dirtiest, overdue_ms

    def compacted(self, compacted: Compacted, seconds: float) -> None:
        self.runs += 1
        self.bytes_read += compacted.bytes_read
        self.bytes_written += compacted.bytes_written
        self.records_read += compacted.records_read
        self.records_written += compacted.records_written
        self.last_recopied = compacted.bytes_written / compacted.bytes_read if compacted.bytes_read else 0.0
        self.last_map_used = compacted.map_used
        self.last_seconds = seconds


# Text


class Histogram(NamedTuple):
    """How many values are not above each bound; the last count is of those above them all."""

    bounds: Sequence[float]
    counts: Sequence[int]
    sum: float


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
        for bound, count in zip((*map(number_text, histogram.bounds), "+Inf"), histogram.counts, strict=True):
            total += count
            yield f"{self.name}_bucket{label_text(names, (*labels, bound))} {total}\n"
        own = label_text(self.labels, labels)
        yield f"{self.name}_sum{own} {number_text(histogram.sum)}\n"
        yield f"{self.name}_count{own} {total}\n"


Value = float | Histogram
Series = Iterable[tuple[Labels, Value]]
Reading = tuple[Family, Series]
"""A metric and what it is now."""

PAUSE_EVERY = 500
"""Things that are looked at in one go while metrics are read: then others have their turn."""


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
    pairs = [f'{name}="{value.translate(_VALUE_ESCAPES)}"' for name, value in zip(names, values, strict=True) if value]
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
