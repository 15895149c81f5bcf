"""Rows to records: sinks, parcels, late rows and changelogs."""

from typing import Any

import pyarrow as pa
import pytest

from ottla.streams import parcels
from ottla.streams.errors import FunctionFailed
from ottla.streams.formats import RecordFormat
from ottla.streams.planning.plan import PARCELS, SinkPlan
from ottla.streams.rows import stream_schema
from ottla.streams.tasks.placement import choose_partitions
from ottla.streams.tasks.writing import Records, write_changes, write_late_rows, write_rows
from tests.unit.streams.kernels.harness import make_rows

COLUMNS = pa.schema([("key", pa.string()), ("value", pa.int64()), ("to", pa.string())])
STRING = RecordFormat("string", type=pa.string())
JSON = RecordFormat("json", type=pa.struct([("value", pa.int64()), ("to", pa.string())]))


def sink(**options: Any) -> SinkPlan:
    return SinkPlan(0, COLUMNS, ("key",), **{"topic": "out", "key_format": STRING, "value_format": JSON, **options})


def write(
    plan: SinkPlan, *events: dict[str, Any], times: dict[int, int] | None = None, count: int = 4
) -> list[Records]:
    rows = make_rows(COLUMNS, [{"at": 7, **each} for each in events], is_table=plan.is_table)
    return write_rows(plan, rows, partition=1, partition_count=count, source_times=times or {})


def test_records_have_key_value_time_and_headers() -> None:
    ((topic, records),) = write(sink(), {"key": "a", "value": 1, "to": "x", "headers": [{"key": "h", "value": b"v"}]})

    assert topic == "out"
    (record,) = records.to_pylist()
    assert (record["key"], record["value"]) == (b"a", b'{"value":1,"to":"x"}')
    assert record["timestamp"].timestamp() == 0.007
    assert record["headers"] == [{"key": "h", "value": b"v"}]
    assert record["partition"] is None


def test_a_row_without_a_value_is_a_record_without_one() -> None:
    ((_, stream),) = write(sink(), {"key": "a"})
    ((_, table),) = write(sink(is_table=True), {"key": "a", "deleted": True, "value": 3})

    assert stream["value"].to_pylist() == table["value"].to_pylist() == [None]


def test_a_column_names_the_topic() -> None:
    plan = sink(topic=None, topic_column="to")
    found = write(plan, {"key": "a", "to": "x"}, {"key": "b", "to": "y"}, {"key": "c", "to": "x"})

    assert [(topic, records["key"].to_pylist()) for topic, records in found] == [("x", [b"a", b"c"]), ("y", [b"b"])]
    with pytest.raises(FunctionFailed, match="column 'to' names no topic"):
        write(plan, {"key": "a", "value": 1})


def test_parcels_go_to_the_partitions_of_their_keys() -> None:
    plan = sink(holds=PARCELS, partition_by=("key",))
    ((_, records),) = write(plan, *({"key": str(number), "value": number} for number in range(20)))

    for parcel, partition in zip(records["value"].to_pylist(), records["partition"].to_pylist(), strict=True):
        keys = parcels.unpack([parcel], stream_schema(COLUMNS)).rows["key"].to_pylist()
        assert set(choose_partitions([key.encode() for key in keys], 4, 0).tolist()) == {partition}
    assert records.num_rows == 4


def test_times_are_told_to_every_partition_and_only_if_asked_for() -> None:
    silent = sink(holds=PARCELS, partition_by=("key",))
    telling = sink(holds=PARCELS, partition_by=("key",), tells_times=True)

    assert write(silent, times={3: 99}) == []
    ((_, records),) = write(telling, {"key": "a", "value": 1}, times={3: 99})
    assert records["partition"].to_pylist() == [0, 1, 2, 3]
    assert all(parcels.unpack([each], stream_schema(COLUMNS))[1] == {3: 99} for each in records["value"].to_pylist())


def test_times_come_with_the_last_parcel_of_many() -> None:
    """A reader that has only the first parcels of a batch must not close windows that the others have rows for."""
    plan = sink(holds=PARCELS, partition_by=None, tells_times=True)
    ((_, records),) = write(plan, *({"key": "a", "to": "x" * 400_000} for _ in range(5)), times={3: 99})

    times = [parcels.unpack([each], stream_schema(COLUMNS))[1] for each in records["value"].to_pylist()]
    assert len(times) > 2
    assert times == [*({} for _ in times[1:]), {3: 99}]
    assert set(records["partition"].to_pylist()) == {1}


def test_late_rows_are_json_by_the_key_of_their_step() -> None:
    records = write_late_rows(make_rows(COLUMNS, [{"key": "a", "value": 1, "at": 3}]), ("key",))

    assert records["key"].to_pylist() == [b"a"]
    assert records["value"].to_pylist() == [b'{"key":"a","value":1,"to":null}']


def test_changes_are_records_of_the_tasks_own_partition() -> None:
    records = write_changes({b"a": b"1", b"b": None}, {b"a": 3}, partition=2, time_ms=5).to_pylist()

    assert [(each["key"], each["value"], each["partition"]) for each in records] == [(b"a", b"1", 2), (b"b", None, 2)]
    assert [each["timestamp"].microsecond for each in records] == [3000, 5000]
