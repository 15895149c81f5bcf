"""The workloads of benchmarks.broker: each runs one job of a load generator and fills some rows of the table.

A workload runs against one broker and returns a value per row. The values of two brokers are compared only within a
pair of runs, one right after the other.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

from benchmarks.loads import kafka_tools
from benchmarks.loads.jobs import Values, run_job
from benchmarks.loads.small_requests import KINDS
from benchmarks.peers.broker_process import BrokerProcess
from benchmarks.report import Row

GIGABYTE = 1e9
CODEC_PARTS = {"none": 1, "gzip": 12, "snappy": 3, "lz4": 3, "zstd": 3}
"""With each codec, one record in so many of those without: the client is slow when it compresses well."""
CODECS = tuple(codec for codec in CODEC_PARTS if codec != "none")
RATE = 2000
"""Records per second of the end-to-end latency."""
topic_numbers = count()


@dataclass(frozen=True)
class Size:
    """How much is sent, and so how long a whole run takes."""

    pairs: int
    produced_bytes: int
    consumed_bytes: int
    most_records: int
    latency_records: int
    fixed_rate_seconds: float
    request_seconds: float
    warm_up_rounds: int

    def with_pairs(self, pairs: int) -> "Size":
        return replace(self, pairs=pairs)

    def produced(self, value_bytes: int) -> int:
        return min(self.produced_bytes // value_bytes, self.most_records)

    def consumed(self, value_bytes: int) -> int:
        return min(self.consumed_bytes // value_bytes, self.most_records)


FULL = Size(
    pairs=3,
    produced_bytes=400_000_000,
    consumed_bytes=1_000_000_000,
    most_records=1_500_000,
    latency_records=4000,
    fixed_rate_seconds=4,
    request_seconds=1.2,
    warm_up_rounds=3,
)
QUICK = Size(
    pairs=1,
    produced_bytes=50_000_000,
    consumed_bytes=100_000_000,
    most_records=200_000,
    latency_records=1000,
    fixed_rate_seconds=1,
    request_seconds=0.5,
    warm_up_rounds=1,
)


@dataclass(frozen=True)
class Workload:
    name: str
    rows: tuple[Row, ...]
    measure: Callable[[BrokerProcess, Size], Values]
    prepare: Callable[[BrokerProcess, Size], None] = field(default=lambda broker, size: None)


def format_size(value_bytes: int) -> str:
    return f"{value_bytes} B" if value_bytes < 1000 else f"{value_bytes // 1000} KB"


def make_bulk_rows(name: str) -> tuple[Row, Row]:
    """The two rows of a bulk workload: its speed, and the CPU seconds of the broker per gigabyte."""
    return Row(name, "MB/s", more_is_better=True), Row(f"{name}: broker CPU", "s/GB", more_is_better=False)


def make_bulk_values(rows: tuple[Row, Row], sent_bytes: float, bytes_per_second: float, cpu_seconds: float) -> Values:
    speed, cost = rows
    return {speed.name: bytes_per_second / 1e6, cost.name: cpu_seconds / (sent_bytes / GIGABYTE)}


def make_produce_workload(value_bytes: int, acks: str, codec: str = "none") -> Workload:
    suffix = "" if codec == "none" else f", {codec}"
    rows = make_bulk_rows(f"produce {format_size(value_bytes)}, acks {acks}{suffix}")

    def measure(broker: BrokerProcess, size: Size) -> Values:
        records = size.produced(value_bytes) // CODEC_PARTS[codec]
        topic = f"produce-{next(topic_numbers)}"
        result, cpu_seconds = run_job(
            broker, "produce", topic=topic, records=records, size=value_bytes, acks=acks, codec=codec
        )
        return make_bulk_values(rows, result["bytes"], result["bytes"] / result["seconds"], cpu_seconds)

    return Workload(f"produce-{value_bytes}-{acks}" + suffix.replace(", ", "-"), rows, measure)


def make_consume_workload(value_bytes: int) -> Workload:
    rows = make_bulk_rows(f"consume {format_size(value_bytes)}")
    topic = f"consume-{value_bytes}"

    def prepare(broker: BrokerProcess, size: Size) -> None:
        run_job(broker, "produce", topic=topic, records=size.consumed(value_bytes), size=value_bytes, keep=True)

    def measure(broker: BrokerProcess, size: Size) -> Values:
        # One record more than was timed: the producer sends one to open its connection.
        records = size.consumed(value_bytes) + 1
        result, cpu_seconds = run_job(broker, "consume", topic=topic, records=records, size=value_bytes)
        return make_bulk_values(rows, result["bytes"], result["bytes"] / result["seconds"], cpu_seconds)

    return Workload(f"consume-{value_bytes}", rows, measure, prepare)


def make_quantile_rows(name: str) -> dict[str, Row]:
    """A row per quantile, by the load generator's name for it."""
    shown = {"p50_ms": "p50", "p99_ms": "p99", "p999_ms": "p99.9"}
    return {key: Row(f"{name}, {quantile}", "ms", more_is_better=False) for key, quantile in shown.items()}


def make_synchronous_workload() -> Workload:
    rows = make_quantile_rows("synchronous produce 100 B")

    def measure(broker: BrokerProcess, size: Size) -> Values:
        topic = f"latency-{next(topic_numbers)}"
        result, _ = run_job(broker, "synchronous", topic=topic, records=size.latency_records, size=100)
        return {row.name: result[key] for key, row in rows.items()}

    return Workload("latency", tuple(rows.values()), measure)


def make_end_to_end_workload() -> Workload:
    rows = make_quantile_rows(f"end to end, 100 B at {RATE:,}/s")

    def measure(broker: BrokerProcess, size: Size) -> Values:
        topic = f"end-to-end-{next(topic_numbers)}"
        result, _ = run_job(broker, "end-to-end", topic=topic, rate=RATE, seconds=size.fixed_rate_seconds, size=100)
        return {row.name: result[key] for key, row in rows.items()}

    return Workload("end-to-end", tuple(rows.values()), measure)


def run_requests(broker: BrokerProcess, topic: str, kinds: Sequence[str], connections: int, seconds: float) -> Values:
    result, _ = run_job(
        broker,
        "requests",
        topic=topic,
        kinds=list(kinds),
        connections=connections,
        seconds=seconds,
        broker_process_id=broker.process_id,
    )
    return result


def make_request_workload(connections: int, name: str, kinds: Sequence[str]) -> Workload:
    title = f"{name}, {connections:,} connection{'s' if connections > 1 else ''}"
    rate = Row(title, "1/s", more_is_better=True)
    cost = Row(f"{title}: broker CPU", "us each", more_is_better=False)

    def measure(broker: BrokerProcess, size: Size) -> Values:
        topic = f"requests-{next(topic_numbers)}"
        result = run_requests(broker, topic, kinds, connections, size.request_seconds)
        answered = result["requests"]
        return {rate.name: answered / result["seconds"], cost.name: 1e6 * result["broker_cpu_seconds"] / answered}

    suffix = "" if len(kinds) > 1 else "-" + name.replace(" ", "-")
    return Workload(f"requests-{connections}{suffix}", (rate, cost), measure)


def make_java_produce_workload(acks: str) -> Workload:
    rows = make_bulk_rows(f"ProducerPerformance 1 KB, acks {acks}")

    def measure(broker: BrokerProcess, size: Size) -> Values:
        topic = f"java-produce-{next(topic_numbers)}"
        found = kafka_tools.run_producer(broker, topic, size.produced(1000) // 2, 1000, acks)
        return make_bulk_values(rows, found["bytes"], found["rate"], found["cpu_seconds"])

    return Workload(f"java-produce-{acks}", rows, measure)


def make_java_consume_workload() -> Workload:
    rows = make_bulk_rows("ConsumerPerformance 1 KB")
    topic = "java-consume"

    def prepare(broker: BrokerProcess, size: Size) -> None:
        run_job(broker, "produce", topic=topic, records=size.consumed(1000), size=1000, keep=True)

    def measure(broker: BrokerProcess, size: Size) -> Values:
        found = kafka_tools.run_consumer(broker, topic, size.consumed(1000), 1000)
        return make_bulk_values(rows, found["bytes"], found["rate"], found["cpu_seconds"])

    return Workload("java-consume", rows, measure, prepare)


def make_java_end_to_end_workload() -> Workload:
    mean = Row("EndToEndLatency 100 B, acks all, mean", "ms", more_is_better=False)

    def measure(broker: BrokerProcess, size: Size) -> Values:
        topic = f"java-end-to-end-{next(topic_numbers)}"
        return {mean.name: kafka_tools.run_end_to_end(broker, topic, size.latency_records, 100)["mean_ms"]}

    return Workload("java-end-to-end", (mean,), measure)


WORKLOADS: tuple[Workload, ...] = (
    *(make_produce_workload(value_bytes, acks) for acks in ("1", "all") for value_bytes in (100, 1000, 10_000)),
    *(make_produce_workload(1000, acks, codec) for codec in CODECS for acks in ("1", "all")),
    *(make_consume_workload(value_bytes) for value_bytes in (100, 1000, 10_000)),
    make_synchronous_workload(),
    make_end_to_end_workload(),
    *(make_request_workload(connections, "small requests", list(KINDS)) for connections in (1, 64, 1000)),
    *(make_request_workload(64, kind, [kind]) for kind in KINDS),
    *(make_java_produce_workload(acks) for acks in ("1", "all")),
    make_java_consume_workload(),
    make_java_end_to_end_workload(),
)

ACCEPTED = Row("start to first accepted connection", "s", more_is_better=False)
ANSWERED = Row("start to first answered request", "s", more_is_better=False)
IDLE_MEMORY = Row("memory when idle", "MB", more_is_better=False)
LOADED_MEMORY = Row("memory after all of the load", "MB", more_is_better=False)
