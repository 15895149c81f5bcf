"""Apache Kafka's own load generators, started as its scripts start them, and the numbers that they print.

Each runs in a JVM of its own with a heap of 512 MB. The records in the topic are counted afterwards.
"""

import re

from benchmarks.loads.jobs import JobFailure, Values, run_command, run_job
from benchmarks.peers.apache_kafka import java_command
from benchmarks.peers.broker_process import BrokerProcess

TOOLS = "org.apache.kafka.tools"
HEAP = ("-Xmx512M",)
WARM_UP_PART = 4
"""One record in so many is a warm-up record, which ProducerPerformance does not count."""
RECORDS_PER_SECOND = re.compile(r"([\d.]+) records/sec")
MEAN_MS = re.compile(r"Avg latency: ([\d.]+) ms")


def run_producer(broker: BrokerProcess, topic: str, records: int, size: int, acks: str, keep: bool = False) -> Values:
    """ProducerPerformance without a rate limit: bytes, bytes per second after the warm-up, and the broker's CPU."""
    run_job(broker, "create", topic=topic)
    warm_up = records // WARM_UP_PART
    command = java_command(
        f"{TOOLS}.ProducerPerformance",
        *("--bootstrap-server", broker.bootstrap, "--topic", topic, "--num-records", str(records)),
        *("--record-size", str(size), "--throughput", "-1", "--warmup-records", str(warm_up)),
        *("--command-property", f"acks={acks}"),
        options=HEAP,
    )
    printed, cpu_seconds = run_command(broker, command)
    run_job(broker, "verify", topic=topic, records=records, delete=not keep)
    rate = parse_last(RECORDS_PER_SECOND, printed)
    return {"bytes": records * size, "rate": rate * size, "cpu_seconds": cpu_seconds}


def run_consumer(broker: BrokerProcess, topic: str, records: int, size: int) -> Values:
    """ConsumerPerformance, in a group: bytes per second without the time to join the group, and the broker's CPU."""
    command = java_command(
        f"{TOOLS}.ConsumerPerformance",
        *("--bootstrap-server", broker.bootstrap, "--topic", topic, "--num-records", str(records), "--hide-header"),
        options=HEAP,
    )
    printed, cpu_seconds = run_command(broker, command)
    columns = [column.strip() for column in printed.strip().splitlines()[-1].split(",")]
    if len(columns) != 10 or int(columns[4]) < records:
        raise JobFailure(f"{broker.name}: ConsumerPerformance did not read {records} records: {printed[-500:]}")
    return {"bytes": int(columns[4]) * size, "rate": float(columns[9]) * size, "cpu_seconds": cpu_seconds}


def run_end_to_end(broker: BrokerProcess, topic: str, records: int, size: int) -> Values:
    """EndToEndLatency: each record is sent, acknowledged by all and polled before the next one is sent."""
    run_job(broker, "create", topic=topic)
    command = java_command(
        f"{TOOLS}.EndToEndLatency", broker.bootstrap, topic, str(records), "all", str(size), options=HEAP
    )
    printed, _ = run_command(broker, command)
    run_job(broker, "verify", topic=topic, records=records, delete=True)
    return {"mean_ms": parse_last(MEAN_MS, printed)}


def parse_last(pattern: re.Pattern[str], printed: str) -> float:
    """The last number that matches: ProducerPerformance prints the one without the warm-up last."""
    found = pattern.findall(printed)
    if not found:
        raise JobFailure(f"a tool of Kafka printed no result: {printed[-500:]}")
    return float(found[-1])
