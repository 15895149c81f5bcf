"""A log after a crash, a power cut or damage."""

import logging

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.records import batch
from ottla.storage import opening
from ottla.storage.log import LogSettings
from ottla.storage.truncation import finish_truncation, start_truncation
from tests.simulation.disk import SimulatedDisk
from tests.unit.storage.logs import (
    DIRECTORY,
    NOW,
    append,
    batch_of,
    fill,
    new_disk,
    new_log,
    open_log,
    overwrite,
    path,
    records,
    values,
)

SMALL = LogSettings(segment_bytes=400, index_interval_bytes=100)


def crashed(*expected: bytes, settings: LogSettings | None = None, flush_first: int = 0) -> SimulatedDisk:
    """A disk with a log of these values that was not closed. The first `flush_first` of them were flushed."""
    disk = new_disk()
    log = new_log(disk, settings)
    fill(log, expected[:flush_first])
    log.flush()
    fill(log, expected[flush_first:])
    disk.crash(lose_unsynced=False)
    return disk


def test_a_tail_torn_at_any_byte_is_cut_off() -> None:
    # The log ends after the last whole batch, accepts new records there, and a second recovery changes nothing.
    whole = crashed(b"first", b"second").read(path(0, ".log"))
    keep = len(batch_of(b"first"))
    for length in range(len(whole)):
        disk = crashed(b"first", b"second")
        overwrite(disk, path(0, ".log"), whole[:length])
        log = open_log(disk)
        expected = [b"first"] if length >= keep else []
        assert values(log) == expected
        assert disk.size(path(0, ".log")) == (keep if expected else 0)
        fill(log, [b"third"])
        assert values(log) == [*expected, b"third"]
        disk.crash(lose_unsynced=False)
        assert values(open_log(disk)) == [*expected, b"third"]


def test_a_flip_in_any_byte_of_the_unflushed_tail_ends_the_log_there() -> None:
    # The checksum covers everything except the base offset and the leader epoch. A wrong offset breaks the order.
    whole = crashed(b"first", b"second", b"third").read(path(0, ".log"))
    begin, size = len(batch_of(b"first")), len(batch_of(b"second"))
    for position in range(begin, begin + size):
        disk = crashed(b"first", b"second", b"third")
        damaged = bytearray(whole)
        damaged[position] ^= 0x80
        overwrite(disk, path(0, ".log"), bytes(damaged))
        found = [record.value for record in records(open_log(disk))]
        in_epoch = begin + 12 <= position < begin + 16
        in_offset_but_after = begin <= position < begin + 8 and len(found) == 2
        assert found == [b"first"] or in_epoch or in_offset_but_after


def test_a_batch_after_a_torn_one_is_removed_too() -> None:
    # The second block reached the disk and the first did not. Batches after a hole are out of order.
    disk = crashed(b"first", b"second", b"third")
    data = bytearray(disk.read(path(0, ".log")))
    begin, size = len(batch_of(b"first")), len(batch_of(b"second"))
    data[begin : begin + size] = bytes(size)
    overwrite(disk, path(0, ".log"), bytes(data))
    log = open_log(disk)
    assert values(log) == [b"first"] and log.end_offset == 1
    assert disk.size(path(0, ".log")) == begin


def test_segments_after_a_torn_one_are_removed_too() -> None:
    expected = [b"%03d" % number for number in range(30)]
    disk = crashed(*expected, settings=SMALL, flush_first=3)
    bases = [segment.base_offset for segment in open_log(disk, SMALL, recovery_point=3).segments]
    torn = path(bases[2], ".log")
    overwrite(disk, torn, disk.read(torn)[:-1])
    log = open_log(disk, SMALL, recovery_point=3)
    assert values(log) == expected[: bases[3] - 1]
    assert max(int(name[:20]) for name in disk.list(DIRECTORY) if name.endswith(".log")) == bases[2]


def test_segments_after_a_lost_tail_are_removed() -> None:
    # The power cut took the end of one segment, at the border of a batch, and left the next segment. A prefix is kept,
    # without a hole.
    expected = [b"%03d" % number for number in range(30)]
    disk = crashed(*expected, settings=SMALL, flush_first=3)
    bases = [segment.base_offset for segment in open_log(disk, SMALL, recovery_point=3).segments]
    short = path(bases[1], ".log")
    overwrite(disk, short, disk.read(short)[: len(batch_of(b"000"))])
    assert values(open_log(disk, SMALL, recovery_point=3)) == expected[: bases[1] + 1]


def test_gaps_of_compaction_do_not_count_as_a_loss() -> None:
    # The topic was compacted once, and its checkpoint is lost. Nothing is cut off at a gap between segments.
    disk = new_disk()
    log = new_log(disk, LogSettings(segment_bytes=200))
    for base in (0, 3, 10, 11, 30, 31):
        data = batch_of(b"%d" % base)
        batch.stamp(data, base, 0)
        log.append_as_follower(data, NOW)
    assert len(log.segments) > 2
    disk.crash(lose_unsynced=False)
    assert [record.offset for record in records(open_log(disk))] == [0, 3, 10, 11, 30, 31]


def test_a_tail_of_zeros_is_the_end() -> None:
    # The size of the file reached the disk, its blocks did not.
    for zeros in (1, 7, 11, 12, 60, 61, 100, 5000):
        disk = crashed(b"first", b"second")
        overwrite(disk, path(0, ".log"), disk.read(path(0, ".log")) + bytes(zeros))
        assert values(open_log(disk)) == [b"first", b"second"]
        assert disk.size(path(0, ".log")) == len(batch_of(b"first")) + len(batch_of(b"second"))


def test_damage_below_the_recovery_point_is_kept_and_never_served(caplog: pytest.LogCaptureFixture) -> None:
    # The batch was acknowledged and flushed, then a bit flipped. Later batches stay readable, and a read of the damage
    # fails.
    expected = [b"%03d" % number for number in range(9)]
    size = len(batch_of(b"000"))
    for damaged_byte in (9, 10, 11, 16, 17, 30, size - 1):
        disk = crashed(*expected, flush_first=8)
        data = bytearray(disk.read(path(0, ".log")))
        data[4 * size + damaged_byte] ^= 0x11
        overwrite(disk, path(0, ".log"), bytes(data))
        with caplog.at_level(logging.ERROR):
            log = open_log(disk, recovery_point=8)
        assert "damaged" in caplog.text
        assert log.end_offset == 9 and disk.size(path(0, ".log")) == 9 * size
        before = log.read(1, 10_000, up_to=9, at_least_one=True)
        assert before is not None and before.slice.length == 3 * size
        with pytest.raises(KafkaError) as refused:
            log.read(4, 10_000, up_to=9, at_least_one=True)
        assert refused.value.code is ErrorCode.CORRUPT_MESSAGE
        after = log.read(5, 10_000, up_to=9, at_least_one=True)
        assert after is not None and after.slice.length == 4 * size
        assert append(log, batch_of(b"new")).base_offset == 9


def damage_headers(disk: SimulatedDisk, base_offset: int, *positions: int) -> None:
    """Change the magic bytes of the batches at these positions of a segment."""
    data = bytearray(disk.read(path(base_offset, ".log")))
    for position in positions:
        data[position + 16] ^= 0x11
    overwrite(disk, path(base_offset, ".log"), bytes(data))


@pytest.mark.parametrize("damaged", [1, 2, 7])
def test_a_log_goes_on_after_damage_at_the_begin_of_its_active_segment(damaged: int) -> None:
    # The age of a segment counts from its first batch that can be read.
    disk = crashed(*[b"%03d" % number for number in range(8)], flush_first=8)
    size = len(batch_of(b"000"))
    damage_headers(disk, 0, *range(0, damaged * size, size))
    rolling = LogSettings(segment_ms=1000)
    log = open_log(disk, rolling, recovery_point=8)
    assert append(log, batch_of(b"as a leader"), now_ms=NOW).base_offset == 8
    copied = batch_of(b"as a follower")
    batch.stamp(copied, 9, 0)
    assert log.append_as_follower(bytes(copied), NOW) is not None
    assert [segment.base_offset for segment in log.segments] == [0]
    append(log, batch_of(b"too late", timestamp=NOW + 1001), now_ms=NOW + 1001)
    assert [segment.base_offset for segment in log.segments] == [0, 10]


@pytest.mark.parametrize("damaged", [0, 2])
def test_a_log_can_be_truncated_behind_damage(damaged: int) -> None:
    disk = new_disk()
    log = new_log(disk)
    for number in range(8):
        append(log, batch_of(b"%03d" % number, timestamp=NOW + number))
    log.flush()
    log.abandon()
    damage_headers(disk, 0, damaged * len(batch_of(b"000")))
    log = open_log(disk, recovery_point=8)
    truncation = start_truncation(log, 5)
    truncation.run()
    finish_truncation(log, truncation)
    assert (log.end_offset, log.segments[0].max_timestamp) == (5, NOW + 4)
    assert append(log, batch_of(b"new")).base_offset == 5


def test_damage_in_a_sealed_segment_costs_no_other_segment() -> None:
    # Even if nothing in the rest of that segment is valid.
    expected = [b"%03d" % number for number in range(30)]
    disk = crashed(*expected, settings=SMALL, flush_first=30)
    bases = [segment.base_offset for segment in open_log(disk, SMALL, recovery_point=30).segments]
    size = len(batch_of(b"000"))
    damaged = path(bases[1], ".log")
    overwrite(disk, damaged, disk.read(damaged)[:size] + bytes(disk.size(damaged) - size))
    log = open_log(disk, SMALL, recovery_point=bases[1] + 3)
    assert log.end_offset == 30
    with pytest.raises(KafkaError) as refused:
        log.read(bases[1] + 1, 1000, up_to=30, at_least_one=True)
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE
    for offset in [*range(bases[1] + 1), *range(bases[2], 30)]:
        read = log.read(offset, 1, up_to=30, at_least_one=True)
        assert read is not None and read.base_offset == offset


def test_a_recovery_point_ahead_of_the_data_is_ignored() -> None:
    # Whatever the checkpoint says, the existing records are read, and none counts as flushed.
    expected = [b"%03d" % number for number in range(30)]
    disk = crashed(*expected, settings=SMALL, flush_first=30)
    log = open_log(disk, SMALL, recovery_point=1000)
    assert values(log) == expected and log.recovery_point == 0
    fill(log, [b"new"])
    log.flush()
    assert log.recovery_point == 31


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".txnindex", ".snapshot"])
@pytest.mark.parametrize("damage", ["missing", "empty", "truncated", "stale", "junk", "zeros"])
@pytest.mark.parametrize("clean", [True, False])
def test_derived_files_are_never_needed(suffix: str, damage: str, clean: bool) -> None:
    # Lookups by offset and time, and producers, are right whatever happened to these files.
    disk = new_disk()
    log = new_log(disk, SMALL)
    stale: dict[str, bytes] = {}
    for number in range(30):
        data = batch_of(b"%03d" % number, timestamp=NOW + number * 10, producer_id=1, sequence=number)
        append(log, data)
        if number == 20:
            log.close()
            stale = {name: disk.read(f"{DIRECTORY}/{name}") for name in disk.list(DIRECTORY)}
            log = open_log(disk, SMALL, clean=True)
    if clean:
        log.close()
    disk.crash(lose_unsynced=False)
    for name in disk.list(DIRECTORY):
        if name.endswith(suffix):
            _damage_file(disk, f"{DIRECTORY}/{name}", damage, stale.get(name))
    log = open_log(disk, SMALL, clean=clean)
    assert values(log) == [b"%03d" % number for number in range(30)]
    for number in range(30):
        read = log.read(number, 1, up_to=30, at_least_one=True)
        assert read is not None and read.base_offset == number
    if not (clean and suffix == ".timeindex" and damage == "stale"):  # an old file looks valid
        found = log.find_offset_for_timestamp(NOW + 155, 30)
        assert found is not None and found.offset == 16
    assert append(log, batch_of(b"029", producer_id=1, sequence=29)).is_duplicate
    assert append(log, batch_of(b"030", producer_id=1, sequence=30)).base_offset == 30


def _damage_file(disk: SimulatedDisk, file_path: str, damage: str, stale: bytes | None) -> None:
    data = disk.read(file_path)
    if damage == "missing" or (damage == "stale" and stale is None):
        disk.unlink(file_path)
    else:
        harmed = {
            "empty": b"",
            "truncated": data[:-3],
            "stale": stale or b"",
            "junk": bytes(reversed(data)) or b"\x01junk",
            "zeros": bytes(len(data) + 24),
        }
        overwrite(disk, file_path, harmed[damage])


@pytest.mark.parametrize(
    "content", [b"", b"0\n", b"0\n2\n0 0\n", b"1\n0\n", b"0\n1\nx y\n", b"0\n2\n5 0\n3 9\n", b"\xff"]
)
@pytest.mark.parametrize("clean", [True, False])
def test_half_written_epochs_are_read_from_the_log(content: bytes, clean: bool) -> None:
    # The batches carry the epochs.
    disk = new_disk()
    log = new_log(disk, SMALL)
    for number in range(20):
        append(log, batch_of(b"%03d" % number), leader_epoch=number // 7)
    log.close() if clean else log.flush()
    disk.crash(lose_unsynced=False)
    overwrite(disk, f"{DIRECTORY}/leader-epoch-checkpoint", content)
    log = open_log(disk, SMALL, clean=clean, recovery_point=20)
    assert log.epochs.entries == [(0, 0), (1, 7), (2, 14)]


def test_the_epochs_of_batches_after_the_last_flush_count() -> None:
    # The file has epoch 5, in which this replica led without a record. Then it copied a record of epoch 4.
    disk = new_disk()
    log = new_log(disk)
    append(log, batch_of(b"a"), leader_epoch=3)
    append(log, batch_of(b"b"), leader_epoch=4)
    log.epochs.assign(5, log.end_offset)
    log.flush()
    copied = bytearray(batch_of(b"c"))
    batch.stamp(copied, 2, 4)
    log.append_as_follower(bytes(copied), NOW)
    disk.crash(lose_unsynced=False)
    assert open_log(disk, recovery_point=2).epochs.entries == [(3, 0), (4, 1)]


def test_the_epochs_of_deleted_records_do_not_come_back() -> None:
    # The first segment has batches below the start of the log, and one that contains it.
    disk = new_disk()
    log = new_log(disk)
    append(log, batch_of(b"a"), leader_epoch=3)
    append(log, batch_of(b"b", b"c", b"d"), leader_epoch=4)
    append(log, batch_of(b"e"), leader_epoch=7)
    log.advance_log_start(2)
    log.flush()
    for recovery_point in (0, 5):
        disk.crash(lose_unsynced=False)
        found = open_log(disk, recovery_point=recovery_point, log_start_offset=2)
        assert found.epochs.entries == [(4, 2), (7, 4)]


def test_epochs_beyond_the_end_are_forgotten() -> None:
    disk = crashed(b"a", b"b")
    overwrite(disk, f"{DIRECTORY}/leader-epoch-checkpoint", b"0\n2\n0 0\n7 1000\n")
    assert open_log(disk).epochs.entries == [(0, 0)]


def test_a_snapshot_older_than_the_log_is_brought_up_to_date() -> None:
    # No duplicate is accepted and no false gap is seen, although the snapshot is from the last roll.
    disk = new_disk()
    log = new_log(disk, SMALL)
    for sequence in range(25):
        append(log, batch_of(b"v", producer_id=7, sequence=sequence))
    disk.crash(lose_unsynced=False)
    log = open_log(disk, SMALL)
    for sequence in range(20, 25):
        again = append(log, batch_of(b"v", producer_id=7, sequence=sequence))
        assert again.is_duplicate and again.base_offset == sequence
    assert append(log, batch_of(b"v", producer_id=7, sequence=25)).base_offset == 25


def test_a_snapshot_of_lost_records_is_ignored() -> None:
    # The snapshot of a roll survived a power cut that took the records of the snapshot.
    disk = new_disk()
    log = new_log(disk, SMALL)
    for sequence in range(20):
        append(log, batch_of(b"v", producer_id=7, sequence=sequence))
    last = log.segments[-1].base_offset
    disk.crash(lose_unsynced=False)
    overwrite(disk, path(0, ".log"), disk.read(path(0, ".log"))[: 2 * len(batch_of(b"v"))])
    for segment in log.segments[1:]:
        disk.unlink(segment.path(".log"))
    log = open_log(disk, SMALL)
    assert log.end_offset == 2 and not disk.exists(path(last, ".snapshot"))
    assert append(log, batch_of(b"v", producer_id=7, sequence=2)).base_offset == 2


def test_a_clean_shutdown_mark_on_dirty_data_is_noticed() -> None:
    # The marker says that the log was closed cleanly, and the file shows that it was not.
    for cut, added in ((1, b""), (0, bytes(30)), (1, b"\xff")):
        disk = new_disk()
        log = new_log(disk)
        fill(log, [b"first", b"second"])
        log.close()
        data = disk.read(path(0, ".log"))
        overwrite(disk, path(0, ".log"), data[: len(data) - cut] + added)
        found = values(open_log(disk, clean=True, recovery_point=0))
        assert found == ([b"first"] if cut else [b"first", b"second"])


def test_a_log_whose_files_are_all_gone_begins_at_its_start() -> None:
    # Without an fsync of the directory this is what is left.
    disk = new_disk()
    new_log(disk)
    disk.unlink(path(0, ".log"))
    log = open_log(disk, log_start_offset=17, recovery_point=20)
    assert (log.log_start_offset, log.end_offset, log.recovery_point) == (17, 17, 17)
    assert append(log, batch_of(b"v")).base_offset == 17


def test_a_log_that_ends_before_its_start_begins_again() -> None:
    # DeleteRecords was checkpointed, and the deleted records were lost. Offsets must not be used twice.
    disk = crashed(b"a", b"b", b"c")
    log = open_log(disk, log_start_offset=10)
    assert (log.log_start_offset, log.end_offset, values(log)) == (10, 10, [])
    assert append(log, batch_of(b"v")).base_offset == 10


def test_leftovers_of_compaction_and_deletion_are_cleaned_up() -> None:
    # A .deleted and a .cleaned file are removed, and a .swap replaces its segments, whichever step was interrupted.
    expected = [b"%03d" % number for number in range(30)]
    for crash_at in range(1, 60):
        disk = crashed(*expected, settings=SMALL, flush_first=30)
        log = open_log(disk, SMALL, recovery_point=30)
        bases = [segment.base_offset for segment in log.segments]
        merged = disk.read(path(bases[1], ".log")) + disk.read(path(bases[2], ".log"))
        overwrite(disk, path(bases[1], ".log.swap"), merged)
        overwrite(disk, path(bases[1], ".index.swap"), b"")
        overwrite(disk, path(bases[0], ".log.deleted"), b"old")
        overwrite(disk, path(bases[4], ".timeindex.cleaned"), b"old")
        overwrite(disk, f"{DIRECTORY}/leader-epoch-checkpoint.tmp", b"0")
        disk.crash_at(disk.operations + crash_at)
        try:
            log = open_log(disk, SMALL, recovery_point=30)
        except BaseException:
            disk.crash(lose_unsynced=False)
            log = open_log(disk, SMALL, recovery_point=30)
        disk.heal()
        assert values(log) == expected
        assert [segment.base_offset for segment in log.segments] == [bases[0], bases[1], *bases[3:]]
        assert not [name for name in disk.list(DIRECTORY) if name.endswith((".deleted", ".cleaned", ".swap", ".tmp"))]


def test_progress_is_reported() -> None:
    # Progress is reported once per megabyte, and at the end.
    disk = crashed(*[b"x" * 100_000] * 50)
    told: list[tuple[int, int]] = []
    opening.open_log(
        disk,
        DIRECTORY,
        LogSettings(),
        clean=False,
        recovery_point=0,
        log_start_offset=0,
        now_ms=NOW,
        progress=lambda done, total: told.append((done, total)),
    )
    assert told[-1] == (disk.size(path(0, ".log")), disk.size(path(0, ".log"))) and len(told) == 5


def test_damage_is_remembered_by_a_clean_restart(caplog: pytest.LogCaptureFixture) -> None:
    # Recovery found the damage below the recovery point. The next opening reads nothing again, and still does not serve
    # it. It is forgotten only when the bytes are restored.
    disk = new_disk()
    log = new_log(disk)
    fill(log, [b"%03d" % number for number in range(8)])
    log.flush()
    sound = disk.read(path(0, ".log"))
    changed = bytearray(sound)
    changed[3 * len(sound) // 8 + 70] ^= 1
    overwrite(disk, path(0, ".log"), bytes(changed))
    for clean in (False, True, True):
        log = open_log(disk, clean=clean, recovery_point=8)
        with pytest.raises(KafkaError) as refused:
            log.read(3, 1000, up_to=8, at_least_one=True)
        assert refused.value.code is ErrorCode.CORRUPT_MESSAGE
        assert log.read(4, 1000, up_to=8, at_least_one=True) is not None
        log.close()
    assert disk.exists(f"{DIRECTORY}/damaged-ranges")
    overwrite(disk, path(0, ".log"), sound)
    log = open_log(disk, clean=True, recovery_point=8)
    assert values(log) == [b"%03d" % number for number in range(8)]


@pytest.mark.parametrize("content", [b"", b"0\n1\n", b"0\n1\n0 3 4 9\n", b"1\n0\n", b"0\n1\n0 4 3 9 8\n", b"\xff"])
def test_a_damaged_list_of_damage_costs_a_recovery(content: bytes, caplog: pytest.LogCaptureFixture) -> None:
    # Then nothing is known, so everything is read.
    disk = new_disk()
    log = new_log(disk)
    fill(log, [b"a", b"b"])
    log.close()
    overwrite(disk, f"{DIRECTORY}/damaged-ranges", content)
    log = open_log(disk, clean=True, recovery_point=2)
    assert values(log) == [b"a", b"b"]
    assert "damaged-ranges cannot be read, the log is checked" in caplog.text
    assert not disk.exists(f"{DIRECTORY}/damaged-ranges")
