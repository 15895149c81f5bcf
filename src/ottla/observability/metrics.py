"""The counters of a broker, and the text format that Prometheus reads (exposition format 0.0.4).

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
"""Upper bounds of the buckets for durations: from a request that is answered at once to one that waited for a failing
disk. Long polls are in the bucket of their fetch.max.wait.ms."""

COUNTER, GAUGE, HISTOGRAM = "counter", "gauge", "histogram"

Labels = tuple[str, ...]


# Counting


class WaitMeter:
    """Where the time went of those requests of an API that were not answered at once.

    A request that is answered at once does not wait: all of its time is that of its handler, and nothing of it is
    counted here. `total` has the time that `RequestMeter` counts for the same requests.
    """

    __slots__ = ("local", "queued", "remote", "total", "waiting")

    def __init__(self) -> None:
        self.total = DurationMeter()
        self.queued = DurationMeter()
        """Time from the arrival of a request until its handler ran."""
        self.local = DurationMeter()
        """Time in the handler, until it began to wait."""
        self.remote = DurationMeter()
        """Time of waiting for records, replicas, members, other brokers or a thread, until the answer."""
        self.waiting = 0
        """Requests that are waiting now."""

    def count_wait(self, total_s: float, queued_s: float, local_s: float) -> None:
        self.total.count_duration(total_s)
        self.queued.count_duration(queued_s)
        self.local.count_duration(local_s)
        self.remote.count_duration(max(total_s - queued_s - local_s, 0.0))


class RequestMeter:
    """Counters for one API: how many requests of each version took how long.

    `by_version[version][bucket]` has the counts. The buckets are those of BOUNDS_S and one above them. The code that
    answers a request increments the count and `seconds` itself, because a call would take as long as the counting.
    """

    __slots__ = ("by_version", "request", "seconds", "waits")

    def __init__(self, request: str, last_version: int) -> None:
        self.request = request
        self.waits = WaitMeter()
        self.by_version = [[0] * (len(BOUNDS_S) + 1) for _ in range(last_version + 1)]
        self.seconds = 0.0

    def durations(self) -> "Histogram":
        """Durations of the requests of all versions, in milliseconds."""
        return Histogram(BOUNDS_MS, self._add_versions(), self.seconds * 1000)

    def queue_times(self) -> "Histogram":
        return self._add_immediate(self.waits.queued)

    def local_times(self) -> "Histogram":
        at_once = [all_ - waited for all_, waited in zip(self._add_versions(), self.waits.total.counts, strict=True)]
        counts = [quick + waited for quick, waited in zip(at_once, self.waits.local.counts, strict=True)]
        seconds = max(self.seconds - self.waits.total.seconds, 0.0) + self.waits.local.seconds
        return Histogram(BOUNDS_MS, counts, seconds * 1000)

    def remote_times(self) -> "Histogram":
        return self._add_immediate(self.waits.remote)

    def _add_versions(self) -> list[int]:
        return [sum(buckets) for buckets in zip(*self.by_version, strict=True)]

    def _add_immediate(self, waits: "DurationMeter") -> "Histogram":
        """The times of the requests that waited, and zero for all others."""
        at_once = sum(self._add_versions()) - sum(waits.counts)
        return Histogram(BOUNDS_MS, [waits.counts[0] + at_once, *waits.counts[1:]], waits.seconds * 1000)


class RequestMeters:
    """Counters for all APIs, and for requests that no API could handle."""

    def __init__(self) -> None:
        self.by_key: dict[int, RequestMeter] = {}
        self.errors: dict[tuple[int, int], int] = {}
        """API key and error code -> how often an answer contained the code."""
        self.malformed = 0
        self.unsupported = 0

    def count_error(self, api_key: int, code: int) -> None:
        self.errors[api_key, code] = self.errors.get((api_key, code), 0) + 1


class DurationMeter:
    """Counters for a rarer event than a request: how often it happened, and how long it took."""

    __slots__ = ("counts", "seconds")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_S) + 1)
        self.seconds = 0.0

    def count_duration(self, seconds: float) -> None:
        self.counts[bisect_left(BOUNDS_S, seconds)] += 1
        self.seconds += seconds

    def durations(self) -> "Histogram":
        """The durations in milliseconds."""
        return Histogram(BOUNDS_MS, self.counts, self.seconds * 1000)


class LoginMeter:
    """Counters for the clients that have authenticated at a listener, or have failed to."""

    __slots__ = ("expired", "failed", "failed_again", "successful", "successful_again")

    def __init__(self) -> None:
        self.successful = 0
        self.failed = 0
        self.successful_again = 0
        """Clients that have authenticated again on an open connection (KIP-368)."""
        self.failed_again = 0
        self.expired = 0
        """Connections that were closed because their session had expired."""


class StoreMeter:
    """Counters for a broker's connection to the store of the cluster's metadata."""

    __slots__ = ("disconnects", "expirations")

    def __init__(self) -> None:
        self.disconnects = 0
        self.expirations = 0
        """Sessions that have ended because the store had not heard from the broker for too long."""


class GroupMeter:
    """Counters for the groups of a broker."""

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
        """How often the epoch of a consumer group was raised, which starts a rebalance."""
        self.classic_rebalances = DurationMeter()
        """Durations from the start of a rebalance of a classic group to its assignment."""
        self.consumer_rebalances = DurationMeter()
        """Durations from a raised epoch of a consumer group until every member has reached it."""


class TransactionMeter:
    """Counters for the ends of the transactions that a broker coordinates."""

    __slots__ = ("aborted", "committed", "fenced", "markers", "timed_out", "waiting_markers")

    def __init__(self) -> None:
        self.committed = 0
        self.aborted = 0
        self.timed_out = 0
        self.fenced = 0
        """Aborted because another producer took over the transactional id."""
        self.markers = DurationMeter()
        """Durations from the decision to end a transaction to its last marker."""
        self.waiting_markers = 0
        """Partitions whose marker could not be appended yet. It is tried again."""


class TopicMeter:
    """Counters for one topic on this broker, reset when the broker restarts."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "bytes_rejected",
        "elections",
        "eligible_elections",
        "failed_fetches",
        "failed_produces",
        "fetches",
        "messages_in",
        "produces",
        "unclean_elections",
    )

    def __init__(self) -> None:
        self.messages_in = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.bytes_rejected = 0
        """Bytes of batches that are larger than max.message.bytes."""
        self.produces = 0
        self.fetches = 0
        self.failed_produces = 0
        self.failed_fetches = 0
        self.elections = 0
        """How often this broker was elected as the leader of a partition."""
        self.eligible_elections = 0
        """Elections of this broker as an eligible leader replica (KIP-966), which was not in sync."""
        self.unclean_elections = 0
        """Elections of this broker although it may have lacked acknowledged records."""

    def count_election(self, *, eligible: bool, unclean: bool) -> None:
        self.elections += 1
        self.eligible_elections += eligible
        self.unclean_elections += unclean

    def add(self, other: "TopicMeter") -> None:
        self.messages_in += other.messages_in
        self.bytes_in += other.bytes_in
        self.bytes_out += other.bytes_out
        self.bytes_rejected += other.bytes_rejected
        self.produces += other.produces
        self.fetches += other.fetches
        self.failed_produces += other.failed_produces
        self.failed_fetches += other.failed_fetches
        self.elections += other.elections
        self.eligible_elections += other.eligible_elections
        self.unclean_elections += other.unclean_elections


class TopicMeters:
    """One meter for each topic that has a partition here."""

    def __init__(self) -> None:
        self.by_topic: dict[str, TopicMeter] = {}
        self.elsewhere = TopicMeter()
        """Requests for topics that are not on this broker, and the counts of topics that were deleted."""
        self.replication_bytes_out = 0
        """Bytes of record batches that were sent to followers, of all topics together."""
        self.reassignment_bytes_out = 0
        """Those of them that were sent to replicas which a reassignment adds."""

    def of(self, topic: str) -> TopicMeter:
        return self.by_topic.setdefault(topic, TopicMeter())

    def forget(self, topic: str) -> None:
        """A topic was deleted. Its counts stay in the total, which must never decrease."""
        gone = self.by_topic.pop(topic, None)
        if gone is not None:
            self.elsewhere.add(gone)


class Compacted(Protocol):
    """The result of a compaction, as far as it is counted."""

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
    """Counters for compaction, and how far it is behind."""

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

    def count_look(self, now_ms: int, dirtiest: float, overdue_ms: int) -> None:
        self.looked_at_ms, self.dirtiest, self.overdue_ms = now_ms, dirtiest, overdue_ms

    def count_compaction(self, compaction: Compacted, seconds: float) -> None:
        self.runs += 1
        self.bytes_read += compaction.bytes_read
        self.bytes_written += compaction.bytes_written
        self.records_read += compaction.records_read
        self.records_written += compaction.records_written
        self.last_recopied = compaction.bytes_written / compaction.bytes_read if compaction.bytes_read else 0.0
        self.last_map_used = compaction.map_used
        self.last_seconds = seconds


# Text


class Histogram(NamedTuple):
    """How many values are up to each bound; the last count is of the values above all bounds."""

    bounds: Sequence[float]
    counts: Sequence[int]
    sum: float


class Family(NamedTuple):
    """A metric. Its series differ only in the values of their labels."""

    name: str
    kind: str
    help: str
    labels: Labels = ()

    def head(self) -> str:
        return f"# HELP {self.name} {escape_help(self.help)}\n# TYPE {self.name} {self.kind}\n"

    def line(self, value: float, labels: Sequence[str] = ()) -> str:
        return f"{self.name}{format_labels(self.labels, labels)} {format_number(value)}\n"

    def format_histogram(self, histogram: Histogram, labels: Sequence[str] = ()) -> Iterator[str]:
        names = (*self.labels, "le")
        total = 0
        for bound, count in zip((*map(format_number, histogram.bounds), "+Inf"), histogram.counts, strict=True):
            total += count
            yield f"{self.name}_bucket{format_labels(names, (*labels, bound))} {total}\n"
        own = format_labels(self.labels, labels)
        yield f"{self.name}_sum{own} {format_number(histogram.sum)}\n"
        yield f"{self.name}_count{own} {total}\n"


Value = float | Histogram
Series = Iterable[tuple[Labels, Value]]
FamilySeries = tuple[Family, Series]
"""A metric and its present values."""

PAUSE_EVERY = 500
"""Topics, partitions or groups that are read before other work of the event loop gets its turn."""


def format_family(family: Family, series: Series) -> Iterator[str]:
    """The lines of a metric; none if it has no series."""
    begun = False
    for labels, value in series:
        if not begun:
            begun = True
            yield family.head()
        if isinstance(value, Histogram):
            yield from family.format_histogram(value, labels)
        else:
            yield family.line(value, labels)


_HELP_ESCAPES: Mapping[int, str] = {ord("\\"): r"\\", ord("\n"): r"\n"}
_VALUE_ESCAPES: Mapping[int, str] = {**_HELP_ESCAPES, ord('"'): r"\""}


def escape_help(text: str) -> str:
    return text.translate(_HELP_ESCAPES)


def format_labels(names: Sequence[str], values: Sequence[str]) -> str:
    pairs = [f'{name}="{value.translate(_VALUE_ESCAPES)}"' for name, value in zip(names, values, strict=True) if value]
    return f"{{{','.join(pairs)}}}" if pairs else ""


def format_number(value: float) -> str:
    """Integers have no decimal point, so that offsets above 2^53 are as exact as the floats of the reader."""
    if isinstance(value, int):
        return str(int(value))
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "+Inf" if value > 0 else "-Inf"
    return repr(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
