"""A log knows up to where it may lack tombstones and markers: after compaction, copying, truncation and crashes."""

import logging

import pytest

from ottla.records import batch
from ottla.storage import names
from ottla.storage.log import Log
from tests.simulation.disk import Crashed, SimulatedDisk
from tests.unit.storage.cleaner.compactions import SETTINGS, compact, contents, end_transaction, pairs, put
from tests.unit.storage.logs import DIRECTORY, NOW, append, new_disk, new_log, open_log, overwrite
from tests.unit.storage.truncating import truncate_to

DAY = 86_400_000
FILE = f"{DIRECTORY}/{names.REMOVED_DELETES}"


def new() -> tuple[SimulatedDisk, Log]:
    disk = new_disk()
    return disk, new_log(disk, SETTINGS)


def read_all(log: Log) -> bytes:
    return b"".join(segment.file.read_at(0, segment.size) for segment in log.segments)


def test_compaction_says_which_deletes_it_removed() -> None:
    disk, log = new()
    put(log, ("a", "1"), ("b", "1"))
    put(log, ("a", None))  # at 2
    put(log, ("b", "2"))
    compact(disk, log, delete_retention_ms=DAY)
    assert log.removed_deletes.before == 0 and not disk.exists(FILE)  # the tombstone is still there
    compact(disk, log, now_ms=NOW + 2 * DAY, delete_retention_ms=DAY)
    assert contents(log) == [(3, "b", "2")]
    assert log.removed_deletes.before == 3 and disk.read(FILE) == b"0\n3\n"


def test_a_removed_marker_counts_too() -> None:
    disk, log = new()
    append(log, pairs(("a", "1"), producer_id=7, sequence=0, transactional=True))
    end_transaction(log, 7, commit=True)  # at 1
    put(log, ("a", "2"))
    log.producers.clear()
    for day in (0, 2, 4):
        log.first_dirty_offset = 0
        compact(disk, log, now_ms=NOW + day * DAY, delete_retention_ms=DAY)
    assert contents(log) == [(2, "a", "2")] and log.removed_deletes.before == 2


def test_a_copy_takes_every_missing_offset_for_a_removed_delete() -> None:
    # It cannot know better. Also after a crash, whether the batches with gaps were flushed or not.
    disk, log = new()
    for number in range(5):
        put(log, ("a", str(number)), ("b", str(number)), (f"c{number}", "x"))
    compact(disk, log)
    put(log, ("end", "x"))
    assert log.removed_deletes.before == 0
    for is_flushed in (False, True):
        target, copy = new()
        copy.append_as_follower(read_all(log), NOW)
        assert copy.removed_deletes.before == 12  # where the last batch with a gap inside of it ends
        if is_flushed:
            copy.flush()
            assert target.read(FILE) == b"0\n12\n"
        target.crash(lose_unsynced=False)
        again = open_log(target, SETTINGS, recovery_point=copy.recovery_point)
        assert again.removed_deletes.before == 12


def test_a_gap_before_a_batch_ends_where_the_batch_begins() -> None:
    # The batch itself may not be committed yet: a replica that ends before it lacks nothing.
    _, log = new()
    append(log, batch.encode([(b"a", b"1", (), NOW)]))
    other = batch.encode([(b"b", b"2", (), NOW)], base_offset=9)
    log.append_as_follower(bytes(other), NOW)
    assert (log.removed_deletes.before, log.end_offset) == (9, 10)


def test_a_truncated_log_is_complete_from_there_on() -> None:
    disk, log = new()
    put(log, ("a", "1"))
    log.append_as_follower(bytes(batch.encode([(b"b", b"2", (), NOW)], base_offset=9)), NOW)
    log.flush()
    truncate_to(log, 5)
    assert log.removed_deletes.before == 5
    log.flush()
    assert disk.read(FILE) == b"0\n5\n"
    put(log, ("b", "3"))
    assert log.removed_deletes.before == 5


def test_the_file_is_written_only_when_it_changes() -> None:
    disk, log = new()
    log.append_as_follower(bytes(batch.encode([(b"b", b"2", (), NOW)], base_offset=9)), NOW)
    log.close()
    assert disk.read(FILE) == b"0\n9\n"
    operations = disk.operations
    log = open_log(disk, SETTINGS, clean=True, recovery_point=10)
    assert log.removed_deletes.before == 9
    log.close()
    assert disk.operations == operations


@pytest.mark.parametrize("content", [b"", b"0\n", b"1\n5\n", b"0\n-5\n", b"0\nx\n", b"0\n5\n6\n", b"\xff\n5\n"])
def test_after_damage_of_the_file_any_delete_may_be_missing(content: bytes, caplog: pytest.LogCaptureFixture) -> None:
    disk, log = new()
    put(log, ("a", "1"), ("b", "1"))
    log.close()
    overwrite(disk, FILE, content)
    with caplog.at_level(logging.WARNING):
        log = open_log(disk, SETTINGS, clean=True, recovery_point=2)
    assert log.removed_deletes.before == 2
    assert "removed-deletes cannot be read" in caplog.text


@pytest.mark.parametrize("lose_unsynced", [False, True])
def test_a_crash_at_any_moment_of_a_compaction_forgets_no_removed_delete(lose_unsynced: bool) -> None:
    seen = set()
    for moment in range(1000):
        disk, log = new()
        put(log, ("a", "1"), ("b", "1"))
        put(log, ("a", None))
        put(log, ("b", "2"))
        compact(disk, log, delete_retention_ms=DAY)
        disk.crash_at(disk.operations + 1 + moment)
        try:
            compact(disk, log, now_ms=NOW + 2 * DAY, delete_retention_ms=DAY)
        except Crashed:
            pass
        else:
            break
        disk.crash(lose_unsynced)
        again = open_log(disk, SETTINGS, recovery_point=log.recovery_point)
        is_removed = (2, "a", None) not in contents(again)
        assert again.removed_deletes.before == 3 or not is_removed, moment
        seen.add(is_removed)
    assert seen == {False, True}
