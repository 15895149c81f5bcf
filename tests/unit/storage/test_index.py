"""The sparse indexes: what they find, and that their bytes are those of Kafka."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.storage.index import CorruptIndex, IndexCache, OffsetIndex, TimeIndex
from ottla.storage.transaction_index import AbortedTransaction, TransactionIndex, decode
from tests.unit.storage.logs import new_disk

growing = st.lists(st.tuples(st.integers(1, 1000), st.integers(1, 1000)), max_size=50)


def offset_index(steps: list[tuple[int, int]]) -> OffsetIndex:
    index, offset, position = OffsetIndex(), 0, 0
    for offset_step, position_step in steps:
        offset += offset_step
        position += position_step
        index.add(offset, position)
    return index


def test_the_bytes_are_those_of_kafka() -> None:
    offsets = OffsetIndex()
    offsets.add(5, 4200)
    assert offsets.encode() == bytes.fromhex("00000005 00001068")
    times = TimeIndex()
    times.add(1_700_000_000_000, 5)
    assert times.encode() == bytes.fromhex("0000018bcfe56800 00000005")


@given(growing, st.integers(-1, 60_000))
def test_an_offset_is_looked_up_as_in_a_list(steps: list[tuple[int, int]], wanted: int) -> None:
    index = OffsetIndex.decode(offset_index(steps).encode())
    entries = list(zip(index.offsets, index.positions, strict=True))
    assert index.position_before(wanted) == max((p for o, p in entries if o <= wanted), default=0)
    assert index.offset_after(wanted) == min((o for o, p in entries if p >= wanted), default=None)
    index.truncate(wanted)
    assert list(index.offsets) == [o for o, p in entries if o < wanted]


@given(growing, st.integers(-1, 60_000))
def test_a_time_is_looked_up_as_in_a_list(steps: list[tuple[int, int]], wanted: int) -> None:
    grown = offset_index(steps)
    index = TimeIndex()
    for timestamp, offset in zip(grown.positions, grown.offsets, strict=True):
        index.add(timestamp, offset)
        index.add(timestamp - 1, offset + 1)
    index = TimeIndex.decode(index.encode())
    assert list(index.timestamps) == list(grown.positions), "only a larger timestamp makes an entry"
    assert index.offset_before(wanted) == max(
        (o for t, o in zip(index.timestamps, index.offsets, strict=True) if t < wanted), default=0
    )


@pytest.mark.parametrize("data", [b"1", bytes(7), bytes(11), bytes(24)])
def test_wrong_bytes_are_noticed(data: bytes) -> None:
    with pytest.raises(CorruptIndex):
        TimeIndex.decode(data)
    if len(data) % 8:
        with pytest.raises(CorruptIndex):
            OffsetIndex.decode(data)
    with pytest.raises(CorruptIndex):
        decode(data)


def test_the_transaction_index_has_kafkas_bytes_and_can_be_truncated() -> None:
    disk = new_disk()
    index = TransactionIndex(disk, "/0.txnindex")
    assert index.entries() == [] and not disk.exists("/0.txnindex")
    for last in (5, 9, 12):
        index.add(AbortedTransaction(7, last - 3, last, last + 1))
    assert disk.read("/0.txnindex")[:34] == bytes.fromhex(
        "0000 0000000000000007 0000000000000002 0000000000000005 0000000000000006"
    )
    disk.fail("append", 28)  # a full disk
    index = TransactionIndex(disk, "/0.txnindex")
    index.truncate(9)
    assert [entry.last_offset for entry in index.entries()] == [5]
    assert disk.size("/0.txnindex") == 34


class Holder:
    loaded = True

    def unload_indexes(self) -> None:
        self.loaded = False


def test_the_least_recently_used_index_is_unloaded_first() -> None:
    cache = IndexCache(bytes_max=100)
    holders = [Holder() for _ in range(4)]
    for holder in holders[:3]:
        cache.admit(holder, 30)
    cache.touch(holders[0])
    cache.admit(holders[3], 30)
    assert [holder.loaded for holder in holders] == [True, False, True, True]
    cache.forget(holders[3])
    assert cache.bytes == 60
