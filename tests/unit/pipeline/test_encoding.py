"""Arrow columns become record batches, compared with the plain decoder of `batch` and the Java client's hashes."""

from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from ottla.client.sending import EncodedBatch
from ottla.errors import ErrorCode, KafkaError
from ottla.pipeline import packing
from ottla.pipeline.encoding import Encoder
from ottla.records import batch

NOW_MS = 1_700_000_000_000
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))

# Keys and toPositive(Utils.murmur2(key)) of the Java client.
JAVA_HASHES = {
    b"": 275646681,
    b"21": 1173551340,
    b"foobar": 1357151166,
    b"a-little-bit-long-string": 1161502112,
    b"a-little-bit-longer-string": 661178819,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": 2088585677,
    b"abc": 479470107,
}


def encoder(partitions: int = 1, **settings: Any) -> Encoder:
    return Encoder(lambda topic: partitions, Random(1), now_ms=lambda: NOW_MS, **{"topic": "events", **settings})


def rows(**columns: Any) -> pa.RecordBatch:
    kinds = {"headers": HEADERS, "topic": pa.string(), "partition": pa.int32()}
    return pa.record_batch({name: pa.array(c, kinds.get(name, pa.binary())) for name, c in columns.items()})


def encode(encoding: Encoder, *lots: pa.RecordBatch) -> list[EncodedBatch]:
    found = [batch for lot in lots for batch in encoding.add(lot)]
    return [*found, *encoding.flush()]


def records(encoded: EncodedBatch) -> list[batch.Record]:
    """The records of an encoded batch, after it was sealed and has passed the broker's own check."""
    batch.seal_client_batch(
        encoded.data, encoded.count, encoded.timestamp, codec=encoded.codec, timestamp_max=encoded.timestamp_max
    )
    batch.check_client_batch(encoded.data)
    return batch.decode(encoded.data)


def bytes_array(data: bytes) -> Any:
    return np.frombuffer(data + b"\0", np.uint8)


def test_murmur2_gives_the_java_clients_hashes() -> None:
    for key, expected in JAVA_HASHES.items():
        assert packing.murmur2(bytes_array(key), 0, len(key)) == expected, key


@pytest.mark.parametrize("codec", range(5))
def test_every_field_survives_in_every_codec(codec: int) -> None:
    """The decoder finds null and empty keys and values, headers with null values, and long fields."""
    keys = [None, b"", b"k", b"x" * 70, None]
    values = [b"v", None, b"", b"y" * 9000, b"last"]
    headers = [None, [], [("a", b"1"), ("é", None)], [("", b"")], None]
    lot = rows(key=keys, value=values, headers=[h and [{"key": k, "value": v} for k, v in h] for h in headers])
    (encoded,) = encode(encoder(codec=codec), lot)
    expected = [
        batch.Record(number, NOW_MS, *each)
        for number, each in enumerate(zip(keys, values, [tuple(h or ()) for h in headers], strict=True))
    ]
    assert records(encoded) == expected


@pytest.mark.parametrize(
    "kind",
    [pa.int64(), pa.timestamp("ms"), pa.timestamp("us", "UTC"), pa.timestamp("ns"), pa.timestamp("us", "Asia/Tokyo")],
)
@pytest.mark.parametrize("codec", [0, 3])
def test_rows_with_a_timestamp_keep_it(kind: pa.DataType, codec: int) -> None:
    """Whatever its type and their order; rows without one get the current time. The header of the batch has the first
    record's timestamp and the highest."""
    wanted = [5_000, None, 0, 4_000_000_000_000, 5_001, None]
    times = pa.array(wanted, pa.timestamp("ms")).cast(pa.int64() if kind == pa.int64() else pa.timestamp(kind.unit))
    lot = rows(value=[b"%d" % number for number in range(6)]).append_column("timestamp", times.cast(kind))
    for each in (lot, lot.slice(1, 4)):
        (encoded,) = encode(encoder(codec=codec), each)
        found = [NOW_MS if time is None else time for time in wanted[: each.num_rows] if each is lot]
        found = found or [NOW_MS, 0, 4_000_000_000_000, 5_001]
        assert [record.timestamp for record in records(encoded)] == found
        header = batch.read_header(encoded.data, 0)
        assert (header.base_timestamp, header.max_timestamp) == (found[0], max(found))


def test_microseconds_are_cut_to_the_millisecond_they_are_in() -> None:
    lot = rows(value=[b"a", b"b"]).append_column("timestamp", pa.array([1_999, 2_000], pa.timestamp("us")))
    (encoded,) = encode(encoder(), lot)
    assert [record.timestamp for record in records(encoded)] == [1, 2]


def test_batches_with_timestamps_stay_within_their_size() -> None:
    """Timestamps that are far apart take up to nine bytes more for each record."""
    times = [0 if number % 2 else 2**62 - 1 for number in range(1000)]
    lot = rows(value=[b"x"] * 1000).append_column("timestamp", pa.array(times))
    found = encode(encoder(2, batch_bytes=700), lot)
    assert all(len(each.data) <= 700 for each in found)
    assert sorted(record.timestamp for each in found for record in records(each)) == sorted(times)


@pytest.mark.parametrize("time", [-1, 2**62, 2**63 - 1])
def test_a_timestamp_that_no_record_can_have_is_refused(time: int) -> None:
    lot = rows(value=[b"a", b"b"]).append_column("timestamp", pa.array([1, time]))
    with pytest.raises(KafkaError, match=f"INVALID_TIMESTAMP: row 1 has the timestamp {time} ms"):
        encode(encoder(), lot)


def test_a_timestamp_of_another_type_is_refused() -> None:
    lot = rows(value=[b"a"]).append_column("timestamp", pa.array(["now"]))
    with pytest.raises(
        KafkaError, match=r"column 'timestamp' is string; it must be timestamp or int64 \(milliseconds\)"
    ):
        encode(encoder(), lot)


def test_a_slice_of_columns_is_read_where_it_begins() -> None:
    """Spark and users pass slices, in which offsets, bitmaps and nested headers do not start at the beginning of
    buffers."""
    count = 40
    keys = [None if n % 3 else b"k%d" % n for n in range(count)]
    values = [None if n % 5 == 0 else b"v%d" % n for n in range(count)]
    headers = [None if n % 4 else [{"key": f"h{n}", "value": b"%d" % n}] for n in range(count)]
    partitions = [n % 2 if n % 7 else None for n in range(count)]
    lot = rows(key=keys, value=values, headers=headers, partition=partitions).slice(13, 20)
    found = {}
    for encoded in encode(encoder(2), lot):
        for record in records(encoded):
            found[record.value, record.key] = (encoded.partition, record.headers)
    for n in range(13, 33):
        partition, stored = found[values[n], keys[n]]
        if partitions[n] is not None and values[n] is not None:
            assert partition == partitions[n]
        if values[n] is not None:
            assert stored == (() if n % 4 else ((f"h{n}", b"%d" % n),))
    assert sum(encoded.count for encoded in encode(encoder(2), lot)) == 20


def test_keys_go_where_the_java_client_sends_them_and_keep_their_order() -> None:
    keys = [key for key in JAVA_HASHES if key] * 30
    lot = rows(key=keys, value=[b"%d" % n for n in range(len(keys))])
    seen: dict[int, int] = {}
    for encoded in encode(encoder(7, batch_bytes=300), lot):
        for record in records(encoded):
            assert JAVA_HASHES[record.key or b""] % 7 == encoded.partition
            number = int(record.value or b"")
            assert number > seen.get(encoded.partition, -1)
            seen[encoded.partition] = number


def test_rows_without_keys_stay_in_a_partition_for_one_batch() -> None:
    lot = rows(value=[b"x" * 100] * 1000)
    turns = [records(encoded) for encoded in encode(encoder(4, batch_bytes=2000), lot)]
    assert len(turns) <= 64
    counts = [0] * 4
    for encoded in encode(encoder(4, batch_bytes=2000), lot):
        counts[encoded.partition] += encoded.count
    assert min(counts) >= 200


def test_batches_end_at_their_limit_and_a_larger_record_is_alone() -> None:
    values = [b"a" * 100] * 50 + [b"b" * 5000] + [b"c" * 100] * 50
    found = encode(encoder(batch_bytes=1000), rows(value=values))
    assert [record.value for encoded in found for record in records(encoded)] == values
    assert [encoded.count for encoded in found if len(encoded.data) > 1000] == [1]
    assert sum(800 < len(encoded.data) <= 1000 for encoded in found) >= 10


def test_small_lots_are_gathered() -> None:
    """A hundred lots of a few rows for many partitions become one batch for each partition, in order."""
    encoding = encoder(8)
    lots = [rows(value=[b"%d-%d" % (lot, p) for p in range(8)], partition=list(range(8))) for lot in range(100)]
    found = encode(encoding, *lots)
    assert [encoded.count for encoded in found] == [100] * 8
    for encoded in found:
        assert [r.value for r in records(encoded)] == [b"%d-%d" % (lot, encoded.partition) for lot in range(100)]


def test_topics_by_column_and_text_columns() -> None:
    """A topic column spreads rows over topics, each with its own number of partitions; text is written as UTF-8."""
    lot = pa.record_batch(
        {"topic": pa.array(["b", "a", "b"]), "value": pa.array(["é", "x", "y"]), "key": pa.array(["k"] * 3)}
    )
    encoding = Encoder({"a": 1, "b": 3}.__getitem__, Random(1), now_ms=lambda: NOW_MS)
    found = {(e.topic, e.partition): [r.value for r in records(e)] for e in encode(encoding, lot)}
    key_partition = packing.murmur2(bytes_array(b"k"), 0, 1) % 3
    assert found == {("a", 0): [b"x"], ("b", key_partition): ["é".encode(), b"y"]}


@pytest.mark.parametrize(
    ("columns", "settings", "code", "words"),
    [
        ({"value": [b"a", b"b" * 5000]}, {"record_bytes_max": 2000}, ErrorCode.MESSAGE_TOO_LARGE, "row 4 is larger"),
        ({"value": [b"a"], "partition": [2]}, {}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "row 3 names partition 2"),
        ({"value": [b"a"], "partition": [-1]}, {}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "row 3 names partition -1"),
        ({"value": [b"a"], "topic": [None]}, {"topic": None}, ErrorCode.INVALID_TOPIC_EXCEPTION, "row 3 has no topic"),
        ({"value": [b"a"]}, {"topic": None}, ErrorCode.INVALID_TOPIC_EXCEPTION, "no column"),
        ({"value": [b"a"], "headers": [[None]]}, {}, ErrorCode.INVALID_RECORD, "row 3 has a header without a key"),
    ],
)
def test_a_row_that_cannot_be_sent_is_named(
    columns: dict[str, Any], settings: dict[str, Any], code: ErrorCode, words: str
) -> None:
    encoding = encoder(2, **settings)
    before = {"value": [b"ok"] * 3} | ({"topic": ["t"] * 3} if settings.get("topic", "") is None else {})
    if "no column" in words:
        before, words = {}, "no topic is set"
    if before:
        encode(encoding, rows(**before))
    with pytest.raises(KafkaError, match=words) as refused:
        encode(encoding, rows(**columns))
    assert refused.value.code == code


def test_a_column_of_another_type_is_refused_by_name() -> None:
    with pytest.raises(KafkaError, match="column 'value' is int64"):
        encode(encoder(), pa.record_batch({"value": pa.array([1])}))
    with pytest.raises(KafkaError, match="column 'headers'"):
        encode(encoder(), pa.record_batch({"value": pa.array(["a"]), "headers": pa.array([1])}))
