"""How `ottla produce` turns its input into records, and which errors it reports."""

import io
from pathlib import Path

import pytest

from ottla.cli.command_error import CommandError
from ottla.cli.record_input import JSON, LINES, WHOLE, InputRecord, LineFormat, lines, read_records, records


def read(data: bytes, form: str = LINES, line_format: LineFormat | None = None) -> list[InputRecord]:
    return list(records(io.BytesIO(data), "input", form, line_format or LineFormat()))


def test_every_line_is_a_value_byte_for_byte() -> None:
    # Empty lines are records too, the last line may lack its delimiter, and only the delimiter has a meaning.
    values = [record.value for record in read(b"a\n\n\xff\r\0b\nlast")]
    assert values == [b"a", b"", b"\xff\r\0b", b"last"]
    assert read(b"") == []


@pytest.mark.parametrize("chunk", [1, 2, 3, 1000])
def test_a_delimiter_of_several_bytes_may_come_in_pieces(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.cli.record_input._CHUNK", chunk)
    assert list(lines(io.BytesIO(b"a--b-c----d"), b"--")) == [b"a", b"b-c", b"", b"d"]
    assert list(lines(io.BytesIO(b"a\0b\0"), b"\0")) == [b"a", b"b"]


def test_a_key_ends_at_the_first_separator() -> None:
    found = read(b"k:v:w\n:v\nk:\n", line_format=LineFormat(key_separator=b":"))
    assert [(record.key, record.value) for record in found] == [(b"k", b"v:w"), (b"", b"v"), (b"k", b"")]


def test_a_line_without_key_separator_is_named() -> None:
    with pytest.raises(CommandError, match=r"input, line 2: .* ':'"):
        read(b"k:v\nv\n", line_format=LineFormat(key_separator=b":"))


def test_the_null_marker_makes_tombstones() -> None:
    # A field is null if it equals the marker. Without a marker nothing is null.
    found = read(b"k:NULL\nNULL:v\nk:NULLs\n", line_format=LineFormat(key_separator=b":", null=b"NULL"))
    assert [(record.key, record.value) for record in found] == [(b"k", None), (None, b"v"), (b"k", b"NULLs")]
    assert read(b"NULL\n")[0].value == b"NULL"


def test_a_whole_file_is_one_record() -> None:
    assert read(b"a\nb\n", WHOLE) == [InputRecord(None, b"a\nb\n")]


def test_json_has_every_field_of_a_record() -> None:
    line = (
        b'{"key": {"base64": "/wA="}, "value": "\xc3\xa9", "headers": [["a", null], ["a", "1"]],'
        b' "timestamp": 1700000000000, "partition": 3, "offset": 9, "topic": "t"}\n'
    )
    expected = InputRecord(b"\xff\0", "é".encode(), (("a", None), ("a", b"1")), 1_700_000_000_000, 3)
    assert read(line + b"\n" + line, JSON) == [expected, expected]


def test_json_fields_may_be_missing_or_be_documents() -> None:
    # A value that is a JSON document is sent as that document.
    found = read(b'{}\n{"value": {"a": [1]}, "headers": {"h": 2}}\n', JSON)
    assert found == [InputRecord(None, None), InputRecord(None, b'{"a": [1]}', (("h", b"2"),))]


@pytest.mark.parametrize(
    "line",
    [
        b"{",
        b"[]",
        b"\xff",
        b'{"headers": 5}',
        b'{"headers": [["a"]]}',
        b'{"headers": [[1, "a"]]}',
        b'{"timestamp": "x"}',
        b'{"value": {"base64": "?"}}',
        b'{"value": {"base64": 5}}',
        b'{"partition": -1}',
    ],
)
def test_json_that_is_no_record_is_reported(line: bytes) -> None:
    with pytest.raises(CommandError, match="input, line 2: not a record in JSON"):
        read(b"{}\n" + line + b"\n", JSON)


def test_files_are_read_one_after_the_other(tmp_path: Path) -> None:
    # `-` means standard input, and so does an empty list.
    first = tmp_path / "first"
    first.write_bytes(b"1\n2")
    names = [str(first), "-", str(first)]
    values = [record.value for record in read_records(names, io.BytesIO(b"in\n"), LINES, LineFormat())]
    assert values == [b"1", b"2", b"in", b"1", b"2"]
    assert [record.value for record in read_records([], io.BytesIO(b"in\n"), LINES, LineFormat())] == [b"in"]


def test_a_missing_file_is_named() -> None:
    with pytest.raises(CommandError, match="nowhere: No such file"):
        list(read_records(["nowhere"], io.BytesIO(), LINES, LineFormat()))
