"""Rows of Delta Lake tables: each once, whatever is repeated, in the types that a table has."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from ottla.connect.connector import ConnectorContext, SinkBatch
from ottla.connect.connectors.delta.delta_sink import DeltaLakeSink
from ottla.connect.connectors.delta.tables import Table
from ottla.connect.data.logical import TIME_SCHEMA, TIMESTAMP_SCHEMA, millis_to_time
from ottla.connect.data.record import Record
from ottla.connect.data.schema import Field, Schema, Type
from ottla.connect.errors import BadConfig, ConnectError, RetriableError
from ottla.connect.settings.parsing import parse
from ottla.topic_partition import TopicPartition
from tests.s3_server import ACCESS, REGION, make_bucket, s3_server

ROW = Schema(Type.STRUCT, fields=(Field("n", Schema(Type.INT64)), Field("s", Schema(Type.STRING, optional=True))))
WIDE = Schema(Type.STRUCT, fields=(*ROW.fields, Field("more", Schema(Type.FLOAT64, optional=True))))
TEXTS = Schema(Type.STRUCT, fields=(Field("n", Schema(Type.STRING)),))


def make_sink(uri: Path | str, **more: str) -> DeltaLakeSink:
    given = {"table.uri": str(uri)} | {name.replace("_", "."): text for name, text in more.items()}
    sink = DeltaLakeSink(parse(DeltaLakeSink.settings, given), ConnectorContext("unit", "workers", 1, {}))
    sink.start()
    return sink


def make_batch(values: Sequence[Any], schema: Schema | None = ROW, first: int = 0, partition: int = 0) -> SinkBatch:
    records = [
        Record("t", value, None if value is None else schema, partition=partition, offset=first + n)
        for n, value in enumerate(values)
    ]
    return SinkBatch("t", partition, first, first + len(values), [records])


def make_rows(start: int, end: int) -> list[dict[str, Any]]:
    return [{"n": n, "s": str(n % 3)} for n in range(start, end)]


def read(uri: Path | str, storage: dict[str, str] | None = None) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = DeltaTable(str(uri), storage_options=storage).to_pyarrow_table().to_pylist()
    return sorted(rows, key=lambda row: (row["n"] is None, row["n"]))


def test_repeated_batches_add_nothing(tmp_path: Path) -> None:
    """Whole or in part, also if they are cut elsewhere; each partition for itself."""
    sink = make_sink(tmp_path)
    sink.write(make_batch(make_rows(0, 10)))
    sink.write(make_batch(make_rows(0, 10)))
    sink.write(make_batch(make_rows(5, 15), first=5))
    sink.write(make_batch(make_rows(100, 103), partition=1))
    assert read(tmp_path) == make_rows(0, 15) + make_rows(100, 103)
    partitions = [TopicPartition("t", number) for number in range(3)]
    assert make_sink(tmp_path).find_positions(partitions) == {partitions[0]: 15, partitions[1]: 3}
    assert DeltaTable(str(tmp_path)).transaction_version("workers-unit-t-0") == 15


def test_two_writers_of_a_partition(tmp_path: Path, seed: int) -> None:
    """An owner and one that was replaced write the same records in any order and cut: each row comes once."""
    random = Random(seed)
    sinks = [make_sink(tmp_path), make_sink(tmp_path)]
    positions = [0, 0]
    while min(positions) < 60:
        who = random.randrange(2)
        start = positions[who]
        end = min(start + random.randrange(1, 15), 60)
        sinks[who].write(make_batch(make_rows(start, end), first=start))
        positions[who] = end
    assert read(tmp_path) == make_rows(0, 60)


def test_commits_that_overlap(tmp_path: Path) -> None:
    """Of two writers that have seen the same position, one is refused."""
    sink = make_sink(tmp_path)
    sink.write(make_batch(make_rows(0, 5)))
    late = Table(str(tmp_path), sink._storage)
    sink.write(make_batch(make_rows(5, 10), first=5))
    with pytest.raises(RetriableError, match="another writer was faster"):
        late.append(pa.Table.from_pylist(make_rows(5, 10)), "workers-unit-t-0", 10, [])
    assert read(tmp_path) == make_rows(0, 10)


def test_a_table_in_a_bucket() -> None:
    """The same promises as in a directory: repeated batches add nothing, and of two commits that overlap one fails."""
    with s3_server() as address:
        make_bucket(address, "lake")
        access = {name.replace(".", "_"): text for name, text in ACCESS.items()}
        sink = make_sink("s3://lake/rows", s3_region=REGION, store_url=address, **access)
        assert sink.find_positions([TopicPartition("t", 0)]) == {}
        sink.write(make_batch(make_rows(0, 5)))
        late = Table("s3://lake/rows", sink._storage)
        sink.write(make_batch(make_rows(3, 10), first=3))
        assert sink.find_positions([TopicPartition("t", 0)]) == {TopicPartition("t", 0): 10}
        with pytest.raises(RetriableError, match="another writer was faster"):
            late.append(pa.Table.from_pylist(make_rows(5, 10)), "workers-unit-t-0", 10, [])
        assert read("s3://lake/rows", sink._storage.to_dict()) == make_rows(0, 10)


@pytest.mark.parametrize("uri", ["gs://lake/rows", "abfss://lake/rows", ""])
def test_stores_that_are_not_supported(uri: str) -> None:
    with pytest.raises(BadConfig, match=r"table\.uri"):
        make_sink(uri)


def test_schemas_that_grow(tmp_path: Path) -> None:
    """A field more is a column more, also in the middle of a batch."""
    sink = make_sink(tmp_path)
    records = make_batch(make_rows(0, 2)).rows[0]
    wider = make_batch([{"n": 2, "s": None, "more": 0.5}], WIDE, 2).rows[0]
    sink.write(SinkBatch("t", 0, 0, 3, [records, wider]))
    sink.write(make_batch(make_rows(3, 4), first=3))
    expected = [{**row, "more": None} for row in make_rows(0, 4)]
    expected[2] = {"n": 2, "s": None, "more": 0.5}
    assert read(tmp_path) == expected


def test_a_table_that_must_not_grow(tmp_path: Path) -> None:
    sink = make_sink(tmp_path, schema_evolution="refuse")
    sink.write(make_batch(make_rows(0, 1)))
    written = sink.write(make_batch([{"n": 1, "s": "", "more": None}, {"n": 2, "s": "", "more": 1.0}], WIDE, 1))
    assert [(each.record.offset, each.reason) for each in written.refused] == [(2, "the table has no column more")]


def test_rows_that_do_not_fit(tmp_path: Path) -> None:
    """The position stops before the first bad row: it is refused again until its dead letter is committed."""
    sink = make_sink(tmp_path)
    sink.write(make_batch(make_rows(0, 2)))
    batch = make_batch([{"n": "2"}, {"n": "x"}, {"n": "y"}, {"n": "5"}], TEXTS, 2)
    for _ in range(2):
        written = sink.write(batch)
        assert [each.record.offset for each in written.refused] == [3, 4]
        assert "the column n has the type int64" in written.refused[0].reason
        assert written.end == 5
        assert sink.find_positions([TopicPartition("t", 0)]) == {TopicPartition("t", 0): 3}
    assert not sink.write(make_batch([{"n": "5"}], TEXTS, 5)).refused
    assert [row["n"] for row in read(tmp_path)] == [0, 1, 2, 5]


def test_values_without_fields(tmp_path: Path) -> None:
    written = make_sink(tmp_path).write(make_batch(["text", "more"], Schema(Type.STRING)))
    assert [each.record.offset for each in written.refused] == [0, 1]


def test_records_without_values(tmp_path: Path) -> None:
    batch = make_batch([{"n": 0, "s": ""}, None, {"n": 2, "s": ""}])
    written = make_sink(tmp_path / "a", behavior_on_null_values="fail").write(batch)
    assert ([each.record.offset for each in written.refused], written.end) == ([1], 2)
    assert [row["n"] for row in read(tmp_path / "a")] == [0]
    assert not make_sink(tmp_path / "b").write(batch).refused
    assert [row["n"] for row in read(tmp_path / "b")] == [0, 2]


def test_partitions_and_types(tmp_path: Path) -> None:
    schema = Schema(
        Type.STRUCT,
        fields=(
            Field("n", Schema(Type.INT32)),
            Field("day", Schema(Type.STRING)),
            Field("at", TIMESTAMP_SCHEMA),
            Field("time", TIME_SCHEMA),
            Field("list", Schema(Type.ARRAY, value_schema=Schema(Type.INT32))),
            Field("map", Schema(Type.MAP, key_schema=Schema(Type.STRING), value_schema=Schema(Type.INT64))),
        ),
    )
    at = datetime(2026, 1, 2, 3, 4, 5, 6000, UTC)
    row = {"n": 1, "day": "mon", "at": at, "time": millis_to_time(1500), "list": [1, 2], "map": {"k": 1}}
    sink = make_sink(tmp_path / "${topic}", partition_by="day")
    assert not sink.write(make_batch([row, {**row, "n": 2, "day": "tue"}], schema)).refused
    table = DeltaTable(str(tmp_path / "t"))
    assert table.metadata().partition_columns == ["day"]
    assert sorted(each.name for each in (tmp_path / "t").glob("day=*")) == ["day=mon", "day=tue"]
    assert read(tmp_path / "t")[0] == {**row, "time": 1500, "map": [("k", 1)]}
    written = sink.write(make_batch([{"n": 3}], Schema(Type.STRUCT, fields=(Field("n", Schema(Type.INT32)),)), 2))
    assert "there is no field day" in written.refused[0].reason


def test_positions_that_a_user_changes(tmp_path: Path) -> None:
    sink, where = make_sink(tmp_path), TopicPartition("t", 0)
    sink.write(make_batch(make_rows(0, 10)))
    assert sink.alter_positions({where: 5})
    assert sink.find_positions([where]) == {where: 5}
    sink.write(make_batch(make_rows(5, 10), first=5))
    assert len(read(tmp_path)) == 15
    assert sink.alter_positions({where: None})
    assert sink.find_positions([where]) == {}


def test_rows_without_a_schema(tmp_path: Path) -> None:
    sink = make_sink(tmp_path)
    sink.write(make_batch([{"n": 1, "s": "a"}, {"n": 2, "s": None}], None))
    assert read(tmp_path) == [{"n": 1, "s": "a"}, {"n": 2, "s": None}]


def test_when_rows_are_written(tmp_path: Path) -> None:
    """When there are enough, or when the first has waited for long enough."""
    where = TopicPartition("t", 0)
    sink = make_sink(tmp_path, flush_size="10", flush_interval_ms="10000000")
    assert [sink.is_due(where, 0, end) for end in (5, 9, 10)] == [False, False, True]
    assert make_sink(tmp_path, flush_interval_ms="0").is_due(where, 0, 1)


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    """It is told in one line."""
    (tmp_path / "file").write_text("")
    with pytest.raises(ConnectError) as failure:
        make_sink(tmp_path / "file").write(make_batch(make_rows(0, 1)))
    assert "\n" not in str(failure.value)
