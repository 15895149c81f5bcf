"""The Java client, through Apache Kafka's own tools; and its reader of segments on the files that we write."""

import re
import shutil
from pathlib import Path
from random import Random

import pytest

from benchmarks.peers.apache_kafka import run_tool
from ottla.testing import LocalBroker
from tests.clients import confluent, logins
from tests.clients.messages import CODECS, Delivery, Sent
from tests.patience import PATIENCE_MS

TOOLS = "org.apache.kafka.tools"
TOMBSTONE = "null"
SUFFIXES = (".log", ".index", ".timeindex", ".snapshot")

pytestmark = pytest.mark.usefixtures("kafka_tools")


def console_producer(broker: LocalBroker, topic: str, lines: str, *settings: str) -> None:
    properties = [part for setting in settings for part in ("--command-property", setting)]
    parsing = ("--reader-property", "parse.key=true", "--reader-property", "key.separator=:")
    run_tool(f"{TOOLS}.ConsoleProducer", *at(broker), "--topic", topic, *parsing, *properties, stdin=lines)


def console_consumer(broker: LocalBroker, topic: str, offset: str, count: int, *shown: str) -> list[str]:
    formatting = [part for name in shown for part in ("--formatter-property", f"print.{name}=true")]
    limits = ("--max-messages", str(count), "--timeout-ms", str(PATIENCE_MS))
    where = ("--topic", topic, "--partition", "0", "--offset", offset)
    return run_tool(f"{TOOLS}.consumer.ConsoleConsumer", *at(broker), *where, *limits, *formatting).splitlines()


def at(broker: LocalBroker) -> tuple[str, ...]:
    return logins.tool(broker.bootstrap)


@pytest.mark.parametrize(
    "settings",
    [
        *((f"compression.type={codec}", "linger.ms=5") for codec in CODECS),
        ("compression.type=lz4", "enable.idempotence=false", "acks=1"),
    ],
    ids=[*CODECS, "lz4, acks=1, not idempotent"],
)
def test_the_java_producer_writes(settings: tuple[str, ...], broker: LocalBroker, topic: str) -> None:
    # The producer creates the topic by writing to it, and librdkafka reads what it sent.
    sent = [(f"key {number}", f"value {number} größe") for number in range(500)]
    console_producer(broker, topic, "".join(f"{key}:{value}\n" for key, value in sent), *settings)
    received = confluent.receive(broker.bootstrap, topic, 1, len(sent))
    assert [(each.key, each.value) for each in received] == [(key.encode(), value.encode()) for key, value in sent]


def test_the_java_consumer_reads(broker: LocalBroker, topic: str) -> None:
    # Keys, headers, times and tombstones stay as librdkafka sent them in one batch. The consumer begins in its middle.
    broker.create_topic(topic)
    sent = [
        Sent(0, b"first", b"not asked for", (), 1000),
        Sent(0, b"a", b"one", (("trace", b"7"), ("empty", b"")), 2000),
        Sent(0, b"b", None, (), 3000),
    ]
    confluent.send(broker.bootstrap, topic, sent, Delivery("snappy", idempotent=True))
    shown = console_consumer(broker, topic, "1", 2, "timestamp", "offset", "headers", "key")
    assert shown == [
        "CreateTime:2000\tOffset:1\ttrace:7,empty:\ta\tone",
        f"CreateTime:3000\tOffset:2\tNO_HEADERS\tb\t{TOMBSTONE}",
    ]


def test_the_java_consumer_reads_every_codec(broker: LocalBroker, topic: str) -> None:
    # The batches follow each other in one partition of a topic that keeps the codec of the producer.
    broker.create_topic(topic)
    for number, codec in enumerate(CODECS):
        part = [Sent(0, b"key", b"%d of %s" % (index, codec.encode()), (), 1000 + number) for index in range(20)]
        confluent.send(broker.bootstrap, topic, part, Delivery(codec, idempotent=True))
    shown = console_consumer(broker, topic, "earliest", 20 * len(CODECS))
    assert shown == [f"{index} of {codec}" for codec in CODECS for index in range(20)]


def test_the_offset_of_the_largest_timestamp_is_found(broker: LocalBroker, topic: str) -> None:
    # kafka-get-offsets returns it.
    broker.create_topic(topic, 2)
    for timestamp in (1000, 3000, 2000):
        confluent.send(broker.bootstrap, topic, [Sent(1, b"key", b"value", (), timestamp)], Delivery())
    told = run_tool(f"{TOOLS}.GetOffsetShell", *at(broker), "--topic", topic, "--time", "-3")
    assert f"{topic}:1:1" in told.split()


def written(end: str, sent: list[Sent], target: Path) -> list[Path]:
    """Write a partition with these records, half of them compressed, and end its broker in this way. Returns its
    files."""
    with logins.run_broker(process=True, log_segment_bytes=1 << 20) as broker:
        broker.create_topic("dumped")
        half = len(sent) // 2
        for codec, part in (("none", sent[:half]), ("zstd", sent[half:])):
            confluent.send(broker.bootstrap, "dumped", part, Delivery(codec, idempotent=True))
        getattr(broker, end)()
        broker.restart()
        broker.stop()
        shutil.copytree(Path(broker.directory) / "dumped-0", target)
    files = [path for suffix in SUFFIXES for path in sorted(target.glob(f"*{suffix}"))]
    segments = [path for path in files if path.suffix == ".log"]
    assert len(segments) >= 2
    assert len(files) >= 4 * len(segments) - 1, "the first segment may have no snapshot"
    return files


def test_kafkas_own_tool_reads_our_files(tmp_path: Path, seed: int) -> None:
    # DumpLogSegments reads every segment, index and snapshot, after a clean end or a recovery. All records are there in
    # order with correct checksums, both indexes agree with the log, and the producer state matches what was sent.
    random = Random(seed)
    sent = [Sent(0, b"%d" % number, random.randbytes(2000), (), 1_750_000_000_000 + number) for number in range(1500)]
    files = [path for end in ("stop", "kill") for path in written(end, sent, tmp_path / end)]
    listed = ",".join(map(str, files))
    told = run_tool(f"{TOOLS}.DumpLogSegments", "--deep-iteration", "--print-data-log", "--files", listed)
    records = [(str(offset), str(each.timestamp)) for offset, each in enumerate(sent)]
    assert re.findall(r" offset: (\d+) CreateTime: (\d+)", told) == records * 2
    assert "isvalid: true" in told
    for complaint in ("isvalid: false", "Mismatches", "mismatch", "out of order", "Index timestamp", "corrupt"):
        assert complaint not in told, told[-3000:]
    assert len(re.findall(r"producerId: \d+ producerEpoch: 0 .*lastSequence: 749", told)) >= 2
