"""One segment: finding batches through sparse, missing or wrong indexes, and what it keeps in memory."""

from itertools import pairwise

import pytest

from ottla.records import batch
from ottla.storage.index import CorruptIndex, IndexCache
from ottla.storage.segment import Segment
from tests.simulation.disk import SimulatedDisk
from tests.unit.storage.logs import DIRECTORY, NOW, batch_of, new_disk, overwrite, path


def new_segment(disk: SimulatedDisk, base_offset: int = 100, cache: IndexCache | None = None) -> Segment:
    disk.make_directory(DIRECTORY)
    cache = cache or IndexCache()
    return Segment.create(disk, DIRECTORY, base_offset, created_ms=NOW, interval=200, cache=cache)


def stored_segment(disk: SimulatedDisk, base_offset: int = 100, cache: IndexCache | None = None) -> Segment:
    """The same segment, opened by a later process."""
    cache = cache or IndexCache()
    return Segment(disk, DIRECTORY, base_offset, created_ms=NOW, interval=200, cache=cache)


def fill(segment: Segment, count: int, *, step: int = 1) -> None:
    """Batches of one record, `step` offsets apart."""
    for number in range(count):
        offset = segment.base_offset + number * step
        data = batch_of(b"v", timestamp=NOW + number)
        batch.stamp(data, offset, 0)
        segment.append(data, len(data), offset, offset, NOW + number)


def sealed(disk: SimulatedDisk, count: int = 300, base_offset: int = 100, cache: IndexCache | None = None) -> Segment:
    segment = new_segment(disk, base_offset, cache)
    fill(segment, count)
    segment.write_indexes()
    segment.seal()
    return segment


@pytest.mark.parametrize("step", [1, 3])
def test_every_batch_is_found_while_the_segment_grows(step: int) -> None:
    # Batches near the end are found in memory, others through the index. An offset in a gap finds the next batch.
    segment = new_segment(new_disk())
    fill(segment, 300, step=step)
    size = len(batch_of(b"v"))
    for offset in range(100, 100 + 300 * step):
        number = -((100 - offset) // step)
        place = segment.locate(offset)
        assert (place and (place.base_offset, place.position, place.size)) == (
            (100 + number * step, number * size, size) if number < 300 else None
        )
    assert segment.locate(100 + 300 * step) is None


def test_the_newest_batches_are_found_without_reading() -> None:
    # A consumer at the end of the log asks for the batch that was just appended, again and again.
    disk = new_disk()
    segment = new_segment(disk)
    fill(segment, 300)
    disk.fail("read_at", 5, times=None)
    assert [place.base_offset for place in map(segment.locate, range(390, 400)) if place] == list(range(390, 400))


def test_an_index_entry_is_made_about_every_interval() -> None:
    segment = new_segment(new_disk())
    fill(segment, 300)
    positions = list(segment.offset_index.positions)
    distances = {after - before for before, after in pairwise([0, *positions])}
    assert min(distances) > 200 and max(distances) <= 200 + 2 * len(batch_of(b"v"))


def test_a_wrong_index_is_rebuilt_once() -> None:
    # Entries that point to no batch, or past the offset asked for, must not hide records.
    disk = new_disk()
    sealed(disk)
    right = disk.read(path(100, ".index"))
    entries = [right[at : at + 8] for at in range(0, len(right), 8)]
    for wrong in (
        b"".join(entry[:4] + (int.from_bytes(entry[4:]) + 1).to_bytes(4) for entry in entries),
        b"".join(entry[:4] + entries[-1][4:] for entry in entries),
        b"".join(entry[:4] + (2**30).to_bytes(4) for entry in entries),
    ):
        overwrite(disk, path(100, ".index"), wrong)
        segment = stored_segment(disk)
        for offset in (100, 150, 250, 399):
            place = segment.locate(offset)
            assert place is not None and place.base_offset == offset
        assert disk.read(path(100, ".index")) == right


def test_indexes_of_sealed_segments_are_unloaded_and_read_again() -> None:
    disk, cache = new_disk(), IndexCache(bytes_max=2500)
    segments = [sealed(disk, base_offset=base, cache=cache) for base in (0, 1000, 2000)]
    for _ in range(2):
        for segment in segments:
            place = segment.locate(segment.base_offset + 123)
            assert place is not None and place.base_offset == segment.base_offset + 123
        assert cache.bytes <= 2500


def test_a_cleanly_closed_segment_continues() -> None:
    disk = new_disk()
    segment = new_segment(disk)
    fill(segment, 300)
    segment.write_indexes()
    segment.close()
    segment = stored_segment(disk)
    assert segment.resume() == 400 and segment.max_timestamp == NOW + 299 and segment.first_timestamp == NOW
    data = batch_of(b"more", timestamp=NOW - 5)
    batch.stamp(data, 400, 0)
    segment.append(data, len(data), 400, 400, NOW - 5)
    assert segment.max_timestamp_entry == (NOW + 299, 399)
    place = segment.locate(400)
    assert place is not None and place.position == 300 * len(batch_of(b"v"))


def test_resuming_notices_an_index_of_another_segment() -> None:
    disk = new_disk()
    sealed(disk)
    other = bytearray(disk.read(path(100, ".index")))
    other[-5] ^= 1
    overwrite(disk, path(100, ".index"), bytes(other))
    with pytest.raises(CorruptIndex):
        stored_segment(disk).resume()


def test_the_largest_time_of_a_sealed_segment_is_read_from_its_last_entry() -> None:
    # Retention looks at this for every segment of every log: no index is loaded for it.
    disk = new_disk()
    sealed(disk)
    cache = IndexCache()
    segment = stored_segment(disk, cache=cache)
    assert segment.max_timestamp_entry == (NOW + 299, 399)
    overwrite(disk, path(100, ".timeindex"), bytes(24))
    assert stored_segment(disk).max_timestamp_entry == (NOW + 299, 399)
