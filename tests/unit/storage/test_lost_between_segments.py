"""A power cut that takes the end of a segment and leaves the next one, in a log that may also have gaps of
compaction."""

from struct import pack_into

import pytest

from ottla.records.batch import stamp
from ottla.records.checksum import crc32c
from ottla.storage import names, opening
from ottla.storage.log import Log, LogSettings
from tests.simulation.disk import SimulatedDisk
from tests.unit.storage.logs import DIRECTORY, NOW, append, batch_of, new_disk, new_log, open_log, path, values
from tests.unit.storage.truncating import truncate_to

SETTINGS = LogSettings(compacted=True)
CHECKSUM_AT, LAST_OFFSET_DELTA_AT = 17, 23


def with_a_gap(flushed: int, *, begun_here: bool = False, first: int = 1) -> tuple[Log, int]:
    """A log of three batches, `flushed` of them on the disk, the third in another segment. The second one is lost.

    The first one has `first` offsets and one record.
    """
    disk = new_disk()
    log = new_log(disk, SETTINGS)
    for number in range(3):
        if number == 2:
            log.roll(NOW)
        batch = batch_of(b"%d" % number)
        if not number and first > 1:
            pack_into(">i", batch, LAST_OFFSET_DELTA_AT, first - 1)
            pack_into(">I", batch, CHECKSUM_AT, crc32c(batch[CHECKSUM_AT + 4 :]))
        append(log, batch)
        if number == 1:
            end_of_first = log.segments[0].size // 2
        if number < flushed:
            log.flush()
    recovery_point = log.recovery_point
    disk.crash(lose_unsynced=False)
    file = disk.open(path(0, ".log"))
    file.truncate(end_of_first)
    file.close()
    log = opening.open_log(
        disk,
        log.directory,
        SETTINGS,
        clean=False,
        recovery_point=recovery_point,
        log_start_offset=0,
        now_ms=NOW,
        compacted_to=0,
        begun_here=begun_here,
    )
    return log, recovery_point


def test_records_after_a_loss_are_cut_off() -> None:
    # Otherwise a producer's later batch would be there without the one before it.
    log, _ = with_a_gap(flushed=1)
    assert values(log) == [b"0"] and log.end_offset == 1


def test_records_after_a_loss_are_cut_off_before_the_first_recovery_point() -> None:
    # A log that was begun here was never compacted, so the gap is a loss whatever the topic's cleanup policy is.
    log, recovery_point = with_a_gap(flushed=0, begun_here=True)
    assert recovery_point == 0
    assert values(log) == [b"0"] and log.end_offset == 1


def test_a_log_that_shows_compaction_was_not_begun_here() -> None:
    # A batch with fewer records than offsets was compacted, so somebody has put another log into the directory.
    log, _ = with_a_gap(flushed=0, begun_here=True, first=2)
    assert values(log) == [b"0", b"2"]


@pytest.mark.parametrize("flushed", [0, 3])
def test_a_gap_that_compaction_may_have_left_is_kept(flushed: int) -> None:
    # Below the recovery point, or without one, nobody can tell a loss from compaction.
    log, recovery_point = with_a_gap(flushed)
    assert recovery_point == flushed
    assert values(log) == [b"0", b"2"]


def test_contradicting_checkpoints_are_ignored() -> None:
    # The checkpoint says that records after the recovery point were compacted, which we never do. So nothing is known
    # about gaps.
    disk = new_disk()
    log = new_log(disk, SETTINGS)
    append(log, batch_of(b"0"))
    log.flush()
    disk.crash(lose_unsynced=False)
    log = open_log(disk, SETTINGS, recovery_point=1)
    append(log, batch_of(b"1"))
    log.roll(NOW)
    append(log, batch_of(b"2"))
    size = log.segments[0].size // 2
    disk.crash(lose_unsynced=False)
    file = disk.open(path(0, ".log"))
    file.truncate(size)
    file.close()
    assert values(open_log(disk, SETTINGS, recovery_point=1)) == [b"0", b"2"]


def copied(base_offset: int, value: bytes) -> bytes:
    """A batch as a leader sends it to a follower."""
    data = batch_of(value)
    stamp(data, base_offset, 0)
    return bytes(data)


def copy_with_a_gap(disk: SimulatedDisk, *, flushed: bool) -> Log:
    """The copy of a compacted log that lacks offset 1. The gap is between two segments of the copy, behind the recovery
    point on disk, which is 1."""
    log = new_log(disk, LogSettings(segment_bytes=100, compacted=True))
    log.append_as_follower(copied(0, b"0"), NOW)
    log.flush()
    log.append_as_follower(copied(2, b"2"), NOW)
    log.append_as_follower(copied(3, b"3"), NOW)
    assert [segment.base_offset for segment in log.segments] == [0, 2, 3]
    if flushed:
        log.flush()
    return log


@pytest.mark.parametrize("recovery_point", [0, 1])
@pytest.mark.parametrize("power_cut", [False, True])
def test_a_gap_that_a_follower_has_copied_and_flushed_is_no_loss(recovery_point: int, power_cut: bool) -> None:
    # The leader has compacted what it sent. The checkpoint of the recovery points may be a minute old.
    disk = new_disk()
    copy_with_a_gap(disk, flushed=True)
    disk.crash(lose_unsynced=power_cut)
    log = opening.open_log(
        disk,
        DIRECTORY,
        SETTINGS,
        clean=False,
        recovery_point=recovery_point,
        log_start_offset=0,
        now_ms=NOW,
        compacted_to=0,
        begun_here=recovery_point == 0,
    )
    assert values(log) == [b"0", b"2", b"3"] and log.end_offset == 4


def test_a_gap_that_a_follower_has_copied_is_no_loss_if_only_the_process_ended() -> None:
    # Nothing was flushed, but the system has kept all of it.
    disk = new_disk()
    copy_with_a_gap(disk, flushed=False)
    disk.crash(lose_unsynced=False)
    log = opening.open_log(
        disk,
        DIRECTORY,
        SETTINGS,
        clean=False,
        recovery_point=1,
        log_start_offset=0,
        now_ms=NOW,
        compacted_to=0,
        lost_nothing=True,
    )
    assert values(log) == [b"0", b"2", b"3"] and log.end_offset == 4
    assert log.removed_deletes.before == 2  # a tombstone may have been at offset 1


def test_a_loss_after_a_truncation_is_not_taken_for_what_was_missing_before() -> None:
    # The file of the removed deletes spoke of offsets that were cut off since.
    disk = new_disk()
    log = copy_with_a_gap(disk, flushed=True)
    truncate_to(log, 1)
    for number in range(1, 4):
        log.append_as_follower(copied(number, b"new"), NOW)
    disk.crash(lose_unsynced=False)
    for number in (1, 2):
        file = disk.open(path(number, ".log"))
        file.truncate(0)
        file.close()
    log = opening.open_log(
        disk,
        DIRECTORY,
        SETTINGS,
        clean=False,
        recovery_point=1,
        log_start_offset=0,
        now_ms=NOW,
        compacted_to=0,
    )
    assert values(log) == [b"0"] and log.end_offset == 1


def test_what_is_not_flushed_is_not_spoken_of_in_the_file_of_removed_deletes() -> None:
    disk = new_disk()
    log = copy_with_a_gap(disk, flushed=False)
    assert log.removed_deletes.before == 2
    log.removed_deletes.save(log.recovery_point)
    assert disk.read(f"{DIRECTORY}/{names.REMOVED_DELETES}") == b"0\n1\n"
    log.flush()
    assert disk.read(f"{DIRECTORY}/{names.REMOVED_DELETES}") == b"0\n2\n"
