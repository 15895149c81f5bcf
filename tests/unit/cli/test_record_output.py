"""How `ottla consume` writes records: the bytes as they are, JSON that can be read back, templates like kcat's."""

import io
import json
from collections.abc import Sequence

import pytest
from confluent_kafka import Message
from hypothesis import given
from hypothesis import strategies as st

from ottla.cli.command_error import CommandError
from ottla.cli.record_input import JSON as JSON_INPUT
from ottla.cli.record_input import LineFormat, records
from ottla.cli.record_output import writer_of


def message(
    key: bytes | None = b"k", value: bytes | None = b"v", headers: Sequence[tuple[str, bytes | None]] = ()
) -> Message:
    return Message("orders", 2, 7, key, value, [*headers], None, (1, 1_700_000_000_000))


def write(form: str, record: Message, null: bytes = b"") -> bytes:
    return writer_of(form, key_separator=b"\t", delimiter=b"\n", null=null)(record)


def test_a_value_is_written_unchanged() -> None:
    assert write("value", message(value=b"\xff\n\0")) == b"\xff\n\0\n"
    assert write("value", message(value=None)) == b"\n"
    assert write("value", message(value=None), b"NULL") == b"NULL\n"


def test_keys_come_before_values() -> None:
    assert write("key-value", message()) == b"k\tv\n"
    assert write("key-value", message(key=None), b"-") == b"-\tv\n"


def test_json_has_every_field_and_base64_for_bytes_that_are_not_text() -> None:
    line = write("json", message(b"\xff", "é".encode(), [("h", None), ("h", b"\xfe")]))
    assert line.endswith(b"\n")
    assert json.loads(line) == {
        "topic": "orders",
        "partition": 2,
        "offset": 7,
        "timestamp": 1_700_000_000_000,
        "key": {"base64": "/w=="},
        "value": "é",
        "headers": [["h", None], ["h", {"base64": "/g=="}]],
    }


@given(
    st.none() | st.binary(),
    st.none() | st.binary(),
    st.lists(st.tuples(st.text(st.characters(codec="utf-8", exclude_characters="\0")), st.none() | st.binary())),
)
def test_produce_reads_the_json_that_consume_writes(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]]
) -> None:
    # Each record is one line, whatever its bytes are, and the line gives the same record back.
    line = write("json", message(key, value, headers))
    assert line.count(b"\n") == 1
    (record,) = records(io.BytesIO(line), "input", JSON_INPUT, LineFormat())
    assert record == (key, value, tuple(headers), 1_700_000_000_000, 2)


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("%t %p %o %T", b"orders 2 7 1700000000000"),
        ("%k=%s\\n", b"k=v\n"),
        ("%K,%S", b"1,1"),
        ("100%%\\t\\x41\\\\%s\\0", b"100%\tA\\v\0"),
        ("%h", b"a=1,b="),
        ("é%k", "ék".encode()),
    ],
)
def test_a_template_is_filled_in(template: str, expected: bytes) -> None:
    assert write(template, message(headers=[("a", b"1"), ("b", None)])) == expected


def test_a_null_has_the_length_minus_one() -> None:
    assert write("%K %S [%s]", message(None, None), b"NULL") == b"-1 -1 [NULL]"
    assert write("%h|%S", message(None, b"")) == b"|0"


@pytest.mark.parametrize("form", ["values", "", "%q", "100%", "%s\\q", "%s\\"])
def test_an_invalid_format_is_refused(form: str) -> None:
    with pytest.raises(CommandError) as caught:
        write(form, message())
    assert caught.value.status == 2
