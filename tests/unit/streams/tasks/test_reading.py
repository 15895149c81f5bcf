"""Records to rows: columns, times, bad records."""

from datetime import UTC, datetime

import pyarrow as pa

from ottla.pipeline.formats import REASON
from ottla.streams.formats import RecordFormat
from ottla.streams.memory_topics import MemoryTopic
from ottla.streams.planning.plan import SourcePlan
from ottla.streams.rows import DELETED, OFFSET, ORDER, SOURCE, STREAM_TIME, TIMESTAMP
from ottla.streams.tasks.ordering import merge_order
from ottla.streams.tasks.reading import NO_TIME, SourceRows, read_rows
from ottla.streams.tasks.writing import to_records

STRING = RecordFormat("string", type=pa.string())
AMOUNT = RecordFormat("json", type=pa.struct([("amount", pa.int64()), ("at", pa.timestamp("us", "UTC"))]))
COLUMNS = pa.schema([("key", pa.string()), ("amount", pa.int64()), ("at", pa.timestamp("us", "UTC"))])


def records(*given: tuple[bytes | None, bytes | None, int]) -> pa.Table:
    topic = MemoryTopic("in", 1)
    keys, values, times = (list(each) for each in zip(*given, strict=True)) if given else ([], [], [])
    nothing = pa.nulls(len(keys))
    times_ms = pa.array(times, pa.int64())
    topic.append(to_records(pa.array(keys, pa.binary()), pa.array(values, pa.binary()), nothing, times_ms, nothing))
    return topic.fetch(0, 0, len(keys))


def plan(*, time: str | None = None, is_table: bool = False) -> SourcePlan:
    return SourcePlan("in", COLUMNS, ("key",), is_table, key_format=STRING, value_format=AMOUNT, time=time)


def read(source: SourcePlan, *given: tuple[bytes | None, bytes | None, int], stream_time: int = NO_TIME) -> SourceRows:
    return read_rows(source, records(*given), stream_time=stream_time, number=7, order=10)


def test_rows_have_the_columns_of_key_and_value_and_ours() -> None:
    found = read(plan(), (b"a", b'{"amount": 3}', 100), (None, None, 90), (b"b", b'{"amount": 4}', 120))

    rows = found.rows.to_pylist()
    assert [(row["key"], row["amount"]) for row in rows] == [("a", 3), (None, None), ("b", 4)]
    assert [row[TIMESTAMP] for row in rows] == [100, 90, 120]
    assert [row[STREAM_TIME] for row in rows] == [100, 100, 120]
    assert [(row[ORDER], row[OFFSET], row[SOURCE]) for row in rows] == [(10, 0, 7), (11, 1, 7), (12, 2, 7)]
    assert (found.stream_time, found.source_times) == (120, {7: 120})


def test_stream_time_goes_on_from_the_batch_before() -> None:
    found = read(plan(), (b"a", None, 100), stream_time=150)

    assert found.rows[STREAM_TIME].to_pylist() == [150]
    assert found.stream_time == 150
    assert read(plan(), stream_time=150).source_times == {7: 150}
    assert read(plan()).source_times == {}


def test_a_record_without_a_value_deletes_the_key_of_a_table() -> None:
    found = read(plan(is_table=True), (b"a", b'{"amount": 3}', 0), (b"a", None, 1))

    assert found.rows[DELETED].to_pylist() == [False, True]


def test_event_time_is_that_of_its_column_but_for_deletions() -> None:
    at = datetime(1970, 1, 1, 0, 0, 5, tzinfo=UTC)
    found = read(plan(time="at", is_table=True), (b"a", b'{"at": "1970-01-01T00:00:05Z"}', 1), (b"a", None, 9))

    assert found.rows["at"].to_pylist() == [at, None]
    assert found.rows[TIMESTAMP].to_pylist() == [5000, 9]


def test_bad_records_are_set_aside_and_move_no_time() -> None:
    found = read(plan(), (b"a", b"no json", 500), (b"b", b'{"amount": 1}', 10), (b"\xff", b"{}", 20))

    assert found.rows["key"].to_pylist() == ["b"]
    assert found.bad["offset"].to_pylist() == [0, 2]
    assert found.bad["value"].to_pylist() == [b"no json", b"{}"]
    assert [reason.split(":")[0] for reason in found.bad[REASON].to_pylist()] == ["value", "key"]
    assert found.stream_time == 10


def test_a_row_without_event_time_is_bad() -> None:
    found = read(plan(time="at"), (b"a", b'{"amount": 1}', 10), (b"a", b'{"at": "1960-01-01T00:00:00Z"}', 10))

    assert found.rows.num_rows == 0
    assert found.bad[REASON].to_pylist()[0] == "time column 'at' is null"
    assert "before the epoch" in found.bad[REASON].to_pylist()[1]


def test_rows_of_several_topics_are_processed_as_kafka_streams_picks_them() -> None:
    """The next row is that of the topic whose next row has the lowest time: 1 follows 5 because it hides behind it."""
    left = read(plan(), (b"a", None, 5), (b"a", None, 1), (b"a", None, 7)).rows
    right = read(plan(), (b"b", None, 3), (b"b", None, 6), (b"b", None, 7)).rows

    first, second = merge_order([left, right])

    assert first[ORDER].to_pylist() == [1, 2, 4]
    assert second[ORDER].to_pylist() == [0, 3, 5]
