"""Changes that are read as columns are the same as those that are decoded one by one."""

import struct
from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from ottla.connect.connectors.postgresql.catalog import CatalogColumn, CatalogTable
from ottla.connect.connectors.postgresql.changes import LogSettings, _LogReader
from ottla.connect.connectors.postgresql.column_types import TypeInfo, TypeModes
from ottla.connect.connectors.postgresql.filters import CaptureFilter
from ottla.connect.connectors.postgresql.pgoutput import UNCHANGED
from ottla.connect.connectors.postgresql.shapes import Capture, Shapes
from ottla.connect.data.conversion import columns_to_records
from ottla.connect.errors import ConnectError
from tests.unit.connect.postgresql.test_pgoutput import make_row

INT4, TEXT = 23, 25
TABLES = {oid: f"table_{oid}" for oid in (1, 2, 3)}
LEFT_OUT = 3
"""A table that is not captured."""
LISTS = {f"{what}.{kind}.list": () for what in ("schema", "table", "column") for kind in ("include", "exclude")}


def make_shapes() -> Shapes:
    columns = CatalogColumn("id", INT4, -1, True, 0), CatalogColumn("note", TEXT, -1, False, None)
    tables = {oid: CatalogTable(oid, "public", name, "r", "d", columns) for oid, name in TABLES.items()}
    chosen = CaptureFilter({**LISTS, "table.exclude.list": [f"public.{TABLES[LEFT_OUT]}"]})
    types = {INT4: TypeInfo(INT4, "int4"), TEXT: TypeInfo(TEXT, "text")}
    return Shapes(Capture("shop", "db", chosen, TypeModes()), tables, types)


def describe(oid: int) -> bytes:
    columns = b"".join(
        b"\0" + name + b"\0" + struct.pack("!Ii", kind, -1) for name, kind in ((b"id", INT4), (b"note", TEXT))
    )
    name = TABLES[oid].encode()
    return b"R" + struct.pack("!I", oid) + b"public\0" + name + b"\0d" + struct.pack("!H", 2) + columns


def make_change(random: Random, oid: int, *, is_plain: bool) -> bytes:
    def make_values() -> tuple[bytes, bytes | None]:
        return str(random.randrange(9)).encode(), random.choice([None, b"", b"a note", "Größe".encode()])

    start = struct.pack("!I", oid)
    row = make_values()
    changes = [
        b"I" + start + b"N" + make_row(*row),
        b"U" + start + b"N" + make_row(*row),
        b"U" + start + b"O" + make_row(row[0], b"old") + b"N" + make_row(*row),
        b"D" + start + b"K" + make_row(row[0], None),
        b"D" + start + b"O" + make_row(*row),
    ]
    if not is_plain:
        changes += [
            b"U" + start + b"N" + make_row(row[0], UNCHANGED),
            b"U" + start + b"K" + make_row(b"10", None) + b"N" + make_row(*row),
            b"U" + start + b"O" + make_row(b"10", b"old") + b"N" + make_row(*row),
            b"T" + struct.pack("!IBI", 1, 0, oid),
        ]
    return random.choice(changes)


def make_log(random: Random, *, is_plain: bool) -> list[tuple[int, bytes]]:
    """Transactions with their LSNs; those of commits end with 99."""
    found = [describe(oid) for oid in TABLES]
    for number in range(1, 12):
        found.append(b"B" + struct.pack("!QqI", number * 100 + 98, number, number))
        if random.random() < 0.2:
            found.append(random.choice([b"Y" + bytes(9), describe(random.choice([*TABLES]))]))
        for _ in range(random.randrange(12)):
            found.append(make_change(random, random.choice([*TABLES]), is_plain=is_plain or random.random() < 0.9))
        found.append(b"C" + struct.pack("!BQQq", 0, number * 100 + 98, number * 100 + 99, number))
    return [(1000 + at, data) for at, data in enumerate(found)]


Take = Callable[[_LogReader, pa.RecordBatch], None]


def read(log: list[tuple[int, bytes]], take: Take, piece: int, offset: Any, skipped: str) -> Iterator[Any]:
    settings = LogSettings("slot", "publication", frozenset(skipped), True)
    reader = _LogReader(make_shapes(), settings, {"start": 0}, offset)
    lsns, messages = zip(*log, strict=True)
    batch = pa.record_batch({"lsn": pa.array(lsns, pa.int64()), "data": pa.array(messages, pa.binary())})
    for first in range(0, len(log), piece):
        take(reader, batch.slice(first, piece))
        flushed = reader._flush()
        yield flushed.offset, flushed.is_midway
        for rows in flushed.rows:
            yield from columns_to_records(rows)  # type: ignore[arg-type]


def take_each(reader: _LogReader, batch: pa.RecordBatch) -> None:
    reader._take_each(*batch.columns)


def sort_by_topic(found: Iterator[Any]) -> tuple[list[Any], dict[str, list[Any]]]:
    """The order among topics means nothing."""
    offsets: list[Any] = []
    topics: dict[str, list[Any]] = {}
    for each in found:
        if isinstance(each, tuple):
            offsets.append(each)
        else:
            topics.setdefault(each.topic, []).append((len(offsets), replace(each, headers=tuple(each.headers))))
    return offsets, topics


@pytest.mark.parametrize("is_plain", [True, False])
def test_columns_and_single_messages(seed: int, is_plain: bool) -> None:
    """The same records and offsets, wherever a batch ends and reading begins."""
    random = Random(seed)
    for _ in range(12):
        log = make_log(random, is_plain=is_plain)
        piece = random.choice([1, 3, 20, 1000])
        offset = random.choice([None, {"lsn": 499, "seq": 0}, {"lsn": 499, "seq": 3}])
        skipped = random.choice(["", "d", "cut"])
        quick = sort_by_topic(read(log, _LogReader._take_batch, piece, offset, skipped))
        assert quick == sort_by_topic(read(log, take_each, piece, offset, skipped))


def test_plain_changes_are_not_decoded_one_by_one(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    decoded: list[bytes] = []

    def take(reader: _LogReader, lsns: pa.Array, messages: pa.Array) -> None:
        decoded.extend(messages.to_pylist())
        take_all(reader, lsns, messages)

    take_all = _LogReader._take_each
    monkeypatch.setattr(_LogReader, "_take_each", take)
    assert list(read(make_log(Random(seed), is_plain=True), _LogReader._take_batch, 1000, None, ""))
    assert {each[:1] for each in decoded} == {b"R"}


@pytest.mark.parametrize("cut", range(1, 24))
def test_messages_that_are_cut_off(cut: int) -> None:
    whole = b"U" + struct.pack("!I", 1) + b"O" + make_row(b"1", b"old") + b"N" + make_row(b"1", None)
    begin = b"B" + struct.pack("!QqI", 198, 1, 1)
    log = [(1, describe(1)), (2, begin), (3, whole[:-cut])]
    with pytest.raises(ConnectError, match="pgoutput sent"):
        list(read(log, _LogReader._take_batch, 10, None, ""))
