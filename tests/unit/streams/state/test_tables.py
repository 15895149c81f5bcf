"""Tables in RocksDB."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.streams.state.store import MemoryReader
from ottla.streams.state.tables import Table, TableClosed, TableLocked, TableMemory, TableProgress

MEMORY = TableMemory(32)
KEYS = st.binary(max_size=3)


def progress(position: int) -> TableProgress:
    return TableProgress("id", position, 0)


@given(
    st.lists(st.dictionaries(KEYS, st.none() | st.binary())),
    KEYS,
    st.none() | KEYS,
    st.booleans(),
    st.none() | st.integers(0, 5),
)
def test_a_table_reads_like_a_dictionary(
    tmp_path_factory: pytest.TempPathFactory,
    batches: list[dict[bytes, bytes | None]],
    start: bytes,
    end: bytes | None,
    is_reversed: bool,
    limit: int | None,
) -> None:
    # Also keys that are empty, or that begin with the bytes that the table uses for its own.
    expected = MemoryReader()
    table = Table(str(tmp_path_factory.mktemp("table")), MEMORY)
    for position, batch in enumerate(batches):
        expected.apply(batch)
        table.apply(batch.items(), progress(position))
    keys = [*{key for batch in batches for key in batch}, b"missing", b""]
    assert table.get_many(keys) == expected.get_many(keys)
    found = list(table.range(start, end, is_reversed=is_reversed, limit=limit))
    assert found == list(expected.range(start, end, is_reversed=is_reversed, limit=limit))
    table.close()


def test_a_table_remembers_its_values_and_how_far_it_has_come(tmp_path: Path) -> None:
    table = Table(str(tmp_path), MEMORY)
    assert table.progress is None
    table.apply([(b"a", b"1"), (b"b", b"2")], progress(2))
    table.close()
    table = Table(str(tmp_path), MEMORY)
    assert table.progress == progress(2)
    assert table.get_many([b"a", b"b"]) == [b"1", b"2"]
    table.close()


def test_keys_are_counted_however_often_they_were_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # RocksDB's own estimate counts each write until it merges its files: 8 for 4 keys in two batches.
    table = Table(str(tmp_path), MEMORY)
    assert table.measure()[0] == 0
    for position in range(5):
        table.apply([(bytes([number]), b"x") for number in range(4)], progress(position))
    assert table.measure()[0] == 4
    table.apply([(b"\x00", None)], progress(9))
    assert table.measure()[0] == 3
    monkeypatch.setattr("ottla.streams.state.tables.COUNTED_MAX", 2)
    assert table.measure()[0] >= 3  # an estimate
    table.close()
    assert table.measure() == (0, 0)


def test_a_wiped_table_is_empty_and_does_not_end_who_reads(tmp_path: Path) -> None:
    table = Table(str(tmp_path), MEMORY)
    table.apply([(b"%d" % number, b"x") for number in range(5)], progress(5))
    reading = table.range(b"", None)
    next(reading)
    table.wipe()
    assert len(list(reading)) == 4
    assert (table.progress, list(table.range(b"", None))) == (None, [])
    table.close()
    table = Table(str(tmp_path), MEMORY)
    assert table.progress is None
    table.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1", "lock"]


def test_files_that_cannot_be_read_are_begun_anew(tmp_path: Path) -> None:
    table = Table(str(tmp_path), MEMORY)
    table.apply([(b"a", b"1")], progress(1))
    table.close()
    (tmp_path / "0" / "CURRENT").write_text("nonsense")
    table = Table(str(tmp_path), MEMORY)
    assert table.progress is None
    table.close()


def test_a_table_has_one_owner(tmp_path: Path) -> None:
    table = Table(str(tmp_path), MEMORY)
    with pytest.raises(TableLocked, match="another process has this state open"):
        Table(str(tmp_path), MEMORY)
    table.close()
    with pytest.raises(TableClosed):
        table.get_many([b"a"])
    with pytest.raises(TableClosed):
        list(table.range(b"", None))


def test_all_tables_share_one_cache_also_when_they_are_opened_again(tmp_path: Path) -> None:
    # rocksdict gives a database that exists a cache of its own unless it is told otherwise.
    values = [(b"%06d" % number, b"%06d" % number * 50) for number in range(10_000)]
    for name in ("a", "b"):
        table = Table(str(tmp_path / name), TableMemory(16))
        table.apply(values, progress(1))
        table.close()
    memory = TableMemory(16)
    tables = [Table(str(tmp_path / name), memory) for name in ("a", "b")]
    before = memory.used_bytes
    for table in tables:
        assert len(list(table.range(b"", None))) == len(values)
        assert memory.used_bytes > before
        before = memory.used_bytes
        table.close()
