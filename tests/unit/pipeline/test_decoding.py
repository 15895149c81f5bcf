"""Record batches become Arrow columns, compared record by record with the plain decoder of `batch.py`."""

from collections.abc import Generator
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.errors import ErrorCode, KafkaError
from ottla.pipeline import decoding
from ottla.pipeline.decoding import COLUMNS, TYPES, arrow_schema, decode, decode_up_to
from ottla.records.batch import HEADER_SIZE, Record, encode, encode_control
from ottla.records.batch import decode as decode_plainly
from ottla.records.compression import NAMES

ALL = (*COLUMNS, "headers")
FAR = 1 << 62

fields = st.one_of(st.none(), st.binary(max_size=300))
record_headers = st.lists(st.tuples(st.text(max_size=5), st.one_of(st.none(), st.binary(max_size=9))), max_size=3)
records = st.lists(st.tuples(fields, fields, record_headers, st.integers(-1, 1 << 45)), min_size=1, max_size=40)


def rows_of(batches: list[pa.RecordBatch]) -> list[dict[str, Any]]:
    for batch in batches:
        batch.validate(full=True)
    return [row for batch in batches for row in batch.to_pylist()]


def expected(found: list[Record]) -> list[tuple[object, ...]]:
    return [(each.key, each.value, each.offset, each.timestamp * 1000, list(each.headers) or None) for each in found]


def told(batches: list[pa.RecordBatch]) -> list[tuple[object, ...]]:
    plain = [
        batch.set_column(batch.schema.get_field_index("timestamp"), "timestamp", batch["timestamp"].cast(pa.int64()))
        for batch in batches
    ]
    return [
        (
            row["key"],
            row["value"],
            row["offset"],
            row["timestamp"],
            None if row["headers"] is None else [(pair["key"], pair["value"]) for pair in row["headers"]],
        )
        for row in rows_of(plain)
    ]


@given(st.lists(records, min_size=1, max_size=5), st.integers(0, 4))
def test_every_column_is_what_the_plain_decoder_says(batches: list[list[tuple]], codec: int) -> None:  # type: ignore[type-arg]
    # Any keys, values, headers and times are decoded, in any codec, with several batches in one view.
    raw, plain, offset = bytearray(), [], 7
    for batch in batches:
        encoded = encode(batch, base_offset=offset, codec=codec)
        plain += decode_plainly(encoded)
        raw += encoded
        offset += len(batch) + 3  # gaps, as compaction leaves them
    assert told(list(decode([memoryview(raw)], "t", 2, 0, FAR, ALL))) == expected(plain)


@pytest.mark.parametrize("codec", range(5), ids=NAMES)
def test_arrow_batches_are_large_and_whole(codec: int) -> None:
    # 40,000 records in batches of 100 come as two Arrow batches, the first of at least 10,000 rows, none lost.
    made = [
        encode([(b"%d" % at, b"x" * 50, (), 5) for at in range(first, first + 100)], base_offset=first, codec=codec)
        for first in range(0, 40_000, 100)
    ]
    found = list(decode(map(memoryview, made), "t", 0, 0, FAR))
    assert [batch.num_rows for batch in found] == [32_700, 7_300]
    table = pa.Table.from_batches(found)
    assert table["offset"].to_pylist() == list(range(40_000))
    assert table["key"].to_pylist() == [b"%d" % offset for offset in range(40_000)]


def test_types_are_exactly_those_that_spark_expects() -> None:
    raw = encode([(b"k", b"v", [("h", b"1")], 1)])
    (batch,) = decode([memoryview(raw)], "events", 3, 0, FAR, ALL)
    assert batch.schema == arrow_schema(ALL)
    assert dict(zip(batch.schema.names, batch.schema.types, strict=True)) == TYPES
    row = batch.to_pylist()[0]
    assert (row["topic"], row["partition"], row["timestampType"]) == ("events", 3, 0)
    with pytest.raises(ValueError, match="there is no column 'size'"):
        arrow_schema(["size"])


def test_only_requested_columns_and_offsets_are_returned() -> None:
    # Columns have the given order, and offsets are within the range. Control batches are never returned.
    raw = encode([(None, b"%d" % n, (), n) for n in range(10)]) + encode_control(1, 0, True, 0, 5)
    (batch,) = decode([memoryview(raw)], "t", 0, 3, 6, ["offset", "value"])
    assert batch.to_pydict() == {"offset": [3, 4, 5], "value": [b"3", b"4", b"5"]}
    assert list(decode([memoryview(raw)], "t", 0, 50, 60)) == []
    assert list(decode([], "t", 0, 0, 10)) == []
    assert list(decode([memoryview(b"")], "t", 0, 0, 10)) == []


def test_decoding_ends_after_enough_rows() -> None:
    """The rest is not read, and the offset after the last row is returned."""

    def read() -> Generator[memoryview, None, None]:
        for first in (0, 3, 6):
            yield memoryview(encode([(None, b"v", (), 1000)] * 3, base_offset=first))

    def take(rows_max: int) -> tuple[list[int], int, bool]:
        batches = read()
        found, following = decode_up_to(rows_max, 1 << 20, batches, "orders", 0, 1, 9)
        return [row["offset"] for row in rows_of(found)], following, next(batches, None) is None

    assert take(100) == ([1, 2, 3, 4, 5, 6, 7, 8], 9, True)
    assert take(4) == ([1, 2, 3, 4], 5, True)


def test_append_time_replaces_all_timestamps() -> None:
    raw = encode([(None, b"", (), 5), (None, b"", (), 9)], log_append_time=True)
    (batch,) = decode([memoryview(raw)], "t", 0, 0, FAR, ["timestamp", "timestampType"])
    assert batch["timestamp"].cast(pa.int64()).to_pylist() == [9000, 9000]
    assert batch["timestampType"].to_pylist() == [1, 1]


def test_header_names_that_are_not_text_are_made_readable() -> None:
    raw = bytearray(encode([(None, b"", [("AB", b"1"), ("ok", None)], 5)]))
    at = raw.index(b"AB")
    raw[at : at + 2] = b"\xffB"
    (batch,) = decode([memoryview(raw)], "t", 0, 0, FAR, ["headers"])
    assert batch.to_pylist() == [{"headers": [{"key": "�B", "value": b"1"}, {"key": "ok", "value": None}]}]


def test_a_batch_larger_than_a_buffer_gets_its_own_buffer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "ROWS_MAX", 4)
    monkeypatch.setattr(decoding, "BYTES_MAX", 200)
    sizes = [2, 1, 30, 1, 4]
    made, first = [], 0
    for size in sizes:
        made.append(encode([(None, b"x" * 20, [("h", b"y")] * 3, 1)] * size, base_offset=first))
        first += size
    found = list(decode(map(memoryview, made), "t", 0, 0, FAR, ALL))
    assert pa.Table.from_batches(found)["offset"].to_pylist() == list(range(sum(sizes)))
    assert max(batch.num_rows for batch in found) == 30


def test_batches_that_are_held_keep_their_contents() -> None:
    # Buffers are reused only when nobody can see them, so a list of all batches equals one at a time.
    made = [encode([(None, b"%d" % (n % 7), (), 1)] * 20_000, base_offset=n * 20_000) for n in range(6)]
    found = list(decode(map(memoryview, made), "t", 0, 0, FAR, ["value"]))
    assert [batch["value"][0].as_py() for batch in found] == [b"%d" % n for n in range(6)]
    found.clear()
    again = list(decode(map(memoryview, made), "t", 0, 0, FAR, ["value"]))
    assert [batch["value"][-1].as_py() for batch in again] == [b"%d" % n for n in range(6)]


def test_damage_is_an_error_that_names_its_batch(seed: int) -> None:
    # Any bytes give rows, or CORRUPT_MESSAGE that names topic, partition and batch. Values are short, so that most
    # changes hit lengths and counts.
    random = Random(seed)
    sound = encode([(b"key", b"value" * (n % 2), [("h", b"x")], n) for n in range(30)], base_offset=100)
    refused = 0
    for _ in range(300):
        raw = bytearray(sound)
        for _ in range(random.randint(1, 4)):
            raw[random.randrange(HEADER_SIZE, len(raw))] = random.randrange(256)
        try:
            rows_of(list(decode([memoryview(raw)], "events", 1, 0, FAR, ALL)))
        except KafkaError as error:
            refused += 1
            assert error.code == ErrorCode.CORRUPT_MESSAGE
            assert "events-1: the batch with base offset 100 cannot be read" in error.message
    assert refused > 50


def test_a_batch_that_claims_too_many_records_is_refused() -> None:
    raw = bytearray(encode([(None, b"x", (), 1)]))
    raw[57:61] = (1 << 30).to_bytes(4, "big")
    with pytest.raises(KafkaError, match="1073741824 records in"):
        list(decode([memoryview(raw)], "t", 0, 0, FAR))
