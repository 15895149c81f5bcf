"""A topic of another cluster, mirrored to this one beside MirrorMaker 2."""

from benchmarks.connect.measuring import Bench, TopicEnds, Workload, measure_rows
from benchmarks.connect.workers import RunningWorker
from benchmarks.loads.topics import Mismatch
from benchmarks.peers.apache_kafka import find_mirror_jars
from benchmarks.peers.ottla_broker import OttlaBroker
from benchmarks.report import Row
from benchmarks.streams.topics import FILLER, count_records, fill_input

PARTITIONS = 4
BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"


def measure_mirror(bench: Bench, side: int) -> dict[Row, float]:
    """The source is a broker of its own for each side; two tasks."""
    rows = bench.size.rows
    jars = [find_mirror_jars()] if side else []
    with OttlaBroker() as other, RunningWorker(side, bench.bootstrap, jars) as worker:
        fill_input(other.bootstrap, "orders", rows, 1_000, PARTITIONS)
        alias = worker.name
        mirrored = f"{alias}.orders"
        config = {
            "connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector",
            "source.cluster.alias": alias,
            "target.cluster.alias": "here",
            "source.cluster.bootstrap.servers": other.bootstrap,
            "target.cluster.bootstrap.servers": bench.bootstrap,
            "topics": "orders",
            "replication.factor": "1",
            "offset-syncs.topic.replication.factor": "1",
            "offset-syncs.topic.location": "target",
            "tasks.max": "2",
            "sync.topic.acls.enabled": "false",
            "key.converter": BYTES,
            "value.converter": BYTES,
        }
        worker.create("mirror", config)
        worker.wait_until(lambda: _has_topic(bench.bootstrap, mirrored), "the topic is not there")
        with TopicEnds(bench.bootstrap, [mirrored], PARTITIONS) as ends:
            found = measure_rows(worker, "mirror", rows, ends.count)
            worker.wait_until(lambda: count_records(bench.bootstrap, mirrored) >= rows, "the rows are not there")
        if (count := count_records(bench.bootstrap, mirrored)) != rows:
            raise Mismatch(f"{worker.name}: {count} records are mirrored, and there are {rows}")
    size = len(FILLER) + 18
    speed = next(value for row, value in found.items() if row.unit == "k rows/s")
    return {Row("mirror, MB", "MB/s", more_is_better=True): speed * size / 1000, **found}


def _has_topic(bootstrap: str, topic: str) -> bool:
    from confluent_kafka.admin import AdminClient

    return topic in AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=30).topics


WORKLOADS = (Workload("mirror", measure_mirror),)
