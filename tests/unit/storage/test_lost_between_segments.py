"""A power cut that takes the end of a segment and leaves the next one, in a log that may also have gaps of
compaction."""

from struct import pack_into

import pytest

from ottla.records.checksum import crc32c
from ottla.storage import opening
from ottla.storage.log import Log, LogSettings
from tests.unit.storage.logs import NOW, append, batch_of, new_disk, new_log, open_log, path, values

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
