"""Which segments retention deletes from a log, and which it must never delete."""

import errno

import pytest

from ottla.records.batch import encode_control
from ottla.storage.log import Log, LogSettings
from ottla.storage.retention import find_expired
from tests.unit.storage.logs import DIRECTORY, NOW, append, batch_of, new_disk, new_log, open_log, values

HOUR = 3_600_000
DAY = 24 * HOUR
BATCHES = 12


def settings(*, retention_ms: int = -1, retention_bytes: int = -1, timestamps_ahead_ms: int = 2**63 - 1) -> LogSettings:
    return LogSettings(
        segment_bytes=400,
        index_interval_bytes=100,
        retention_ms=retention_ms,
        retention_bytes=retention_bytes,
        timestamps_ahead_ms=timestamps_ahead_ms,
    )


def filled(log: Log, *, begin: int = NOW, step: int = HOUR) -> Log:
    """Twelve records an hour apart, in four segments of three."""
    for number in range(BATCHES):
        append(log, batch_of(bytes(40) + b"%02d" % number, timestamp=begin + number * step))
    assert [segment.base_offset for segment in log.segments] == [0, 3, 6, 9]
    return log


def test_a_segment_is_as_old_as_its_newest_record() -> None:
    # Two segments are older than five hours when the last record is written. One is exactly as old, and stays.
    log = filled(new_log(new_disk(), settings(retention_ms=5 * HOUR)))
    found = find_expired(log, log.end_offset, NOW + 10 * HOUR)
    assert found is not None and (found.old, found.excess, found.log_start_offset) == ([0], [], 3)
    assert not found.with_active
    found = find_expired(log, log.end_offset, NOW + 10 * HOUR + 1)
    assert found is not None and found.log_start_offset == 6


def test_an_old_record_behind_a_new_one_is_kept_with_it() -> None:
    # Segments are deleted from the front only: an old one in the middle waits for those before it.
    log = new_log(new_disk(), settings(retention_ms=HOUR))
    filled(log, begin=NOW + 11 * HOUR, step=-HOUR)
    assert find_expired(log, log.end_offset, NOW + 12 * HOUR) is None


@pytest.mark.parametrize(("room", "start"), [(10_000, 0), (1, 2), (0, 3), (-1, 3)])
def test_retention_by_size_deletes_no_more_than_needed(room: int, start: int) -> None:
    # A segment is deleted if the log without it is still as large as the limit, so the log never falls below it.
    log = filled(new_log(new_disk(), settings()))
    sizes = [segment.size for segment in log.segments]
    limit = sum(sizes) - sum(sizes[:3]) + room
    log.settings = settings(retention_bytes=max(limit, 0))
    found = find_expired(log, log.end_offset, NOW)
    assert (len(found.excess) if found is not None else 0) == start
    assert found is None or not found.old


def test_retention_by_size_and_by_age() -> None:
    # Each segment is deleted for its own reason.
    log = filled(new_log(new_disk(), settings()))
    size = log.size
    log.settings = settings(retention_ms=5 * HOUR, retention_bytes=size - log.segments[0].size)
    found = find_expired(log, log.end_offset, NOW + 11 * HOUR)
    assert found is not None and (found.excess, found.old, found.log_start_offset) == ([0], [3], 6)


def test_segments_before_the_log_start_do_not_count() -> None:
    # Records were deleted and their files are still there. The limit applies to the rest.
    log = filled(new_log(new_disk(), settings()))
    log.settings = settings(retention_bytes=log.size - log.segments[0].size)
    log.advance_log_start(3)
    assert find_expired(log, log.end_offset, NOW) is None


def test_without_limits_everything_stays() -> None:
    log = filled(new_log(new_disk(), settings()))
    assert find_expired(log, log.end_offset, NOW + 10_000 * DAY) is None


def test_nothing_above_the_high_watermark_is_deleted() -> None:
    # All records are old, but only those before offset 6 are committed. A segment that is committed in part stays
    # whole.
    log = filled(new_log(new_disk(), settings(retention_ms=1, retention_bytes=0)))
    for up_to, start in ((6, 6), (8, 6), (2, None)):
        found = find_expired(log, up_to, NOW + DAY)
        assert (found.log_start_offset if found is not None else None) == start


def test_an_open_transaction_is_kept() -> None:
    # Its first record is at offset 4. When it has ended, everything may be deleted.
    log = new_log(new_disk(), settings(retention_ms=1))
    for number in range(BATCHES):
        producer = {"producer_id": 7, "sequence": 0, "transactional": True} if number == 4 else {}
        append(log, batch_of(bytes(42), **producer))  # type: ignore[arg-type]
    found = find_expired(log, log.last_stable_offset(log.end_offset), NOW + DAY)
    assert found is not None and found.log_start_offset <= 4
    append(log, encode_control(7, 0, True, 0, NOW))
    found = find_expired(log, log.last_stable_offset(log.end_offset), NOW + DAY)
    assert found is not None and found.log_start_offset == BATCHES + 1


def test_the_active_segment_is_rolled_and_deleted() -> None:
    # The last records of a topic without writers are not kept for ever, and offsets continue.
    disk = new_disk()
    log = filled(new_log(disk, settings(retention_ms=HOUR)))
    found = find_expired(log, log.end_offset, NOW + DAY)
    assert found is not None and found.with_active and found.log_start_offset == BATCHES
    log.roll(NOW + DAY)
    log.advance_log_start(found.log_start_offset)
    assert log.drop_segments(found.log_start_offset) == 4
    assert values(log) == [] and log.end_offset == BATCHES
    assert find_expired(log, log.end_offset, NOW + 2 * DAY) is None, "an empty active segment stays"
    log.close()
    log = open_log(disk, clean=True, log_start_offset=BATCHES)
    assert (log.log_start_offset, log.end_offset) == (BATCHES, BATCHES)


@pytest.mark.parametrize("timestamp", [NOW + 3650 * DAY, -1])
def test_a_wrong_timestamp_does_not_keep_a_log_for_ever(timestamp: int) -> None:
    # The timestamp is ten years ahead where an hour is allowed, or missing. Then age counts from when the segment was
    # begun.
    log = new_log(new_disk(), settings(retention_ms=DAY, timestamps_ahead_ms=HOUR))
    append(log, batch_of(bytes(42), timestamp=timestamp))
    filled_after = [append(log, batch_of(bytes(42), timestamp=NOW + number)) for number in range(8)]
    assert find_expired(log, log.end_offset, NOW + DAY - 10) is None
    found = find_expired(log, log.end_offset, NOW + 2 * DAY)
    assert found is not None and found.log_start_offset == filled_after[-1].last_offset + 1


def test_a_timestamp_that_the_topic_allows_counts() -> None:
    # If producers may be as far ahead as they like, their records are kept that long, as in Kafka.
    log = new_log(new_disk(), settings(retention_ms=DAY))
    append(log, batch_of(bytes(42), timestamp=NOW + 3650 * DAY))
    assert find_expired(log, log.end_offset, NOW + 3650 * DAY) is None
    assert find_expired(log, log.end_offset, NOW + 3652 * DAY) is not None


def test_after_a_restart_the_age_is_read_from_the_time_index() -> None:
    # Then nothing of a sealed segment is in memory. The entry of the index is checked against the batch that it names.
    disk = new_disk()
    log = filled(new_log(disk, settings()))
    log.close()
    log = open_log(disk, settings(retention_ms=5 * HOUR), clean=True)
    found = find_expired(log, log.end_offset, NOW + 11 * HOUR)
    assert found is not None and (found.old, found.log_start_offset) == ([0, 3], 6)


def test_a_power_cut_during_retention_leaves_no_hole() -> None:
    # Any of the renames that were not synced may survive. The new log start is on disk before the first of them, or
    # they are synced one after the other, so the log never begins with a segment whose successor is gone.
    for seed in range(40):
        for in_order in (True, False):
            disk = new_disk(seed)
            log = filled(new_log(disk, settings()))
            log.flush()
            log.advance_log_start(9)
            if in_order:
                disk.fail("rename", errno.EIO, f"{DIRECTORY}/*{seed % 9}.log")
            try:
                log.drop_segments(9, in_order=in_order)
            except OSError:
                assert in_order
            disk.heal()
            disk.crash(lose_unsynced=True)
            log = open_log(disk, recovery_point=12, log_start_offset=0 if in_order else 9)
            assert values(log) == [bytes(40) + b"%02d" % number for number in range(log.log_start_offset, BATCHES)]
            assert in_order or log.log_start_offset == 9
