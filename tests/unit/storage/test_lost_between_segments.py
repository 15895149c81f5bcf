"""A power cut that takes the end of a segment and leaves the next one: a compacted log has gaps of its own as well."""

import pytest

from ottla.storage.log import Log, LogSettings
from tests.unit.storage.logs import NOW, append, batch_of, new_disk, new_log, open_log, path, values

SETTINGS = LogSettings(compacted=True)


def with_a_gap(flushed: int) -> tuple[Log, int]:
    """Three batches, `flushed` of them on the disk, the third in another segment; the second one is gone."""
    disk = new_disk()
    log = new_log(disk, SETTINGS)
    for number in range(3):
        if number == 2:
            log.roll(NOW)
        append(log, batch_of(b"%d" % number))
        if number == 1:
            end_of_first = log.segments[0].size // 2
        if number < flushed:
            log.flush()
    recovery_point = log.recovery_point
    disk.crash(lose_unsynced=False)
    file = disk.open(path(0, ".log"))
    file.truncate(end_of_first)
    file.close()
    log = Log.open(
        disk,
        log.directory,
        SETTINGS,
        clean=False,
        recovery_point=recovery_point,
        log_start_offset=0,
        now_ms=NOW,
        compacted_to=0,
    )
    return log, recovery_point


def test_what_follows_a_loss_is_cut_off() -> None:
    # Else a producer's later batch would be there without the one before it.
    log, _ = with_a_gap(flushed=1)
    assert values(log) == [b"0"] and log.end_offset == 1


@pytest.mark.parametrize("flushed", [0, 3])
def test_a_gap_that_compaction_may_have_left_is_none_of_it(flushed: int) -> None:
    # Below the recovery point, or where there is none, nobody can tell.
    log, recovery_point = with_a_gap(flushed)
    assert recovery_point == flushed
    assert values(log) == [b"0", b"2"]


def test_checkpoints_that_disagree_are_not_believed() -> None:
    # Compacted behind the recovery point: not by us, so nothing is known about gaps.
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
