"""The S3 sink: each record in one object, wherever the writer dies, and one owner at a time."""

import gc
import gzip
import io
import json
from collections.abc import Callable, Iterator
from typing import Any

import fastavro
import pyarrow.parquet as pq
import pytest

from ottla.connect.connector import ConnectorContext, RefusedRecord, SinkBatch
from ottla.connect.connectors.files.ledger import NotOwner
from ottla.connect.connectors.s3.bucket import Bucket, connect
from ottla.connect.connectors.s3.s3_sink import S3Sink
from ottla.connect.connectors.s3.settings import find_address
from ottla.connect.data.record import Record
from ottla.connect.errors import BadConfig, ConnectError, RetriableError
from ottla.connect.settings.parsing import parse
from ottla.topic_partition import TopicPartition
from tests.s3_server import ACCESS, REGION, connect_to, make_bucket, read_objects, s3_server
from tests.samples import choose_sample
from tests.unit.connect.connectors.files.sinks import make_batch

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
"""A client that dies in the middle of a request leaves its socket to the garbage collector, which complains."""

WHERE = TopicPartition("t", 0)
ROWS = [{"id": n, "name": f"n{n}", "kind": "ab"[n % 2]} for n in range(5)]
BYTES = "ByteArrayFormat"


class Died(BaseException):
    """Stands for a kill: nothing of ours catches it."""


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with s3_server() as address:
        yield address


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    """Collect what dead clients left behind while its complaints are ignored."""
    yield
    if Trap.has_died:
        Trap.has_died = False
        gc.collect()


def make_config(address: str, bucket: str, **more: Any) -> dict[str, Any]:
    given = {
        "s3.bucket.name": bucket,
        "s3.region": REGION,
        "store.url": address,
        "flush.size": "2",
        "format.class": "JsonFormat",
        "s3.part.retries": "0",
        **ACCESS,
        **{name.replace("_", "."): str(value) for name, value in more.items()},
    }
    return parse(S3Sink.settings, given)


def make_sink(address: str, bucket: str, **more: Any) -> S3Sink:
    sink = S3Sink(make_config(address, bucket, **more), ConnectorContext("unit", "workers", 1, {}))
    sink.start()
    return sink


def write_all(make: Callable[[], S3Sink], batches: Any) -> None:
    """As a worker does: go on from the positions that the target knows."""
    sink = make()
    for batch in batches:
        position = sink.find_positions([WHERE]).get(WHERE, 0)
        if position < batch.end:
            sink.write(batch)


class Trap:
    """Ends the writer before or after its n-th request."""

    has_died = False
    """Whether a writer has died since garbage was collected."""

    def __init__(self, client: Any, event: str, number: int, error: BaseException) -> None:
        self.left, self._error = number, error
        self._events, self._event = client.meta.events, event
        self._events.register(event, self._count)

    def _count(self, **_: Any) -> None:
        self.left -= 1
        if self.left == 0:
            Trap.has_died = True
            raise self._error

    def remove(self) -> None:
        self._events.unregister(self._event, self._count)


STEPS = range(1, 28)
"""Requests of a writer that does not die; the test checks that there are no more."""


@pytest.mark.parametrize("event", ["before-send.s3", "response-received.s3"])
@pytest.mark.parametrize("is_killed", [True, False])
def test_a_writer_may_die_at_every_request(server: str, event: str, is_killed: bool) -> None:
    """Die, or lose the connection, before or after the n-th request; then another writer goes on. Each row is in one
    object, and no upload is left."""
    batches = [make_batch(0, ["a", "b", "c"]), make_batch(3, ["d", "e"])]
    bucket = f"kills-{event.partition('-')[0]}-{is_killed}".lower()
    make_bucket(server, bucket)
    for step in [*choose_sample(STEPS, 2), STEPS.stop]:

        def make(step: int = step) -> S3Sink:
            return make_sink(server, bucket, rotate_schedule_interval_ms=0, topics_dir=f"step-{step:02d}")

        error = Died() if is_killed else RetriableError("the connection is lost")
        trap = Trap(connect(find_address(make_config(server, bucket))), event, step, error)
        try:
            write_all(make, batches)
        except (Died, RetriableError):
            write_all(make, batches)
        finally:
            trap.remove()
        assert (trap.left > 0) == (step == STEPS.stop), (
            f"there are more or fewer requests than steps: {step - trap.left}"
        )
        found = read_objects(server, bucket, f"step-{step:02d}/")
        assert sorted(json.loads(line) for data in found.values() for line in data.splitlines()) == list("abcde"), step
        assert "Uploads" not in connect_to(server).list_multipart_uploads(Bucket=bucket), step


def test_a_new_owner_shuts_out_the_old_one(server: str) -> None:
    """The older sink cannot write any more, not even what it has begun to write before."""
    make_bucket(server, "owners")
    older, newer = make_sink(server, "owners"), make_sink(server, "owners")
    older.find_positions([WHERE])
    trap = Trap(connect(find_address(older.config)), "before-send.s3", 2, Died())
    with pytest.raises(Died):
        older.write(make_batch(0, ["a", "b"]))
    trap.remove()
    newer.find_positions([WHERE])
    with pytest.raises(NotOwner):
        older.write(make_batch(0, ["a", "b"]))
    with pytest.raises(NotOwner):
        older.find_positions([WHERE])
    newer.write(make_batch(0, ["a", "b"]))
    assert read_objects(server, "owners") == {"topics/t/partition=0/t+0+0000000000.json": b'"a"\n"b"\n'}


def test_an_object_is_completed_by_the_successor(server: str) -> None:
    """The writer dies after the ledger knows the uploads. The successor cuts differently, and that does not matter."""
    make_bucket(server, "successors")
    sink = make_sink(server, "successors")
    sink.find_positions([WHERE])
    trap = Trap(connect(find_address(sink.config)), "before-send.s3", 5, Died())
    with pytest.raises(Died):
        sink.write(make_batch(0, ["a", "b"]))
    trap.remove()
    assert read_objects(server, "successors") == {}
    successor = make_sink(server, "successors", flush_size=3)
    assert successor.find_positions([WHERE]) == {WHERE: 2}
    assert successor.write(make_batch(0, ["a", "b", "c", "d", "e"])).end == 5
    assert list(read_objects(server, "successors")) == [f"topics/t/partition=0/t+0+000000000{n}.json" for n in (0, 2)]


def test_positions_can_be_changed_and_forgotten(server: str) -> None:
    make_bucket(server, "positions")
    write_all(lambda: make_sink(server, "positions"), [make_batch(0, ["a", "b"])])
    assert make_sink(server, "positions").alter_positions({WHERE: 1})
    assert make_sink(server, "positions").find_positions([WHERE]) == {WHERE: 1}
    assert make_sink(server, "positions").alter_positions({WHERE: None})
    assert make_sink(server, "positions").find_positions([WHERE]) == {}


def test_formats_hold_what_was_written(server: str) -> None:
    """Each format is read back by a library that we did not write."""
    make_bucket(server, "formats")
    for name in ("JsonFormat", "ParquetFormat", "AvroFormat"):
        sink = make_sink(server, "formats", format_class=name, topics_dir=name, flush_size=5)
        sink.find_positions([WHERE])
        assert sink.write(make_batch(0, ROWS)).end == 5
    found = read_objects(server, "formats")
    names = {key.partition("/")[0]: key.rpartition("/")[2] for key in found}
    assert names["ParquetFormat"] == "t+0+0000000000.snappy.parquet"
    data = {key.partition("/")[0]: content for key, content in found.items()}
    assert [json.loads(line) for line in data["JsonFormat"].splitlines()] == ROWS
    assert pq.read_table(io.BytesIO(data["ParquetFormat"])).to_pylist() == ROWS
    assert list(fastavro.reader(io.BytesIO(data["AvroFormat"]))) == ROWS


def test_bytes_are_written_as_they_are(server: str) -> None:
    make_bucket(server, "bytes")
    sink = make_sink(server, "bytes", format_class=BYTES, s3_compression_type="gzip", format_bytearray_separator=";")
    sink.find_positions([WHERE])
    sink.write(make_batch(0, [b"\x00a", b"b"]))
    [(key, data)] = read_objects(server, "bytes").items()
    assert (key, gzip.decompress(data)) == ("topics/t/partition=0/t+0+0000000000.bin.gz", b"\x00a;b;")


def test_json_without_schemas_stays_as_it_is(server: str) -> None:
    """Whatever fields and types the values have."""
    make_bucket(server, "json")
    sink = make_sink(server, "json", flush_size=4)
    sink.find_positions([WHERE])
    values: list[Any] = [{"a": 1}, {"a": "x", "b": [1, "y"]}, 5, {}]
    records = [Record("t", value, timestamp=0, offset=number) for number, value in enumerate(values)]
    assert sink.write(SinkBatch("t", 0, 0, 4, [records])).end == 4
    [data] = read_objects(server, "json").values()
    assert data == b'{"a":1}\n{"a":"x","b":[1,"y"]}\n5\n{}\n'


def test_prefixes_by_field_and_by_local_time(server: str) -> None:
    """A day begins at midnight of the time zone."""
    make_bucket(server, "prefixes")
    late = 22 * 3_600_000 + 30 * 60_000
    for config in (
        {"topics_dir": "f", "partitioner_class": "FieldPartitioner", "partition_field_name": "kind"},
        {"topics_dir": "d", "partitioner_class": "DailyPartitioner", "timezone": "Europe/Paris"},
        {"topics_dir": "d2", "partitioner_class": "DailyPartitioner", "timezone": "Asia/Tokyo"},
    ):
        sink = make_sink(server, "prefixes", flush_size=5, rotate_schedule_interval_ms=0, **config)
        sink.find_positions([WHERE])
        sink.write(make_batch(0, ROWS, [late] * 5))
    assert [key.removesuffix(".json") for key in read_objects(server, "prefixes")] == [
        "d/t/year=1970/month=01/day=01/t+0+0000000000",
        "d2/t/year=1970/month=01/day=02/t+0+0000000000",
        "f/t/kind=a/t+0+0000000000",
        "f/t/kind=b/t+0+0000000001",
    ]


def test_records_without_a_value(server: str) -> None:
    """They are refused, or ignored if the settings say so."""
    make_bucket(server, "nulls")
    for behaviour in ("fail", "ignore"):
        sink = make_sink(server, "nulls", topics_dir=behaviour, behavior_on_null_values=behaviour, flush_size=1)
        sink.find_positions([WHERE])
        written = sink.write(make_batch(0, ["a", None, "b"]))
        refused: list[RefusedRecord] = list(written.refused)
        assert [each.record.offset for each in refused] == ([1] if behaviour == "fail" else [])
        assert written.end == 3
    assert len(read_objects(server, "nulls")) == 4


def test_failures_are_told_in_one_line(server: str) -> None:
    with pytest.raises(ConnectError, match="there is no bucket 'nowhere'"):
        make_sink(server, "nowhere")
    with pytest.raises(RetriableError, match=r"S3: cannot look for the bucket in b: .*127.0.0.1:1"):
        make_sink("http://127.0.0.1:1", "b")


def test_a_store_that_ignores_conditions_is_refused(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make_bucket(server, "lax")
    put_if = Bucket.put_if
    monkeypatch.setattr(Bucket, "put_if", lambda *given: put_if(*given) or "written all the same")
    with pytest.raises(ConnectError, match="ignores If-Match"):
        make_sink(server, "lax")


@pytest.mark.parametrize(
    "config",
    [
        {"format.class": "XmlFormat"},
        {"store.kafka.keys": "true"},
        {"partitioner.class": "FieldPartitioner", "partition.field.name": ""},
        {"partitioner.class": "TimeBasedPartitioner", "timezone": "Mars"},
        {"timestamp.extractor": "Wallclock"},
        {"avro.codec": "bzip2"},
    ],
)
def test_what_cannot_be_obeyed_is_refused(config: dict[str, str]) -> None:
    given = {"s3.bucket.name": "b", "flush.size": "1", **config}
    with pytest.raises(BadConfig, match=list(config)[-1]):
        parse(S3Sink.settings, given)
