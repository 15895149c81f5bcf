"""A log on a disk that is full, fails, or loses power at any moment."""

import errno

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.records import batch
from ottla.storage.log import Log, LogSettings
from tests.simulation.disk import Crashed, SimulatedDisk
from tests.unit.storage.logs import (
    DIRECTORY,
    NOW,
    append,
    batch_of,
    fill,
    new_disk,
    new_log,
    open_log,
    path,
    records,
    values,
)
from tests.unit.storage.truncating import truncate_to

SMALL = LogSettings(segment_bytes=400, index_interval_bytes=100)


def refusal(log: Log, data: bytearray) -> ErrorCode:
    with pytest.raises(KafkaError) as refused:
        append(log, data)
    return refused.value.code


def test_a_full_disk_refuses_a_batch_and_keeps_the_log() -> None:
    # Nothing of the batch is stored, reads work, and the same batch is accepted when there is space again.
    disk = new_disk()
    log = new_log(disk)
    append(log, batch_of(b"a", producer_id=1, sequence=0))
    size = disk.size(path(0, ".log"))
    disk.fail("append", errno.ENOSPC, "*.log", times=3)
    for _ in range(3):
        assert refusal(log, batch_of(b"b", producer_id=1, sequence=1)) is ErrorCode.KAFKA_STORAGE_ERROR
    assert disk.size(path(0, ".log")) == size and log.end_offset == 1
    assert values(log) == [b"a"]
    assert append(log, batch_of(b"b", producer_id=1, sequence=1)).base_offset == 1
    disk.crash(lose_unsynced=False)
    assert values(open_log(disk)) == [b"a", b"b"]


def test_a_log_that_cannot_be_truncated_accepts_no_more() -> None:
    # The file may have half a batch: anything appended after it would be unreadable.
    disk = new_disk()
    log = new_log(disk)
    fill(log, [b"a"])
    disk.fail("append", errno.EIO, "*.log")
    disk.fail("truncate", errno.EIO, "*.log")
    assert refusal(log, batch_of(b"b")) is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.has_failed
    assert refusal(log, batch_of(b"c")) is ErrorCode.KAFKA_STORAGE_ERROR
    with pytest.raises(KafkaError):
        log.append_as_follower(batch_of(b"c"), 0)
    assert values(log) == [b"a"]


@pytest.mark.parametrize(
    ("operation", "pattern"),
    [("create", "*.log"), ("append", "*.index"), ("append", "*.timeindex"), ("create", "*.snapshot")],
)
def test_a_failed_roll_can_be_repeated(operation: str, pattern: str) -> None:
    # There is no space in the middle of a roll. The append that needs the new segment fails, and the next one succeeds.
    disk = new_disk()
    log = new_log(disk, SMALL)
    expected = [b"%03d" % number for number in range(30)]
    refused = 0
    for number, value in enumerate(expected):
        if number % 2:
            disk.fail(operation, errno.ENOSPC, pattern)
        try:
            append(log, batch_of(value))
        except KafkaError as error:
            assert error.code is ErrorCode.KAFKA_STORAGE_ERROR
            refused += 1
            disk.heal()
            append(log, batch_of(value))
        disk.heal()
    assert refused > 1 and values(log) == expected
    log.close()
    assert values(open_log(disk, SMALL, clean=True)) == expected
    disk.crash(lose_unsynced=False)
    assert values(open_log(disk, SMALL)) == expected


def test_a_failed_flush_makes_nothing_durable() -> None:
    # The recovery point stays, and a second fsync does not count as success.
    disk = new_disk()
    log = new_log(disk)
    fill(log, [b"a"])
    disk.fail("fsync", errno.EIO, "*.log")
    for _ in range(2):
        with pytest.raises(OSError):
            log.flush()
    assert log.recovery_point == 0


def test_a_new_segment_is_in_its_directory_before_it_is_called_flushed() -> None:
    # The fsync of the file alone does not make its name durable.
    disk = new_disk()
    log = new_log(disk, SMALL)
    fill(log, [b"%03d" % number for number in range(8)])
    seen = len(disk.trace)
    log.flush()
    operations = list(disk.trace)[seen:]
    assert ("fsync_directory", DIRECTORY) in operations
    assert {name for operation, name in operations if operation == "fsync" and name.endswith(".log")} == {
        segment.path(".log") for segment in log.segments
    }
    seen = len(disk.trace)
    fill(log, [b"v"])
    log.flush()
    assert list(disk.trace)[seen + 1 :] == [("fsync", log.segments[-1].path(".log"))], "one fsync when nothing is new"
    assert log.start_flush() is None


def test_a_flush_covers_what_was_there_when_it_started() -> None:
    # Group commit: appends during the fsync wait for the next one.
    log = new_log(new_disk())
    fill(log, [b"a"])
    flush = log.start_flush()
    fill(log, [b"b"])
    assert flush is not None and (log.recovery_point, log.end_offset) == (0, 2)
    flush.run()
    log.finish_flush(flush)
    assert (log.recovery_point, log.end_offset) == (1, 2)


def test_a_flush_from_before_a_truncation_proves_nothing() -> None:
    # The records that it synced are gone, and those at the same offsets now were never synced.
    log = new_log(new_disk())
    fill(log, [b"a", b"b", b"c"])
    flush = log.start_flush()
    assert flush is not None
    truncate_to(log, 1)
    fill(log, [b"x", b"y"])
    flush.run()
    log.finish_flush(flush)
    assert log.recovery_point <= 1


def test_a_segment_may_be_removed_while_it_is_being_flushed() -> None:
    log = new_log(new_disk(), SMALL)
    fill(log, [b"%03d" % number for number in range(20)])
    flush = log.start_flush()
    assert flush is not None
    log.advance_log_start(15)
    log.drop_segments(15)
    log.files.take_deleted().run()
    fill(log, [b"more"])
    try:
        flush.run()
    except OSError as error:
        pytest.fail(f"retention made a flush fail: {error}")
    log.finish_flush(flush)
    assert log.recovery_point == 20


def workload(disk: SimulatedDisk, durable: list[int]) -> None:
    """Do everything that changes files. `durable` grows with what must survive."""
    log = new_log(disk, SMALL)
    for number in range(24):
        append(log, batch_of(b"%03d" % number, producer_id=3, sequence=number), leader_epoch=number // 10)
        if number % 5 == 4:
            log.flush()
            durable.append(log.recovery_point)
    log.advance_log_start(6)
    log.drop_segments(6)
    log.files.take_deleted().run()
    log.close()
    durable.append(24)
    log = open_log(disk, SMALL, clean=True, log_start_offset=6)
    for number in range(24, 30):
        append(log, batch_of(b"%03d" % number, producer_id=3, sequence=number), leader_epoch=3)
    log.flush()
    durable.append(30)


@pytest.mark.parametrize("lose_unsynced", [False, True])
def test_a_crash_at_any_file_operation_keeps_what_was_flushed(lose_unsynced: bool) -> None:
    # With the checkpoint of any earlier moment the log opens and has a prefix of what was written, with all flushed
    # records. It knows its producer: the next batch is accepted, and the last one is a duplicate.
    disk = new_disk()
    workload(disk, [])
    for crash_at in range(1, disk.operations + 1):
        disk, durable = new_disk(crash_at), [0]
        disk.crash_at(crash_at)
        with pytest.raises(Crashed):
            workload(disk, durable)
        disk.crash(lose_unsynced)
        if not disk.exists(DIRECTORY):
            assert durable == [0]
            continue
        log = open_log(disk, SMALL, recovery_point=durable[-2] if len(durable) > 1 else 0)
        found = records(log)
        first = found[0].offset if found else 0
        assert [record.value for record in found] == [b"%03d" % number for number in range(first, log.end_offset)]
        assert log.end_offset >= durable[-1] and first <= 6
        if found:
            again = batch_of(b"%03d" % (log.end_offset - 1), producer_id=3, sequence=log.end_offset - 1)
            assert append(log, again, leader_epoch=4).is_duplicate
        following = log.end_offset
        assert append(log, batch_of(b"v", producer_id=3, sequence=following), leader_epoch=4).base_offset == following
        log.close()
        assert open_log(disk, SMALL, clean=True).end_offset == following + 1


def test_a_log_with_damage_that_nobody_knows_of_is_cut() -> None:
    # The search for the largest timestamp that is left came upon it when the segment had been cut in memory only. At
    # the next attempt nothing was left to cut, so what was in the file stayed, and was read in place of new records.
    disk = new_disk()
    log = new_log(disk, LogSettings(index_interval_bytes=1))
    for number in range(20):
        append(log, batch_of(b"%03d" % number, timestamp=NOW + 1000 - number))
    append(log, batch_of(b"newest", timestamp=NOW + 5000))
    log.segments[0].file.write_at(3 * len(batch_of(b"000")) + 16, b"\x07")
    truncate_to(log, 15)
    appended = append(log, batch_of(b"again"))
    found = log.read(appended.base_offset, 1000, up_to=log.end_offset, at_least_one=True)
    assert found is not None and appended.base_offset == 15
    assert [record.value for record in batch.decode(found.slice.read(), 0)] == [b"again"]
    assert log.segments[0].file.size == log.segments[0].size
