"""A log on a disk that works."""

import contextlib
from random import Random

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.records import batch
from ottla.storage import opening
from ottla.storage.log import Log, LogSettings
from ottla.storage.truncation import finish_truncation, start_truncation
from tests.simulation.disk import Crashed, SimulatedDisk
from tests.unit.storage.logs import (
    DIRECTORY,
    NOW,
    TOPIC_ID,
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
from tests.unit.storage.truncating import truncate_fully, truncate_to


class CountingDisk(SimulatedDisk):
    """A disk that counts every operation, including reads."""

    steps = 0

    def step(self, operation: str, path: str) -> None:
        self.steps += operation != "reopen"  # what a real file does only after its descriptor was taken away
        super().step(operation, path)


SMALL = LogSettings(segment_bytes=400, index_interval_bytes=100)


def test_appended_records_are_read_back_with_their_offsets() -> None:
    # The leader numbers records from 0 on without holes and keeps their bytes.
    log = new_log(new_disk())
    first = append(log, batch_of(b"a", b"b"))
    second = append(log, batch_of(b"c"), leader_epoch=3)
    assert (first.base_offset, first.last_offset, second.base_offset, second.last_offset) == (0, 1, 2, 2)
    assert not first.is_duplicate and first.log_append_time == -1
    assert [(record.offset, record.value) for record in records(log)] == [(0, b"a"), (1, b"b"), (2, b"c")]
    assert (log.log_start_offset, log.end_offset, log.topic_id) == (0, 3, TOPIC_ID)


def test_the_leader_epoch_is_stamped_and_remembered() -> None:
    # The epoch goes into the batch and, with the offset it began at, into the log's history.
    log = new_log(new_disk())
    fill(log, [b"a", b"b"], leader_epoch=2)
    fill(log, [b"c"], leader_epoch=5)
    read = log.read(2, 1000, up_to=3, at_least_one=True)
    assert read is not None and batch.read_header(read.slice.read()).leader_epoch == 5
    assert log.epochs.entries == [(2, 0), (5, 2)]


def test_append_time_is_answered_for_batches_that_have_it() -> None:
    # With LogAppendTime the producer gets the timestamp of its records, also for a duplicate.
    log = new_log(new_disk())
    data = batch_of(b"a", producer_id=1, sequence=0)
    header = batch.set_append_time(data, NOW + 77)
    assert log.append(data, header, 0, NOW).log_append_time == NOW + 77
    again = log.append(data, batch.set_append_time(data, NOW + 99), 0, NOW)
    assert again.is_duplicate and again.log_append_time == NOW + 77


def test_a_full_segment_is_followed_by_a_new_one() -> None:
    # Roll by size: no segment is larger than segment.bytes, each is named after its first offset, nothing is lost.
    log = new_log(new_disk(), SMALL)
    expected = [b"%03d" % number for number in range(40)]
    fill(log, expected)
    assert len(log.segments) > 3
    assert all(segment.size <= 400 for segment in log.segments)
    assert log.size == sum(segment.size for segment in log.segments)
    assert values(log) == expected


def test_a_batch_larger_than_a_segment_has_its_own_segment() -> None:
    log = new_log(new_disk(), SMALL)
    fill(log, [b"x" * 1000, b"y" * 1000])
    assert [segment.base_offset for segment in log.segments] == [0, 1]
    assert values(log) == [b"x" * 1000, b"y" * 1000]


def test_an_old_segment_is_followed_by_a_new_one() -> None:
    # Roll by time counts from the first batch's timestamp to the new batch's, as Kafka does.
    log = new_log(new_disk(), LogSettings(segment_ms=1000))
    append(log, batch_of(b"a", timestamp=NOW))
    append(log, batch_of(b"b", timestamp=NOW + 1000))
    assert len(log.segments) == 1
    append(log, batch_of(b"c", timestamp=NOW + 1001))
    assert [segment.base_offset for segment in log.segments] == [0, 2]


def test_records_without_time_roll_by_the_clock() -> None:
    log = new_log(new_disk(), LogSettings(segment_ms=1000))
    append(log, batch_of(b"a", timestamp=-1), now_ms=NOW)
    append(log, batch_of(b"b", timestamp=-1), now_ms=NOW + 1000)
    assert len(log.segments) == 1
    append(log, batch_of(b"c", timestamp=-1), now_ms=NOW + 1001)
    assert len(log.segments) == 2


def test_a_full_index_makes_a_new_segment() -> None:
    log = new_log(new_disk(), LogSettings(index_interval_bytes=0, segment_index_bytes=60))
    for number in range(30):
        append(log, batch_of(b"v", timestamp=NOW + number))
    assert len(log.segments) > 3
    assert all(len(segment.offset_index.encode()) <= 60 for segment in log.segments)
    assert all(len(segment.time_index.encode()) <= 60 for segment in log.segments)


def test_jitter_is_within_its_limit_and_the_same_every_time() -> None:
    # Two partitions do not roll together, and one partition rolls at the same time after a restart.
    limits = set()
    for number in range(20):
        disk = new_disk()
        settings = LogSettings(segment_ms=1000, segment_jitter_ms=500)
        log = opening.create_log(disk, f"/data/t-{number}", TOPIC_ID, settings, NOW)
        append(log, batch_of(b"a"))
        age = 0
        while len(log.segments) == 1:
            age += 1
            append(log, batch_of(b"b", timestamp=NOW + age))
        limits.add(age)
    assert len(limits) > 1 and min(limits) > 500 and max(limits) <= 1001


@pytest.mark.parametrize("offset", range(6))
def test_an_offset_inside_a_batch_gives_the_whole_batch(offset: int) -> None:
    # Clients skip what they did not ask for. A broker that skipped records would lose the batch.
    log = new_log(new_disk())
    append(log, batch_of(b"a", b"b", b"c"))
    append(log, batch_of(b"d", b"e", b"f"))
    for opened in (log, _reopened(log)):
        read = opened.read(offset, 1, up_to=6, at_least_one=True)
        assert read is not None and read.base_offset == offset // 3 * 3
        assert [record.offset for record in batch.decode(read.slice.read())] == [offset // 3 * 3 + i for i in range(3)]


def test_reads_outside_of_the_log_are_refused() -> None:
    log = new_log(new_disk(), SMALL)
    fill(log, [b"x" * 100] * 9)
    log.advance_log_start(4)
    for offset in (-1, 3, 10):
        with pytest.raises(KafkaError) as refused:
            log.read(offset, 1000, up_to=9, at_least_one=True)
        assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.read(9, 1000, up_to=9, at_least_one=True) is None


def test_a_read_respects_its_limits() -> None:
    # Nothing at or after `up_to` is served, and never more bytes than asked for unless the first batch needs them.
    log = new_log(new_disk())
    fill(log, [b"a", b"b", b"c", b"d"])
    size = len(batch_of(b"a"))
    for opened in (log, _reopened(log)):
        for up_to in range(5):
            read = opened.read(0, 10_000, up_to=up_to, at_least_one=True)
            assert (read.slice.length if read else 0) == up_to * size
        assert opened.read(2, 10_000, up_to=2, at_least_one=True) is None
        cut = opened.read(1, size + 5, up_to=4, at_least_one=False)
        assert cut is not None and (cut.slice.position, cut.slice.length) == (size, size + 5)
        first = opened.read(1, 5, up_to=4, at_least_one=True)
        assert first is not None and first.slice.length == size
        assert opened.read(1, 5, up_to=4, at_least_one=False) is None


def test_a_read_stays_in_one_segment_and_says_how_far_it_goes() -> None:
    log = new_log(new_disk(), SMALL)
    fill(log, [b"%03d" % number for number in range(20)])
    read = log.read(0, 10_000, up_to=20, at_least_one=True)
    assert read is not None and read.slice.length == log.segments[0].size
    assert read.next_offset == log.segments[1].base_offset
    short = log.read(0, 100, up_to=20, at_least_one=True)
    assert short is not None and 1 <= short.next_offset <= read.next_offset


def test_offsets_that_compaction_removed_are_skipped() -> None:
    # A read passes over a gap between batches or segments, and may begin inside the gap.
    log = new_log(new_disk(), LogSettings(segment_bytes=100))
    for base in (0, 10, 2**31 + 5, 2**31 + 6):
        data = batch_of(b"%d" % base)
        batch.stamp(data, base, 1)
        log.append_as_follower(data, NOW)
    assert [record.offset for record in records(log)] == [0, 10, 2**31 + 5, 2**31 + 6]
    read = log.read(11, 1000, up_to=log.end_offset, at_least_one=True)
    assert read is not None and read.base_offset == 2**31 + 5


def test_relative_offsets_never_need_more_than_31_bits() -> None:
    # A gap that does not fit into the index makes a new segment, also when the active one is empty.
    log = new_log(new_disk())
    for base in (2**33, 2**33 + 2**31 - 1, 2**33 + 2**31):
        data = batch_of(b"v")
        batch.stamp(data, base, 1)
        log.append_as_follower(data, NOW)
    assert [segment.base_offset for segment in log.segments] == [2**33, 2**33 + 2**31]
    log.close()
    assert [record.offset for record in records(_reopened(log))] == [2**33, 2**33 + 2**31 - 1, 2**33 + 2**31]


def test_a_follower_has_the_same_bytes_as_its_leader() -> None:
    # Batches are replicated as they are: file contents, epochs and producers are equal.
    leader = new_log(new_disk())
    append(leader, batch_of(b"a", b"b", producer_id=5, sequence=0), leader_epoch=1)
    append(leader, batch_of(b"c", producer_id=5, sequence=2), leader_epoch=4)
    read = leader.read(0, 10_000, up_to=3, at_least_one=True)
    assert read is not None
    data = read.slice.read()
    follower = new_log(new_disk())
    appended = follower.append_as_follower(data + data[:70], NOW)
    assert appended is not None and (appended.base_offset, appended.last_offset) == (0, 2)
    copy = follower.read(0, 10_000, up_to=3, at_least_one=True)
    assert copy is not None and copy.slice.read() == data
    assert follower.epochs.entries == leader.epochs.entries
    assert append(follower, batch_of(b"c", producer_id=5, sequence=2)).is_duplicate


def test_a_follower_rolls_within_one_fetch() -> None:
    leader = new_log(new_disk())
    fill(leader, [b"%03d" % number for number in range(20)])
    read = leader.read(0, 10_000, up_to=20, at_least_one=True)
    follower = new_log(new_disk(), SMALL)
    assert read is not None
    follower.append_as_follower(read.slice.read(), NOW)
    assert len(follower.segments) > 2 and all(segment.size <= 400 for segment in follower.segments)
    assert values(follower) == values(leader)


def test_a_follower_refuses_what_is_damaged_or_out_of_place() -> None:
    log = new_log(new_disk())
    fill(log, [b"a", b"b"])
    damaged = batch_of(b"c")
    batch.stamp(damaged, 2, 0)
    damaged[-1] ^= 1
    for data in (damaged, batch_of(b"old")):
        with pytest.raises(KafkaError) as refused:
            log.append_as_follower(data, NOW)
        assert refused.value.code is ErrorCode.CORRUPT_MESSAGE
    assert log.append_as_follower(b"", NOW) is None
    assert values(log) == [b"a", b"b"]


def test_records_are_found_by_time() -> None:
    # Lookups are exact to the record, over segments, with timestamps that go back and forth.
    log = new_log(new_disk(), SMALL)
    times = [NOW + 10 * step for step in (0, 5, 3, 8, 2, 9, 7, 20, 12, 15, 30, 1)]
    for time in times:
        append(log, batch_of(b"x" * 50, b"y" * 50, timestamp=time))
    every = [(record.timestamp, record.offset) for record in records(log)]
    times_by_offset = {offset: timestamp for timestamp, offset in every}
    for opened in (log, _reopened(log)):
        for wanted in range(NOW - 1, NOW + 310, 3):
            expected = next((offset for timestamp, offset in every if timestamp >= wanted), None)
            found = opened.find_offset_for_timestamp(wanted, opened.end_offset)
            assert (found.offset if found else None) == expected
            if expected is not None and found is not None:
                assert opened.find_offset_for_timestamp(wanted, expected) is None
                assert (found.timestamp, found.leader_epoch) == (times_by_offset[expected], 0)
        largest = opened.find_max_timestamp()
        assert largest is not None and (largest.timestamp, largest.offset) == max(every)


def test_an_empty_log_has_no_times() -> None:
    log = new_log(new_disk())
    assert log.find_max_timestamp() is None and log.find_offset_for_timestamp(0, 0) is None
    append(log, batch_of(b"timeless", timestamp=-5))
    assert log.find_max_timestamp() is None


def test_truncation_removes_whole_batches_with_their_state() -> None:
    # Records, segments, epochs, producers and snapshots behind the new end are gone, also after a restart.
    disk = new_disk()
    log = new_log(disk, SMALL)
    for number in range(20):
        append(log, batch_of(b"%03d" % number, producer_id=1, sequence=number), leader_epoch=number // 5)
    log.flush()
    truncate_to(log, 12)
    assert (log.end_offset, log.recovery_point) == (12, 12)
    assert values(log) == [b"%03d" % number for number in range(12)]
    assert log.epochs.entries == [(0, 0), (1, 5), (2, 10)]
    assert append(log, batch_of(b"new", producer_id=1, sequence=12), leader_epoch=9).base_offset == 12
    log.close()
    log = open_log(disk, SMALL, clean=True)
    assert values(log) == [*(b"%03d" % number for number in range(12)), b"new"]
    assert log.epochs.entries == [(0, 0), (1, 5), (2, 10), (9, 12)]


def test_truncation_inside_a_batch_removes_the_batch() -> None:
    log = new_log(new_disk())
    append(log, batch_of(b"a", b"b"))
    append(log, batch_of(b"c", b"d"))
    truncate_to(log, 3)
    assert log.end_offset == 2 and values(log) == [b"a", b"b"]
    truncate_to(log, 50)
    assert log.end_offset == 2
    truncate_to(log, 0)
    assert log.end_offset == 0 and log.size == 0
    assert append(log, batch_of(b"e")).base_offset == 0


def test_truncation_finds_the_largest_time_that_is_left() -> None:
    log = new_log(new_disk(), LogSettings(index_interval_bytes=0))
    for step in (5, 9, 7, 20, 3):
        append(log, batch_of(b"v", timestamp=NOW + step))
    truncate_to(log, 3)
    largest = log.find_max_timestamp()
    assert largest is not None and (largest.timestamp, largest.offset) == (NOW + 9, 1)
    found = log.find_offset_for_timestamp(NOW + 6, 3)
    assert found is not None and found.offset == 1


def test_full_truncation_begins_again_at_an_offset() -> None:
    disk = new_disk()
    log = new_log(disk, SMALL)
    fill(log, [b"x" * 50] * 20)
    truncate_fully(log, 100)
    assert (log.log_start_offset, log.end_offset, log.size) == (100, 100, 0)
    fill(log, [b"y"])
    log.close()
    log = open_log(disk, SMALL, clean=True)
    assert [record.offset for record in records(log)] == [100]


def test_segments_before_a_new_log_start_are_removed() -> None:
    # Files are renamed at once, so a reader that has one open can continue, and are removed in a separate step.
    disk = new_disk()
    log = new_log(disk, SMALL)
    fill(log, [b"%03d" % number for number in range(40)])
    bases = [segment.base_offset for segment in log.segments]
    assert log.advance_log_start(bases[2] + 1)
    assert log.log_start_offset == bases[2] + 1
    assert disk.exists(path(0, ".log")), "not before the new start is on disk"
    assert [log.files.has_any_before(bases[2] + 1), log.drop_segments(bases[2] + 1)] == [True, 2]
    assert [log.files.has_any_before(bases[2] + 1), log.drop_segments(bases[2] + 1)] == [False, 0]
    assert values(log)[0] == b"%03d" % (bases[2] + 1)
    assert f"{0:020d}.log.deleted" in disk.list(DIRECTORY) and not disk.exists(path(0, ".log"))
    assert log.files.has_deleted
    log.files.take_deleted().run()
    assert not [name for name in disk.list(DIRECTORY) if name.endswith(".deleted")]
    assert not log.advance_log_start(3)
    log.close()
    log = open_log(disk, SMALL, clean=True, log_start_offset=bases[2] + 1)
    assert log.log_start_offset == bases[2] + 1
    with pytest.raises(KafkaError):
        log.advance_log_start(41)


def test_partition_metadata_has_the_format_of_kafka() -> None:
    disk = new_disk()
    new_log(disk)
    assert disk.read(f"{DIRECTORY}/partition.metadata") == b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw"


def test_opening_a_clean_log_reads_little() -> None:
    # Tens of thousands of partitions start at once: a clean log costs a fixed number of operations.
    disk = CountingDisk(Random(1))
    log = new_log(disk, SMALL)
    fill(log, [b"%03d" % number for number in range(200)])
    log.close()
    disk.steps = 0
    log = open_log(disk, SMALL, clean=True)
    assert disk.steps <= 13 and log.end_offset == 200
    log.close()
    assert disk.steps <= 13, "closing what was not touched costs nothing"


def _reopened(log: Log) -> Log:
    log.close()
    return opening.open_log(
        log.files.disk, log.directory, log.settings, clean=True, recovery_point=0, log_start_offset=0, now_ms=NOW
    )


def test_closing_an_unchanged_log_writes_nothing() -> None:
    # After a restart a broker with ten thousand partitions leads each in a new epoch. As long as no record is written
    # in it, there is nothing to store; the first record changes that.
    disk = new_disk()
    log = new_log(disk, SMALL)
    fill(log, [b"%03d" % number for number in range(10)], leader_epoch=1)
    log.close()
    for epoch in (2, 3):
        log = open_log(disk, SMALL, clean=True, recovery_point=10)
        log.epochs.assign(epoch, log.end_offset)
        before = disk.operations
        log.close()
        assert disk.operations == before
    log = open_log(disk, SMALL, clean=True, recovery_point=10)
    log.epochs.assign(4, log.end_offset)
    append(log, batch_of(b"more"), leader_epoch=4)
    log.close()
    assert open_log(disk, SMALL, clean=True, recovery_point=11).epochs.entries == [(1, 0), (4, 10)]


def test_a_truncation_that_runs_can_be_read_around_and_not_written_to() -> None:
    disk = new_disk()
    log = new_log(disk, SMALL)
    for number in range(20):
        append(log, batch_of(b"%03d" % number, producer_id=1, sequence=number), leader_epoch=number // 5)
    truncation = start_truncation(log, 12)
    assert log.end_offset == 12 and values(log) == [b"%03d" % number for number in range(12)]
    with pytest.raises(KafkaError) as caught:
        append(log, batch_of(b"new"))
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR and not log.has_failed
    with pytest.raises(KafkaError):
        log.roll(NOW)  # its snapshot would have the producers of records that are gone
    truncation.run()
    truncation.run()  # as after a disk that was full
    finish_truncation(log, truncation)
    assert append(log, batch_of(b"new", producer_id=1, sequence=12)).base_offset == 12


def test_retention_may_drop_segments_while_the_log_is_truncated() -> None:
    disk = new_disk()
    log = new_log(disk, SMALL)
    for number in range(40):
        append(log, batch_of(b"%03d" % number, producer_id=1, sequence=number))
    for snapshot in [name for name in disk.list(DIRECTORY) if name.endswith(".snapshot")]:
        disk.unlink(f"{DIRECTORY}/{snapshot}")
    truncation = start_truncation(log, 30)
    log.advance_log_start(20)
    log.drop_segments(20)
    truncation.run()
    finish_truncation(log, truncation)
    assert append(log, batch_of(b"new", producer_id=1, sequence=30)).base_offset == 30


@pytest.mark.parametrize("lose_unsynced", [False, True])
def test_a_crash_within_a_truncation_leaves_no_hole(lose_unsynced: bool) -> None:
    for step in range(1, 40):
        disk = new_disk(step)
        log = new_log(disk, SMALL)
        fill(log, [b"%03d" % number for number in range(30)])
        log.flush()
        disk.crash_at(disk.operations + step)
        with contextlib.suppress(Crashed):
            truncate_to(log, 7)
        disk.crash(lose_unsynced)
        log = open_log(disk, SMALL)
        assert [record.offset for record in records(log)] == list(range(log.end_offset))
        assert log.end_offset >= 7


def test_a_log_that_is_created_anew_takes_nothing_over() -> None:
    # A directory may be there already, with what a crash left in it.
    disk = new_disk()
    disk.make_directory(DIRECTORY)
    for name in ("00000000000000000000.index", "00000000000000000007.timeindex", "00000000000000000000.log.cleaned"):
        disk.replace(f"{DIRECTORY}/{name}", b"left over")
    log = new_log(disk)
    assert (log.log_start_offset, log.end_offset) == (0, 0)
    assert disk.list(DIRECTORY) == ["00000000000000000000.log", "partition.metadata"]
