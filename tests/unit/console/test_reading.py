"""Scans over records: order, pages without gaps, searches; keys and values as people read them; exports."""

import csv
import io
import json
import struct
from collections.abc import Iterator

import pytest
from starlette.types import ASGIApp

from ottla.console.console import Console
from ottla.console.facts.decoding import LINE_MAX, SHOWN_MAX, Decoder
from ottla.console.facts.exporting import defuse
from ottla.console.facts.records import Scan, scan
from ottla.pipeline import json_text
from tests.unit.console.asgi import ask
from tests.unit.console.seeding import TIME, make_topic, put


@pytest.mark.parametrize("backwards", [True, False])
@pytest.mark.parametrize("limit", [1, 3, 7, 100])
def test_pages_neither_repeat_nor_miss_a_record(console: Console, backwards: bool, limit: int) -> None:
    # Three partitions whose times interleave, one of them empty, times that jump backwards within a partition.
    topic = make_topic(console, f"paged-{backwards}-{limit}", 4)
    put(console, topic, [b"a"] * 10)
    put(console, topic, [b"b"] * 4, partition=1, time=TIME + 3)
    put(console, topic, [b"c"] * 3, partition=1, time=TIME - 5)
    put(console, topic, [b"d"], partition=3, time=TIME + 100)
    first, end = dict.fromkeys(range(4), 0), {0: 10, 1: 7, 2: 0, 3: 1}
    positions = dict(end if backwards else first)
    seen: list[tuple[int, int]] = []
    with console.clients.borrow() as client:
        while True:
            page = scan(client, Scan(topic, first, end, positions, backwards, limit))
            assert len(page.records) <= limit
            seen += [(record.partition, record.offset) for record in page.records]
            positions = page.next_positions
            if page.is_complete:
                break
    assert sorted(seen) == [(0, number) for number in range(10)] + [(1, number) for number in range(7)] + [(3, 0)]
    for partition in (0, 1):
        offsets = [offset for where, offset in seen if where == partition]
        assert offsets == sorted(offsets, reverse=backwards)
    assert seen[0 if backwards else -1] == (3, 0)


@pytest.fixture(scope="module")
def searched(console: Console) -> Iterator[str]:
    topic = make_topic(console, "searched", 2)
    put(
        console,
        topic,
        [b'{"customer": {"id": 7, "tags": ["vip"]}, "n": 12345678901234567890}', b"plain Text"],
        key=b"first",
    )
    put(
        console, topic, [b'{"customer": {"id": 77}}', None], key=b"second", headers=[("source", b"shop-7")], partition=1
    )
    yield topic


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("q=text", {(0, 1)}),
        ("q=second&in=key", {(1, 0), (1, 1)}),
        ("q=shop-7&in=headers", {(1, 0), (1, 1)}),
        ("q=source%3Dshop", {(1, 0), (1, 1)}),
        ("q=shop-7&in=value", set()),
        ("q=7&in=field&field=customer.id", {(0, 0), (1, 0)}),
        ("q=^7$&in=field&field=customer.id&pattern=1", {(0, 0)}),
        ("q=vip&in=field&field=$.customer.tags[0]", {(0, 0)}),
        ("q=12345678901234567890&in=field&field=n", {(0, 0)}),
        ("q=P.*T&pattern=1", set()),
        ("q=p.*T&pattern=1&in=value", {(0, 1)}),
        ("q=&partition=1", {(1, 0), (1, 1)}),
        ("start=offset&offset=1", {(0, 1), (1, 1)}),
        (f"start=time&time={TIME + 1}", {(0, 1), (1, 1)}),
        ("start=oldest", {(0, 0), (0, 1), (1, 0), (1, 1)}),
        ("committed=1", {(0, 0), (0, 1), (1, 0), (1, 1)}),
    ],
)
def test_searches(app: ASGIApp, searched: str, query: str, found: set[tuple[int, int]]) -> None:
    lines = ask(app, f"/topics/{searched}/records/export?as=jsonl&{query}").text.splitlines()
    assert {(row["partition"], row["offset"]) for row in map(json.loads, lines)} == found


@pytest.mark.parametrize(
    "query",
    [
        "q=(&pattern=1",
        "start=time&time=never",
        "start=time",
        "partition=9",
        "limit=0",
        "at=x",
        "in=body",
        "keys=klingon",
    ],
)
def test_wrong_choices_are_explained(app: ASGIApp, searched: str, query: str) -> None:
    answer = ask(app, f"/topics/{searched}/records?{query}")
    assert answer.status == 400
    assert 'role="alert"' in answer.text


def test_exports(app: ASGIApp, console: Console) -> None:
    topic = make_topic(console, "exported")
    formulas = [b"=1+1", b"+1", b"-1", b"@SUM(A1)", b"\tx", b"plain", b"\xff\x00", None]
    put(console, topic, formulas, key=b"=key", headers=[("=h", b"=v")])
    answer = ask(app, f"/topics/{topic}/records/export?as=csv&start=oldest")
    assert answer.headers["content-disposition"] == 'attachment; filename="exported.csv"'
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert [row["value"] for row in rows] == ["'=1+1", "'+1", "'-1", "'@SUM(A1)", "'\tx", "plain", "ff00", ""]
    assert {row["key"] for row in rows} == {"'=key"}
    assert not any(cell.startswith(("=", "+", "-", "@")) for row in rows for cell in row.values())
    lines = [json.loads(line) for line in ask(app, f"/topics/{topic}/records/export?as=jsonl").text.splitlines()]
    assert lines[0]["value"] is None
    assert lines[1]["value"] == {"base64": "/wA="}
    assert lines[-1]["headers"] == [{"name": "=h", "value": "=v"}]
    pq = pytest.importorskip("pyarrow.parquet")
    parquet = ask(app, f"/topics/{topic}/records/export?as=parquet&start=oldest")
    table = pq.read_table(io.BytesIO(parquet.body))
    assert table["value"].to_pylist() == formulas
    assert table["offset"].to_pylist() == list(range(8))


@pytest.mark.parametrize("cell", ["=x", "+x", "-x", "@x", "\tx", "\rx", "\nx"])
def test_no_cell_is_a_formula(cell: str) -> None:
    assert defuse(cell) == "'" + cell
    assert defuse(f"a{cell}") == f"a{cell}"


@pytest.mark.parametrize(
    ("value", "wanted", "kind", "text"),
    [
        (None, "auto", "null", "null"),
        (b"", "auto", "empty", ""),
        (b'{"a":1.10}', "auto", "json", '{"a": 1.10}'),
        (b"12", "auto", "text", "12"),
        (b"12", "json", "json", "12"),
        (b"{", "json", "text", "{"),
        (b"a\nb", "auto", "text", "a b"),
        (b"\x00\x01", "auto", "hex", "0001"),
        (b"\xff", "text", "hex", "ff"),
        (b"ab", "hex", "hex", "6162"),
        (struct.pack(">q", -(2**63)), "int64", "int64", "-9223372036854775808"),
        (struct.pack(">i", 7), "int32", "int32", "7"),
        (struct.pack(">d", 0.5), "double", "double", "0.5"),
        (b"abc", "int64", "hex", "616263"),
        (b"[" * 10_000, "auto", "text", "[" * 10_000),
        (b"[" * 900 + b"]" * 900, "auto", "json", "[" * 900 + "]" * 900),
        (b"\x00\x00\x00\x00\x01x", "registry", "hex", "000000000178"),
    ],
)
def test_values_as_people_read_them(value: bytes | None, wanted: str, kind: str, text: str) -> None:
    shown = Decoder({}).show(value, wanted)
    assert (shown.kind, shown.line) == (kind, text if len(text) <= LINE_MAX else text[:LINE_MAX] + "…")
    whole = Decoder({}).decode(value, wanted)
    assert (whole.kind, whole.text) == (kind, "a\nb" if text == "a b" else text)


@pytest.mark.parametrize("wanted", ["auto", "json", "text"])
def test_a_page_parses_no_long_value(monkeypatch: pytest.MonkeyPatch, wanted: str) -> None:
    """The beginning of a long value is shown as all of it would be, digits included, and no more of it is looked at."""
    items = [{"id": 2**63 - number, "price": "NUMBER", "names": ["ü", {}, []]} for number in range(40_000)]
    text = json.dumps({"items": items}, ensure_ascii=False).replace('"NUMBER"', "1.10")
    whole = json_text.write(json_text.parse(text))
    monkeypatch.setattr(json_text, "parse", None)
    shown = Decoder({}).show(text.encode(), wanted)
    assert shown.is_cut
    assert shown.line == text[:LINE_MAX] + "…"
    assert (text if wanted == "text" else whole).startswith(shown.pretty)
    assert SHOWN_MAX // 2 < len(shown.pretty) <= SHOWN_MAX


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (b"{hello world} " * 5_000, "text"),
        (b'["one" "two"] ' * 5_000, "text"),
        (b"[1]]" * 10_000, "text"),
        (b'["' + b"x" * 50_000, "json"),
        ("ü".encode() * 20_001, "text"),
        (b"x" + "ü".encode() * 20_001, "text"),
        (b"\x00" * 40_000, "hex"),
        (b"\xff" * 40_000, "hex"),
    ],
)
def test_what_the_beginning_of_a_long_value_is(value: bytes, kind: str) -> None:
    shown = Decoder({}).show(value)
    assert (shown.kind, shown.is_cut) == (kind, True)
    assert len(shown.pretty) < 3 * SHOWN_MAX


def test_json_is_written_as_it_was_read() -> None:
    text = '{"a": [1, 2.50, -0.0, 1E+5, NaN], "b": {"c": null, "d": true}, "é": "\\u2028\\""}'
    document = json_text.parse(text)
    again = json_text.write(document, indented=False)
    assert "[1, 2.50, -0.0, 1E+5, NaN]" in again
    assert json_text.parse(json_text.write(document)) == document
    assert json_text.find_field(document, "b.d") == [True]
    assert json_text.find_field(document, "a.1") == ["2.50"]
    assert json_text.find_field(document, "b.c.d.e") == []
    assert json_text.find_field({"x": [{"y": 1}, {"y": 2}]}, "x.y") == [1, 2]
