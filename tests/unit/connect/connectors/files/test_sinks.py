"""Sinks of files: each record once, wherever the writer dies, and one owner at a time."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from ottla.connect.connector import Sink, SinkBatch, Written
from ottla.connect.connectors.files.avro_files import read_avro
from ottla.connect.connectors.files.directory_sink import DirectorySink
from ottla.connect.connectors.files.file_sink import FileStreamSink, show
from ottla.connect.connectors.files.ledger import NotOwner
from ottla.connect.data.columns import RecordColumns
from ottla.connect.data.schema import Field, Schema, Type
from ottla.connect.errors import BadConfig, ConnectError
from ottla.connect.settings.definition import Settings
from ottla.topic_partition import TopicPartition
from tests.unit.connect.connectors.files.sinks import list_files, make_batch, make_connector

WHERE = TopicPartition("t", 0)
ROWS = [{"id": n, "name": f"n{n}", "kind": "ab"[n % 2]} for n in range(5)]


class Died(BaseException):
    """Stands for a kill: nothing of ours catches it."""


def write_all(make: Any, batches: Any) -> None:
    """As a worker does: go on from the positions that the target knows, after each death with a new sink."""
    sink: Sink = make()
    for batch in batches:
        position = sink.find_positions([WHERE]).get(WHERE, 0)
        if position < batch.end:
            sink.write(batch)


@pytest.mark.parametrize("kind", ["file", "directory"])
def test_a_writer_may_die_at_every_step(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Die before the n-th call to the disk, for every n; then another writer goes on. Each row is there once."""
    batches = [make_batch(0, ["a", "b", "c"]), make_batch(3, ["d", "e"])]
    calls = {name: getattr(os, name) for name in ("fsync", "replace", "truncate")}
    for deadline in range(1, 200):
        place = tmp_path / f"{deadline}"
        place.mkdir()
        left = [deadline]

        def make(place: Path = place) -> Sink:
            if kind == "file":
                return make_connector(FileStreamSink, file=place / "out")
            return make_connector(
                DirectorySink, directory=place, format="text", flush_size=2, rotate_schedule_interval_ms=0
            )

        for name, call in calls.items():

            def dying(*arguments: Any, call: Any = call, left: list[int] = left) -> Any:
                left[0] -= 1
                if left[0] == 0:
                    raise Died
                return call(*arguments)

            monkeypatch.setattr(os, name, dying)
        has_died = False
        try:
            write_all(make, batches)
        except Died:
            has_died = True
            write_all(make, batches)
        monkeypatch.undo()
        texts = [(place / each).read_text() for each in list_files(place)]
        assert sorted("".join(texts).split()) == ["a", "b", "c", "d", "e"], deadline
        if not has_died:
            assert deadline > 5
            return
    raise AssertionError("the writer makes too many calls")


@pytest.mark.parametrize("kind", ["file", "directory"])
def test_a_new_owner_shuts_out_the_old_one(kind: str, tmp_path: Path) -> None:
    """The older sink cannot write any more."""

    def make() -> Sink:
        if kind == "file":
            return make_connector(FileStreamSink, file=tmp_path / "out")
        return make_connector(DirectorySink, directory=tmp_path, format="text")

    older = make()
    older.find_positions([WHERE])
    newer = make()
    newer.find_positions([WHERE])
    with pytest.raises(NotOwner):
        older.write(make_batch(0, ["a"]))
    newer.write(make_batch(0, ["a"]))


def test_rows_that_follow_a_cut_wait(tmp_path: Path) -> None:
    """Files have flush.size rows and the name of their first offset; the rest comes again and keeps its place."""
    sink = make_connector(DirectorySink, directory=tmp_path, flush_size=2, rotate_schedule_interval_ms=-1)
    sink.find_positions([WHERE])
    assert sink.write(make_batch(10, ROWS)).end == 14
    assert sink.write(make_batch(14, ROWS[4:])).end == 14
    assert sink.write(make_batch(14, [*ROWS[4:], {"id": 5, "name": "x", "kind": "a"}])).end == 16
    names = [f"topics/t/partition=0/t+0+00000000{n}.json" for n in (10, 12, 14)]
    assert list_files(tmp_path) == names
    assert [json.loads(line) for line in (tmp_path / names[0]).read_text().splitlines()] == ROWS[:2]


def test_formats_hold_what_was_written(tmp_path: Path) -> None:
    """Each format is read back by a library of its own, or by the source's reader."""
    for name in ("json", "csv", "parquet", "avro"):
        directory = tmp_path / name
        sink = make_connector(DirectorySink, directory=directory, format=name, rotate_schedule_interval_ms=0)
        sink.find_positions([WHERE])
        assert sink.write(make_batch(0, ROWS)).end == 5
        [file] = list_files(directory)
        path = directory / file
        found: Any
        if name == "json":
            found = [json.loads(line) for line in path.read_text().splitlines()]
        elif name == "csv":
            found = pa_csv.read_csv(path).to_pylist()
        elif name == "parquet":
            assert path.name == "t+0+0000000000.snappy.parquet"
            found = pq.ParquetFile(path).read().to_pylist()
        else:
            with path.open("rb") as opened:
                found = [row for column in read_avro(opened, 0) for row in column.to_pylist()]
        assert found == ROWS, name


def test_directories_by_field_and_by_time(tmp_path: Path) -> None:
    """Rows of several directories are written together, each row once."""
    by_field = make_connector(
        DirectorySink,
        directory=tmp_path / "f",
        partitioner_class="field",
        partition_field_name="kind",
        flush_size=2,
        rotate_schedule_interval_ms=-1,
    )
    by_field.find_positions([WHERE])
    assert by_field.write(make_batch(0, ROWS)).end == 5
    assert list_files(tmp_path / "f") == [
        "topics/t/kind=a/t+0+0000000000.json",
        "topics/t/kind=a/t+0+0000000004.json",
        "topics/t/kind=b/t+0+0000000001.json",
    ]
    by_time = make_connector(
        DirectorySink, directory=tmp_path / "t", partitioner_class="time", rotate_schedule_interval_ms=0
    )
    by_time.find_positions([WHERE])
    by_time.write(make_batch(0, ROWS, [0, 3_599_999, 3_600_000, 7_200_000, 100]))
    assert [each.rpartition("/")[0] for each in list_files(tmp_path / "t")] == [
        f"topics/t/year=1970/month=01/day=01/hour=0{n}" for n in range(3)
    ]


def test_rotation_by_the_time_of_records(tmp_path: Path) -> None:
    """A file spans less than rotate.interval.ms; the last one waits for the record that ends it."""
    sink = make_connector(
        DirectorySink, directory=tmp_path, rotate_interval_ms=100, rotate_schedule_interval_ms=-1, format="text"
    )
    sink.find_positions([WHERE])
    assert sink.write(make_batch(0, list("abcde"), [1_000, 1_050, 1_100, 1_199, 1_300])).end == 4
    assert [(tmp_path / each).read_text().split() for each in list_files(tmp_path)] == [["a", "b"], ["c", "d"]]


def test_wrong_settings_are_refused(tmp_path: Path) -> None:
    for config in (
        {"partitioner_class": "field"},
        {"partitioner_class": "time", "timezone": "Mars"},
        {"partitioner_class": "time", "path_format": "year=YYYY"},
        {"format": "xml"},
    ):
        with pytest.raises(BadConfig):
            make_connector(DirectorySink, directory=tmp_path, **config)
    for kind in (FileStreamSink,):
        with pytest.raises(BadConfig):
            make_connector(kind)


def test_values_are_shown_as_java_shows_them() -> None:
    """Structs, maps, lists and null, as Kafka's FileStreamSink writes them."""
    struct = Schema(Type.STRUCT, fields=(Field("a", Schema(Type.INT32)), Field("b", Schema(Type.BOOLEAN))))
    assert show(struct, {"a": 1, "b": True}) == "Struct{a=1,b=true}"
    assert show(None, {"a": [1, None], "b": "x"}) == "{a=[1, null], b=x}"


def test_a_column_of_texts_is_written_from_a_position_on(tmp_path: Path) -> None:
    """With nulls and letters of several bytes; what the file has already is not written again."""
    sink = make_connector(FileStreamSink, file=tmp_path / "out")
    sink.find_positions([WHERE])
    sink.write(make_batch(0, ["a", "", "ž"]))
    values = pa.array(["before", "", "ž", None, 'q"', ""])[1:]
    rows = RecordColumns("t", Schema(Type.STRING, optional=True), values, offset=pa.array([1, 2, 3, 5, 6]))
    sink.write(replace(make_batch(1, []), end=7, rows=[rows]))
    assert (tmp_path / "out").read_text() == 'a\n\nž\nnull\nq"\n\n'
    assert sink.find_positions([WHERE]) == {WHERE: 7}


@pytest.mark.parametrize("kind", ["file", "directory"])
def test_positions_are_moved_back_and_forgotten(kind: str, tmp_path: Path) -> None:
    def make() -> Sink:
        if kind == "file":
            return make_connector(FileStreamSink, file=tmp_path / "out")
        return make_connector(DirectorySink, directory=tmp_path, format="text", flush_size=2)

    sink = make()
    sink.find_positions([WHERE])
    sink.write(make_batch(0, ["a", "b"]))
    assert sink.find_positions([WHERE]) == {WHERE: 2}
    other = make()
    assert other.alter_positions({WHERE: 1})
    with pytest.raises(NotOwner):
        sink.find_positions([WHERE])
    again = make()
    assert again.find_positions([WHERE]) == {WHERE: 1}
    again.alter_positions({WHERE: None})
    assert make().find_positions([WHERE]) == {}


def test_a_sink_that_keeps_positions_and_cannot_move_them_says_so() -> None:
    class Keeping(Sink):
        settings = Settings(())

        def find_positions(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
            return dict.fromkeys(partitions, 7)

        def write(self, batch: SinkBatch) -> Written:
            return Written()

    with pytest.raises(ConnectError, match="cannot change them"):
        make_connector(Keeping).alter_positions({WHERE: 0})
