"""A log whose start is within a batch: closed, recovered after a crash, truncated."""

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.records import batch
from ottla.storage import names
from ottla.storage.log import Log, LogSettings
from tests.simulation.disk import SimulatedDisk
from tests.unit.storage.logs import DIRECTORY, NOW, append, batch_of, new_disk, new_log, open_log, records
from tests.unit.storage.truncating import truncate_to

PRODUCER = 7
START = 5


def write(disk: SimulatedDisk, *, start: int = START, settings: LogSettings | None = None) -> Log:
    """Ten records of epoch 0 in a transaction, its abort marker at 10 of epoch 2, ten more of epoch 3."""
    log = new_log(disk, settings)
    append(log, batch_of(*[b"v"] * 10, producer_id=PRODUCER, sequence=0, transactional=True))
    append(log, batch.encode_control(PRODUCER, 0, False, 0, NOW), leader_epoch=2)
    append(log, batch_of(*[b"w"] * 10), leader_epoch=3)
    log.advance_log_start(start)
    return log


@pytest.mark.parametrize("settings", [LogSettings(), LogSettings(segment_bytes=200)])
@pytest.mark.parametrize("end", ["closed", "killed", "killed without a file of epochs", "killed after a flush"])
def test_a_log_is_opened_as_it_was(end: str, settings: LogSettings) -> None:
    disk = new_disk()
    log = write(disk, settings=settings)
    expected = records(log)
    epochs, aborted = log.epochs.entries, log.aborted_transactions(START, 21)
    assert [record.offset for record in expected] == list(range(START, 21)) and len(aborted) == 1
    if end == "closed":
        log.close()
    elif end != "killed":
        log.flush()
        if end == "killed without a file of epochs":
            disk.unlink(f"{DIRECTORY}/{names.EPOCHS}")
    recovery_point = log.recovery_point
    disk.crash(lose_unsynced=False)
    log = open_log(disk, settings, clean=end == "closed", recovery_point=recovery_point, log_start_offset=START)
    assert (log.log_start_offset, log.end_offset) == (START, 21) and records(log) == expected
    assert log.epochs.entries == epochs == [(0, START), (2, 10), (3, 11)]
    assert log.aborted_transactions(START, 21) == aborted and log.last_stable_offset(21) == 21
    assert log.producers.producers[PRODUCER].last_sequence == 9
    with pytest.raises(KafkaError) as refused:
        log.read(START - 1, 1000, up_to=21, at_least_one=True)
    assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    log.close()


@pytest.mark.parametrize("recovery_point", [0, START])
def test_a_log_that_lost_its_first_batch_begins_at_its_start(recovery_point: int) -> None:
    disk = new_disk()
    write(disk)
    file = disk.open(f"{DIRECTORY}/{0:020d}.log")
    file.truncate(file.size - 300)
    file.close()
    disk.crash(lose_unsynced=False)
    log = open_log(disk, recovery_point=recovery_point, log_start_offset=START)
    assert (log.log_start_offset, log.end_offset) == (START, START) and not log.epochs.entries
    log.close()


def test_offsets_of_epochs_that_ended_within_the_deleted_part() -> None:
    # Kafka answers a follower that was in such an epoch with the start of the next one: there is nothing before it.
    log = write(new_disk(), start=15)
    assert log.epochs.entries == [(3, 15)]
    assert log.epochs.end_offset_for(0, log.end_offset) == (0, 15)
    assert log.epochs.end_offset_for(2, log.end_offset) == (2, 15)
    assert log.epochs.end_offset_for(3, log.end_offset) == (3, 21)
    log.close()


@pytest.mark.parametrize("offset", [5, 7, 9])
def test_a_truncation_within_the_first_batch_leaves_no_record(offset: int) -> None:
    """The log ends before its start then, at the base of the batch. Its leader has it start anew, or sends the rest."""
    disk = new_disk()
    log = write(disk)
    truncate_to(log, offset)
    assert (log.log_start_offset, log.end_offset) == (0, 0) and not log.epochs.entries
    assert not log.producers.producers and log.last_stable_offset(0) == 0
    log.flush()
    disk.crash(lose_unsynced=False)
    log = open_log(disk, log_start_offset=START)  # the checkpoint is from before
    assert (log.log_start_offset, log.end_offset) == (START, START)
    log.close()
