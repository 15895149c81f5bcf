"""What a compaction leaves of a log."""

from dataclasses import replace

import pytest

from ottla.errors import KafkaError
from ottla.records import batch
from ottla.storage import names
from ottla.storage.cleaner.compaction import group_sources
from ottla.storage.cleaner.order import Source, Uncleanable
from ottla.storage.log import Log
from tests.simulation.disk import SimulatedDisk
from tests.unit.storage.cleaner.compactions import (
    SETTINGS,
    carry_out,
    compact,
    contents,
    end_transaction,
    order_for,
    pairs,
    put,
    stored,
)
from tests.unit.storage.logs import DIRECTORY, NOW, append, new_disk, new_log, open_log, overwrite, path, records

DAY = 86_400_000


def new() -> tuple[SimulatedDisk, Log]:
    disk = new_disk()
    return disk, new_log(disk, SETTINGS)


def test_the_last_value_of_each_key_stays_at_its_offset() -> None:
    disk, log = new()
    for turn in range(20):
        put(log, ("a", f"a{turn}"), ("b", f"b{turn}"))
    put(log, ("c", "only"))
    end = log.end_offset
    compact(disk, log)
    assert contents(log) == [(38, "a", "a19"), (39, "b", "b19"), (40, "c", "only")]
    assert (log.log_start_offset, log.end_offset) == (0, end)
    assert put(log, ("a", "next")).base_offset == end


def test_small_segments_become_one_and_the_rest_of_the_log_is_found() -> None:
    # The indexes of the new segment lead to every record. A fetch in a gap gets the next records.
    disk, log = new()
    for turn in range(60):
        put(log, (f"k{turn % 40}", "x" * 20))
    before = len(log.segments)
    compact(disk, log, segment_bytes=100_000)
    assert before > 5 and len(log.segments) == 2
    kept = [offset for offset, _, _ in contents(log)]
    assert kept == list(range(20, 60))
    for offset in range(1, 60):  # at 0 is the empty batch with which the leader epoch begins
        read = log.read(offset, 1, up_to=log.end_offset, at_least_one=True)
        assert read is not None and batch.read_header(read.slice.read()).base_offset == max(offset, 20)
    assert [record.offset for record in records(log)] == kept
    assert disk.list(DIRECTORY).count(f"{0:020d}{names.LOG}") == 1


def test_no_group_is_larger_than_a_segment_may_be() -> None:
    disk, log = new()
    for turn in range(60):
        put(log, (f"k{turn}", "x" * 20))
    compact(disk, log, segment_bytes=1500)
    assert len(log.segments) > 3 and all(segment.size <= 1500 for segment in log.segments)


def test_a_tombstone_is_removed_after_its_retention_time() -> None:
    # The time counts from the first compaction that saw the tombstone, and is stored in the batch.
    disk, log = new()
    put(log, ("a", "1"), ("b", "1"))
    put(log, ("a", None))
    compact(disk, log, delete_retention_ms=DAY)
    assert contents(log) == [(1, "b", "1"), (2, "a", None)]
    header = stored(log)[1][0]
    assert header.has_delete_horizon and header.base_timestamp == NOW + DAY
    assert [record.timestamp for record in stored(log)[1][1]] == [NOW]
    put(log, ("c", "1"))
    compact(disk, log, now_ms=NOW + DAY - 1, delete_retention_ms=DAY)
    assert (2, "a", None) in contents(log)
    put(log, ("c", "2"))
    compact(disk, log, now_ms=NOW + DAY, delete_retention_ms=DAY)
    assert contents(log) == [(1, "b", "1"), (4, "c", "2")]


def test_tombstones_and_markers_stay_that_a_replica_may_lack() -> None:
    # Otherwise a replica that has copied the old value, and not yet the tombstone, would bring the value back.
    disk, log = new()
    append(log, pairs(("t", "1"), producer_id=7, sequence=0, transactional=True))
    end_transaction(log, 7, commit=True)
    append(log, pairs(("t", "2"), producer_id=7, sequence=1))
    put(log, ("a", "1"))
    put(log, ("a", None))
    for day in range(4):
        put(log, ("z", str(day)))
        compact(disk, log, now_ms=NOW + day * DAY, delete_retention_ms=DAY, keep_deletes_from=1)
    assert (4, "a", None) in contents(log) and any(header.is_control for header, _ in stored(log))
    put(log, ("z", "4"))
    compact(disk, log, now_ms=NOW + 5 * DAY, delete_retention_ms=DAY, keep_deletes_from=4)
    assert (4, "a", None) in contents(log) and not any(header.is_control for header, _ in stored(log))
    put(log, ("z", "5"))
    compact(disk, log, now_ms=NOW + 6 * DAY, delete_retention_ms=DAY, keep_deletes_from=5)
    assert [key for _, key, _ in contents(log)] == ["t", "z"]


def test_a_deleted_key_does_not_come_back() -> None:
    disk, log = new()
    put(log, ("a", "1"))
    put(log, ("a", None))
    put(log, ("z", "1"))
    for day in range(4):
        compact(disk, log, now_ms=NOW + day * DAY, delete_retention_ms=DAY)
        put(log, ("z", str(day)))
    assert [key for _, key, _ in contents(log)] == ["z", "z"]  # the last one is in the active segment


def test_a_record_without_a_key_is_removed() -> None:
    disk, log = new()
    append(log, batch.encode([(None, b"v", (), NOW), (b"k", b"v", (), NOW)]))
    put(log, ("z", "1"))
    assert compact(disk, log).keyless == 1
    assert contents(log) == [(1, "k", "v"), (2, "z", "1")]


@pytest.mark.parametrize("codec", range(5))
def test_batches_are_compressed_again_with_their_codec(codec: int) -> None:
    # Headers, times, offsets and the codec survive the loss of neighbours in a batch.
    disk, log = new()
    headers = [("name", b"\0\1"), ("none", None)]
    rows = [(b"k%d" % number, b"v" * 30, headers, NOW + number) for number in range(10)]
    append(log, batch.encode(rows, codec=codec))
    put(log, ("k3", "new"), ("k9", "new"))
    compact(disk, log)
    header, kept = stored(log)[0]
    assert header.codec == codec and (header.base_offset, header.last_offset) == (0, 9)
    assert header.max_timestamp == NOW + 8 and header.base_timestamp == NOW
    assert [(record.offset, record.timestamp) for record in kept] == [
        (number, NOW + number) for number in range(10) if number not in (3, 9)
    ]
    assert all(list(record.headers) == headers for record in kept)


def test_append_time_survives() -> None:
    disk, log = new()
    data = pairs(("a", "1"), ("b", "1"), timestamp=5)
    batch.set_append_time(data, NOW + 7)
    append(log, data)
    put(log, ("a", "2"))
    compact(disk, log)
    header, kept = stored(log)[0]
    assert header.log_append_time and header.max_timestamp == NOW + 7
    assert [record.timestamp for record in kept] == [NOW + 7]


def test_the_last_batch_of_a_producer_keeps_its_sequence() -> None:
    # After a restart from the compacted log alone a retry is recognised and the next sequence accepted.
    disk, log = new()
    append(log, pairs(("a", "1"), producer_id=5, sequence=0))
    last = pairs(("a", "2"), ("b", "2"), producer_id=5, sequence=1)
    append(log, last)
    put(log, ("a", "3"), ("b", "3"))
    compact(disk, log)
    assert contents(log) == [(3, "a", "3"), (4, "b", "3")]
    empty = stored(log)[1][0]
    assert (empty.base_offset, empty.last_offset, empty.record_count, empty.base_sequence) == (1, 2, 0, 1)
    log.close()
    for name in disk.list(DIRECTORY):
        if name.endswith(names.SNAPSHOT):
            disk.unlink(f"{DIRECTORY}/{name}")
    log = open_log(disk, SETTINGS)
    assert append(log, last).is_duplicate
    assert not append(log, pairs(("a", "4"), producer_id=5, sequence=3)).is_duplicate


def test_the_last_batch_keeps_the_end_of_the_log() -> None:
    # Even if its only record is removed, its offset is not used again.
    disk, log = new()
    put(log, ("a", "1"))
    append(log, batch.encode([(None, b"no key", (), NOW)]))
    compact(disk, log)
    assert [header.record_count for header, _ in stored(log)] == [1, 0]
    end = log.end_offset
    log.close()
    assert open_log(disk, SETTINGS).end_offset == end


def test_aborted_records_are_removed_and_their_markers_later() -> None:
    disk, log = new()
    put(log, ("a", "old"))
    append(log, pairs(("a", "aborted"), producer_id=7, sequence=0, transactional=True))
    end_transaction(log, 7, commit=False)
    append(log, pairs(("b", "committed"), producer_id=8, sequence=0, transactional=True))
    end_transaction(log, 8, commit=True)
    append(log, pairs(("x", "x"), producer_id=7, sequence=1))
    append(log, pairs(("x", "x"), producer_id=8, sequence=1))
    put(log, ("z", "1"))
    compact(disk, log, delete_retention_ms=DAY)
    assert [key for _, key, _ in contents(log)] == ["a", "b", "x", "z"]
    assert contents(log)[0] == (0, "a", "old"), "an aborted record must not replace a committed one"
    assert len(log.aborted_transactions(0, log.end_offset)) == 1
    put(log, ("z", "2"))
    compact(disk, log, now_ms=NOW + 1, delete_retention_ms=DAY)
    markers = [header for header, _ in stored(log) if header.is_control]
    assert [header.has_delete_horizon for header in markers] == [True, False]
    assert log.aborted_transactions(0, log.end_offset) == []
    put(log, ("b", "replaced"))
    for day in (2, 4, 6):
        put(log, ("z", "3"))
        compact(disk, log, now_ms=NOW + day * DAY, delete_retention_ms=DAY)
    assert not [header for header, _ in stored(log) if header.is_control]
    assert [key for _, key, _ in contents(log)] == ["a", "x", "b", "z"]


def test_the_records_of_an_open_transaction_are_left_alone() -> None:
    disk, log = new()
    put(log, ("a", "1"))
    put(log, ("a", "2"))
    log.roll(NOW)
    append(log, pairs(("a", "open"), producer_id=7, sequence=0, transactional=True))
    put(log, ("a", "3"))
    log.roll(NOW)
    compact(disk, log)
    assert contents(log) == [(1, "a", "2"), (2, "a", "open"), (3, "a", "3")]


def test_a_full_map_leaves_the_rest_for_the_next_time() -> None:
    # Memory is bounded for any number of keys: every round makes progress, and in the end all is clean.
    disk, log = new()
    for turn in range(3):
        for key in range(50):
            put(log, (f"k{key}", str(turn)))
    log.roll(NOW)
    rounds = 0
    while log.first_dirty_offset < log.end_offset:
        before = log.first_dirty_offset
        compact(disk, log, map_bytes=24 * 20, roll=False)
        assert log.first_dirty_offset > before
        rounds += 1
    assert rounds > 3
    assert sorted(contents(log)) == [(100 + key, f"k{key}", "2") for key in range(50)]


def test_a_second_compaction_changes_nothing() -> None:
    disk, log = new()
    for turn in range(30):
        put(log, (f"k{turn % 7}", str(turn)))
    compact(disk, log)
    first = [header for header, _ in stored(log)]
    log.first_dirty_offset = 0
    compact(disk, log)
    assert [header for header, _ in stored(log)] == first


def test_a_segment_without_records_keeps_the_start_of_the_log() -> None:
    disk, log = new()
    put(log, ("a", "1"))
    log.roll(NOW)
    put(log, ("a", "2"))
    log.roll(NOW)
    put(log, ("a", "3"))
    log.advance_log_start(1)
    log.drop_segments(1)
    compact(disk, log, segment_bytes=1)
    assert [segment.size > 0 for segment in log.segments] == [True, True, False]
    put(log, ("a", "4"))
    log.roll(NOW)
    compact(disk, log, segment_bytes=1)
    assert [segment.base_offset for segment in log.segments if not segment.size] == [2, 4]
    log.close()
    log = open_log(disk, SETTINGS, clean=True, log_start_offset=1)
    assert log.log_start_offset == 1 and contents(log) == [(3, "a", "4")]


def test_every_leader_epoch_keeps_its_beginning() -> None:
    # Who copies the log finds each epoch, although all records of epochs 2 and 3 are gone, with their producers.
    disk, log = new()
    append(log, pairs(("first", "x")), leader_epoch=1)
    append(log, pairs(("a", "1"), producer_id=7, sequence=0), leader_epoch=2)
    append(log, pairs(("a", "2"), ("b", "2")), leader_epoch=2)
    append(log, pairs(("a", "3"), producer_id=8, sequence=0, transactional=True), leader_epoch=3)
    append(log, batch.encode_control(8, 0, False, 0, NOW), leader_epoch=3)
    append(log, pairs(("a", "4"), ("b", "4"), ("first", "y")), leader_epoch=5)
    log.producers.clear()
    for _ in range(3):
        log.first_dirty_offset = 0
        compact(disk, log, delete_retention_ms=0)
    assert contents(log) == [(6, "a", "4"), (7, "b", "4"), (8, "first", "y")]
    begins = [(header.leader_epoch, header.base_offset) for header, _ in stored(log)]
    assert begins == log.epochs.entries == [(1, 0), (2, 1), (3, 4), (5, 6)]
    assert all(header.producer_id == -1 and not header.is_transactional for header, _ in stored(log))
    copy = new_log(new_disk(), SETTINGS)
    copy.append_as_follower(b"".join(segment.file.read_at(0, segment.size) for segment in log.segments), NOW)
    assert copy.epochs.entries == log.epochs.entries and not copy.producers.producers


def test_damage_does_not_get_a_correct_checksum() -> None:
    disk, log = new()
    put(log, ("a", "1"), ("b", "1"))
    put(log, ("a", "2"))
    log.roll(NOW)
    data = bytearray(disk.read(path(0, names.LOG)))
    data[70] ^= 1
    overwrite(disk, path(0, names.LOG), bytes(data))
    with pytest.raises(Uncleanable, match="damaged at byte 0"):
        compact(disk, log)
    assert disk.read(path(0, names.LOG)) == data


def test_a_reader_continues_in_a_replaced_segment() -> None:
    # It reads by the new name while the files wait for their removal, and by the descriptor when they are gone.
    disk, log = new()
    for turn in range(20):
        put(log, ("a", f"a{turn}"))
    read = log.read(0, 1 << 20, up_to=log.end_offset, at_least_one=True)
    assert read is not None
    before = read.slice.read()
    compact(disk, log)
    assert read.slice.read() == before
    read.slice.file.pin()
    log.files.take_deleted().run()
    assert read.slice.read() == before
    read.slice.file.unpin()
    assert not [name for name in disk.list(DIRECTORY) if name.endswith(names.DELETED)]


def test_a_batch_that_is_larger_than_the_buffer_is_read_whole() -> None:
    disk, log = new()
    put(log, ("large", "x" * 50_000))
    put(log, ("a", "1"), ("b", "1"))
    put(log, ("a", "2"), ("large", "y" * 20_000))
    log.roll(NOW)
    log.flush()
    carry_out(disk, log, replace(order_for(log), read_bytes=0))
    assert [(offset, key) for offset, key, _ in contents(log)] == [(2, "b"), (3, "a"), (4, "large")]


def test_segments_with_distant_offsets_are_not_merged() -> None:
    # An index has 32 bits for the distance from the segment's first offset.
    disk, log = new()
    put(log, ("a", "1"))
    log.roll(NOW)
    log.flush()
    order = replace(order_for(log), segment_bytes=10_000)
    far = 2**31
    sources = [Source(0, 10, 100), Source(10, far, 100), Source(far, far + 5, 100), Source(far + 5, 2 * far, 0)]
    assert [[source.base_offset for source in group] for group in group_sources(disk, order, sources)] == [
        [0, 10],
        [far, far + 5],
    ]


def test_two_compactions_do_not_disturb_readers() -> None:
    # The same segment is replaced twice before the files of the first time are removed.
    disk, log = new()
    slices = []
    for generation in range(3):
        for turn in range(10):
            put(log, ("a", f"{generation} {turn}"))
        log.roll(NOW)
        read = log.read(0, 1 << 20, up_to=log.end_offset, at_least_one=True)
        assert read is not None
        slices.append((read.slice, read.slice.read()))
        compact(disk, log, roll=False, segment_bytes=100_000)
    assert all(piece.read() == before for piece, before in slices)
    log.files.take_deleted().run()
    assert not [name for name in disk.list(DIRECTORY) if name.endswith(names.DELETED)]


def test_the_epoch_of_a_fenced_producer_is_not_forgotten() -> None:
    # Only the marker that fenced the producer is left. Its batch header stays after the marker is removed.
    disk, log = new()
    append(log, pairs(("a", "1"), producer_id=7, sequence=0, transactional=True))
    end_transaction(log, 7, commit=False, epoch=1)
    for day in range(5):
        put(log, ("z", str(day)))
        compact(disk, log, now_ms=NOW + day * DAY, delete_retention_ms=DAY)
    (marker,) = [header for header, _ in stored(log) if header.is_control]
    assert (marker.producer_epoch, marker.record_count) == (1, 0)
    log.close()
    for name in disk.list(DIRECTORY):
        if name.endswith(names.SNAPSHOT):
            disk.unlink(f"{DIRECTORY}/{name}")
    log = open_log(disk, SETTINGS)
    with pytest.raises(KafkaError, match="epoch 0 of producer 7"):
        append(log, pairs(("a", "2"), producer_id=7, sequence=1))
