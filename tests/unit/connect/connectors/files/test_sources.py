"""Sources of files: what they find to read, and from where on."""

import json
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ottla.connect.connector import Source, SourceOffset, partition_key
from ottla.connect.connectors.files.avro_files import write_avro
from ottla.connect.connectors.files.directory_source import DirectorySource
from ottla.connect.connectors.files.file_source import FileStreamSource
from ottla.connect.data.columns import RecordColumns
from ottla.connect.data.conversion import columns_to_records
from ottla.connect.errors import BadConfig, ConnectError
from tests.unit.connect.connectors.files.sinks import make_connector

ROWS = [{"id": str(n), "name": f"n{n}"} for n in range(3)]


def read_new(source: Source, offsets: dict[str, SourceOffset]) -> list[Any]:
    """The values of one round. The offsets are those after it."""
    found = []
    for part in source.plan(offsets):
        key = partition_key(part.partition)
        for batch in source.read(part, offsets.get(key)):
            for rows in batch.rows:
                records = columns_to_records(rows) if isinstance(rows, RecordColumns) else rows
                found += [each.value for each in records]
            if batch.offset is not None:
                offsets[key] = batch.offset
    return found


def test_a_file_that_comes_late_and_is_cut(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """There is nothing to read until the file exists. A file that was cut goes on at its old position, with a line."""
    file = tmp_path / "log"
    source = make_connector(FileStreamSource, file=file, topic="t")
    offsets: dict[str, SourceOffset] = {}
    assert read_new(source, offsets) == []
    file.write_text("one\ntwo\nthr")
    assert read_new(source, offsets) == ["one", "two"]
    assert source.plan(offsets) == []
    assert offsets == {partition_key({"filename": str(file)}): {"position": 8}}
    file.write_text("x\n")
    fresh = make_connector(FileStreamSource, file=file, topic="t")
    assert read_new(fresh, offsets) == []
    assert "has 2 bytes, and 8 were read before" in caplog.text


def test_standard_input_is_refused() -> None:
    with pytest.raises(BadConfig, match="no standard input"):
        make_connector(FileStreamSource, topic="t")


@pytest.mark.parametrize("name", ["json", "csv", "text"])
def test_lines_of_a_directory_grow(name: str, tmp_path: Path) -> None:
    """New files and new lines; hidden files and other names are left out."""
    head = {"json": "", "csv": "id,name\n", "text": ""}[name]
    lines = {
        "json": [json.dumps(row) for row in ROWS],
        "csv": [f"{row['id']},{row['name']}" for row in ROWS],
        "text": [row["name"] for row in ROWS],
    }[name]
    values = [row["name"] for row in ROWS] if name == "text" else ROWS
    source = make_connector(DirectorySource, directory=tmp_path, topic="t", format=name, file_pattern="*.log")
    offsets: dict[str, SourceOffset] = {}
    (tmp_path / "a.log").write_text(head + lines[0] + "\n" + lines[1][:3])
    (tmp_path / ".hidden.log").write_text(head + lines[0] + "\n")
    (tmp_path / "other").write_text(head + lines[0] + "\n")
    assert read_new(source, offsets) == values[:1]
    with (tmp_path / "a.log").open("a") as more:
        more.write(lines[1][3:] + "\n")
    (tmp_path / "b.log").write_text(head + lines[2] + "\n")
    assert read_new(source, offsets) == values[1:]
    assert source.plan(offsets) == []


@pytest.mark.parametrize("name", ["parquet", "avro"])
def test_whole_files_of_a_directory(name: str, tmp_path: Path) -> None:
    """A file is read once, and goes on in its middle if the offset is there."""
    rows = [{"id": n, "at": f"{n}"} for n in range(10)]
    file = tmp_path / f"x.{name}"
    if name == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), file, row_group_size=4)
    else:
        file.write_bytes(write_avro(pa.array(rows), "Row"))
    source = make_connector(DirectorySource, directory=tmp_path, topic="t", format=name)
    offsets: dict[str, SourceOffset] = {}
    assert read_new(source, offsets) == rows
    assert source.plan(offsets) == []
    middle: dict[str, SourceOffset] = {partition_key({"filename": str(file)}): {"position": 7}}
    assert read_new(source, middle) == rows[7:]


def test_a_file_of_another_format_is_named(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("no such thing\n")
    for name in ("parquet", "avro", "json"):
        source = make_connector(DirectorySource, directory=tmp_path, topic="t", format=name)
        with pytest.raises(ConnectError, match="x"):
            read_new(source, {})


def test_offsets_that_a_user_sets_have_the_form_of_the_source(tmp_path: Path) -> None:
    source = make_connector(FileStreamSource, file=tmp_path / "in", topic="t")
    source.check_offset({"filename": "in"}, {"position": 3})
    source.check_offset({"filename": "in"}, None)
    for partition, offset in (({"file": "in"}, None), ({"filename": "in"}, {"position": -1}), ({"filename": "in"}, {})):
        with pytest.raises(ConnectError, match="of this source is"):
            source.check_offset(partition, offset)


def test_types_of_csv(tmp_path: Path) -> None:
    """Those that are named, and those that the first lines look like; these stay when the file grows."""
    file = tmp_path / "rows.csv"
    file.write_text("id,price,day,name,code,at\n1,2.5,2020-01-02,x,7,2020-01-02 03:04:05\n,,,,,\n")
    config = {"directory": tmp_path, "topic": "t", "format": "csv", "csv_infer_types": "true"}
    source = make_connector(DirectorySource, **config, csv_types="code:string,id:int32")
    offsets: dict[str, SourceOffset] = {}
    first: dict[str, Any] = {"id": 1, "price": 2.5, "day": date(2020, 1, 2), "name": "x", "code": "7"}
    first["at"] = datetime(2020, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert read_new(source, offsets) == [first, dict.fromkeys(first)]
    with file.open("a") as more:
        more.write("2,3,2020-01-03,5,8,2020-01-02 03:04:06\n")
    [second] = read_new(source, offsets)
    assert (second["id"], second["price"], second["name"], second["code"]) == (2, 3.0, "5", "8")
    with file.open("a") as more:
        more.write("3,cheap,2020-01-03,5,8,2020-01-02 03:04:06\n")
    with pytest.raises(ConnectError, match=r"csv\.types can name another type"):
        read_new(source, offsets)


def test_csv_without_types_is_text(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("id,day\n1,2020-01-02\n")
    source = make_connector(DirectorySource, directory=tmp_path, topic="t", format="csv")
    assert read_new(source, {}) == [{"id": "1", "day": "2020-01-02"}]


@pytest.mark.parametrize("types", ["id", "id:number", ":int32"])
def test_types_that_are_none(types: str, tmp_path: Path) -> None:
    with pytest.raises(BadConfig, match="is not column:type"):
        make_connector(DirectorySource, directory=tmp_path, topic="t", format="csv", csv_types=types)
