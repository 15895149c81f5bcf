"""The S3 source: the rows of each object once, in every format that the sink writes."""

import gzip
from collections.abc import Iterator
from typing import Any

import pytest

from ottla.connect.connector import ConnectorContext, SourceOffset, partition_key
from ottla.connect.connectors.s3 import s3_source
from ottla.connect.connectors.s3.s3_sink import S3Sink
from ottla.connect.connectors.s3.s3_source import S3Source
from ottla.connect.data.columns import RecordColumns
from ottla.connect.data.conversion import columns_to_records
from ottla.connect.errors import BadConfig, ConnectError
from ottla.connect.settings.parsing import parse
from ottla.topic_partition import TopicPartition
from tests.s3_server import ACCESS, REGION, connect_to, make_bucket, s3_server
from tests.unit.connect.connectors.files.sinks import make_batch

WHERE = TopicPartition("t", 0)
CONTEXT = ConnectorContext("unit", "workers", 1, {})


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with s3_server() as address:
        yield address


def make_config(address: str, bucket: str, **more: str) -> dict[str, str]:
    place = {"s3.bucket.name": bucket, "s3.region": REGION, "store.url": address, **ACCESS}
    return {**place, **{name.replace("_", "."): text for name, text in more.items()}}


class Reading:
    """A source and the offsets that it has committed."""

    def __init__(self, address: str, bucket: str, **more: str) -> None:
        given = {"topic_regex_list": "x:.*", "s3_poll_interval_ms": "0", **more}
        self.source = S3Source(parse(S3Source.settings, make_config(address, bucket, **given)), CONTEXT)
        self.source.start()
        self.offsets: dict[str, SourceOffset] = {}

    def read(self) -> list[tuple[str, Any]]:
        """One round: topics and values."""
        found = []
        for part in self.source.plan(self.offsets):
            name = partition_key(part.partition)
            for batch in self.source.read(part, self.offsets.get(name)):
                for rows in batch.rows:
                    records = columns_to_records(rows) if isinstance(rows, RecordColumns) else rows
                    found += [(each.topic, each.value) for each in records]
                assert batch.offset is not None
                self.offsets[name] = batch.offset
        return found


@pytest.mark.parametrize("name", ["JsonFormat", "AvroFormat", "ParquetFormat", "ByteArrayFormat"])
def test_what_the_sink_writes_is_read(server: str, name: str) -> None:
    """Once; ledgers are not read."""
    bucket = name.lower()
    make_bucket(server, bucket)
    config = make_config(server, bucket, flush_size="2", format_class=name, s3_compression_type="gzip")
    sink = S3Sink(parse(S3Sink.settings, config), CONTEXT)
    sink.start()
    sink.find_positions([WHERE])
    values: list[Any] = [b"%d" % n if name == "ByteArrayFormat" else {"n": n} for n in range(4)]
    sink.write(make_batch(0, values))
    reading = Reading(server, bucket, format_class=name)
    assert reading.read() == [("x", value) for value in values]
    assert reading.read() == []


def test_a_long_object_is_read_in_rounds(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_source, "BATCH_ROWS", 3)
    monkeypatch.setattr(s3_source, "MAX_ROWS", 6)
    make_bucket(server, "long")
    lines = [b'{"n":%d}' % n for n in range(10)]
    connect_to(server).put_object(Bucket="long", Key="topics/a.json", Body=b"\n".join(lines))
    reading = Reading(server, "long", format_class="JsonFormat")
    assert [value["n"] for _, value in reading.read()] == [0, 1, 2, 3, 4, 5]
    assert [value["n"] for _, value in reading.read()] == [6, 7, 8, 9]
    assert reading.read() == []


def test_new_and_replaced_objects(server: str) -> None:
    """By the patterns of their names; others are left alone."""
    make_bucket(server, "growing")
    client = connect_to(server)
    reading = Reading(server, "growing", format_class="JsonFormat", topic_regex_list=r"x:.*/a.*,y:.*\.gz")
    assert reading.read() == []
    client.put_object(Bucket="growing", Key="topics/a1", Body=b"1\n2\n")
    client.put_object(Bucket="growing", Key="topics/b.gz", Body=gzip.compress(b"3\n"))
    client.put_object(Bucket="growing", Key="topics/other", Body=b"4\n")
    assert reading.read() == [("x", 1), ("x", 2), ("y", 3)]
    client.put_object(Bucket="growing", Key="topics/a1", Body=b"5\n")
    assert reading.read() == [("x", 5)]
    client.put_object(Bucket="growing", Key="topics/a2", Body=b"no JSON\n")
    with pytest.raises(ConnectError, match="topics/a2 has a line that is no JSON"):
        reading.read()


@pytest.mark.parametrize(
    "config",
    [{"topic.regex.list": "x"}, {"topic.regex.list": "x:("}, {"mode": "RESTORE_BACKUP"}, {"format.class": "Xml"}],
)
def test_what_cannot_be_obeyed_is_refused(config: dict[str, str]) -> None:
    given = {"s3.bucket.name": "b", "topic.regex.list": "x:.*", "format.class": "JsonFormat", **config}
    with pytest.raises(BadConfig, match=next(iter(config))):
        parse(S3Source.settings, given)
