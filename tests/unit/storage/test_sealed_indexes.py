"""Indexes of a segment whose records were on the disk before it was sealed: no flush of records covers them."""

import pytest

from ottla.storage.log import LogSettings
from tests.unit.storage.logs import NOW, append, batch_of, new_disk, new_log, open_log

LATER = NOW + 10_000
SEEDS = 40


@pytest.mark.parametrize("flushed_again", [False, True])
def test_a_power_cut_after_a_roll_leaves_no_old_time_index(flushed_again: bool) -> None:
    # The index that the clean close wrote is right for the first batch only. If it were used, a lookup would miss the
    # second one, and retention would consider the segment older than it is.
    for seed in range(SEEDS):
        disk = new_disk(seed)
        log = new_log(disk)
        append(log, batch_of(b"first"))
        log.close()
        log = open_log(disk, clean=True)
        append(log, batch_of(b"second", timestamp=LATER))
        log.flush()
        log.roll(NOW)
        if flushed_again:
            append(log, batch_of(b"third", timestamp=LATER + 1))
            log.flush()
        disk.crash(lose_unsynced=True)
        log = open_log(disk, LogSettings(), recovery_point=log.recovery_point)
        assert log.segments[0].max_timestamp == LATER, seed
        found = log.find_offset_for_timestamp(LATER, log.end_offset)
        assert found is not None and found.offset == 1, seed
