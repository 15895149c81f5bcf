"""A disk that cannot be read for a moment: the partition returns an error, and works again afterwards."""

import errno

import pytest

from ottla.errors import ErrorCode, KafkaError
from tests.unit.storage.logs import append, batch_of, fill, new_disk, new_log, open_log, values


def test_a_read_that_fails_is_a_storage_error() -> None:
    # It is not an OSError, which would also fail the fetch of every other partition.
    disk = new_disk()
    log = new_log(disk)
    append(log, batch_of(b"a", b"b", b"c"))
    disk.fail("read_at", errno.EIO, "*.log")
    with pytest.raises(KafkaError) as refused:
        log.read(1, 1000, up_to=3, at_least_one=True)  # in the middle of a batch, so its header must be read
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert values(log) == [b"a", b"b", b"c"]


def test_a_retry_is_recognised_after_a_failed_search() -> None:
    # After a clean restart the log knows only the last batch, and searches for earlier ones when a producer retries.
    disk = new_disk()
    log = new_log(disk)
    for sequence in range(5):
        append(log, batch_of(b"%d" % sequence, producer_id=1, sequence=sequence))
    log.close()
    log = open_log(disk, clean=True)
    append(log, batch_of(b"5", producer_id=1, sequence=5))  # reads the timestamp that the age of the segment needs
    disk.fail("read_at", errno.EIO, "*.log")
    again = batch_of(b"3", producer_id=1, sequence=3)
    with pytest.raises(KafkaError) as refused:
        append(log, again)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    repeated = append(log, again)
    assert repeated.is_duplicate and repeated.base_offset == 3


def test_a_segment_whose_age_cannot_be_read_accepts_the_batch_later() -> None:
    # After a clean restart the first append reads the first timestamp of the segment.
    disk = new_disk()
    log = new_log(disk)
    fill(log, [b"a"])
    log.close()
    log = open_log(disk, clean=True)
    disk.fail("read_at", errno.EIO, "*.log")
    with pytest.raises(KafkaError) as refused:
        append(log, batch_of(b"b"))
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    append(log, batch_of(b"b"))
    assert values(log) == [b"a", b"b"]
