"""A disk without room, or a process without descriptors, at any operation of a log: the log goes on when it is over.

Each run does the same work. In one of its operations, and in those that follow it, the disk refuses. Whoever asked
gets an error, nothing else has changed, and the same call succeeds when there is room again. The log never gives up.
"""

import contextlib
import errno
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.records import batch
from ottla.storage import names
from ottla.storage.cleaner.target import Target
from ottla.storage.disk_errors import FailedSync, is_failure
from ottla.storage.flush import sync
from ottla.storage.log import Log, LogSettings
from ottla.storage.opening import create_log
from ottla.storage.truncation import Truncation, finish_truncation, start_anew, start_truncation
from tests.samples import choose_sample
from tests.simulation.disk import SimulatedDisk
from tests.unit.storage.cleaner.compactions import carry_out, order_for, pairs
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
    overwrite,
    path,
    records,
    values,
)

SMALL = LogSettings(segment_bytes=400, index_interval_bytes=100, compacted=True)
LARGE = LogSettings(index_interval_bytes=100)
ATTEMPTS_MAX = 5
LASTING = (1, 2, 3, None)
"""How many operations find no room. None: all, until an error has reached the caller."""


@dataclass
class Work:
    """A log, and what must be in it."""

    disk: SimulatedDisk
    log: Log = field(init=False)
    expected: dict[int, bytes | None] = field(default_factory=dict)
    """The value of the record at each offset."""
    aborted: list[tuple[int, int]] = field(default_factory=list)
    """First and last offsets of aborted transactions."""
    refusals: int = 0
    compacted: bool = False

    def insist(self, action: Callable[[], object]) -> object:
        """Do something, again if a shortage prevents it. Each error must say that it was one."""
        for _ in range(ATTEMPTS_MAX):
            try:
                return action()
            except KafkaError as error:
                assert error.code is ErrorCode.KAFKA_STORAGE_ERROR, error
                assert isinstance(error.__cause__, OSError) and not is_failure(error.__cause__), error
            except OSError as error:
                assert not is_failure(error), error
            self.refusals += 1
            self.disk.heal()
        raise AssertionError("there is room, and it does not work")

    def check(self) -> None:
        log = self.log
        assert not log.has_failed
        if self.compacted:
            # The latest value of each key is there; others may be.
            found = {record.offset: record.value for record in records(log)}
            assert found.items() <= self.expected.items()
            assert max(found) == max(self.expected)
        else:
            assert {record.offset: record.value for record in records(log)} == self.expected
            assert [
                (entry.first_offset, entry.last_offset)
                for entry in log.aborted_transactions(log.log_start_offset, log.end_offset)
            ] == self.aborted

    # Steps. Each of them can be repeated.

    def create(self) -> None:
        self.log = create_log(self.disk, DIRECTORY, TOPIC_ID, SMALL, NOW)
        self.log.on_disk_failure = _refuse_failure

    def append(self, data: bytearray, leader_epoch: int = 0) -> None:
        try:
            appended = append(self.log, bytearray(data), leader_epoch=leader_epoch)
        except OSError as error:
            raise AssertionError("an append that fails is a KafkaError") from error
        assert not appended.is_duplicate, "what was refused is not remembered"
        self.remember(data, appended.base_offset)

    def follow(self, data: bytearray) -> None:
        """Append what a leader sent. After an error the rest is fetched again, from the end of the log on."""
        rest = bytearray()
        for position, header in batch.headers(data):
            if header.base_offset >= self.log.end_offset:
                rest += data[position : position + header.size]
        before = self.log.end_offset
        try:
            if rest:
                self.log.append_as_follower(rest, NOW)
        except OSError as error:
            raise AssertionError("an append that fails is a KafkaError") from error
        finally:
            for position, header in batch.headers(data):
                if before <= header.base_offset < self.log.end_offset:
                    self.remember(data[position : position + header.size], header.base_offset)

    def remember(self, data: bytearray, base_offset: int) -> None:
        for number, record in enumerate(batch.decode(data, 0)):
            self.expected[base_offset + number] = record.value

    def truncate(self, offset: int) -> None:
        truncation = self.insist(lambda: start_truncation(self.log, offset))
        assert isinstance(truncation, Truncation)
        self.expected = {key: value for key, value in self.expected.items() if key < self.log.end_offset}
        self.insist(truncation.run)
        finish_truncation(self.log, truncation)

    def expire(self, offset: int) -> None:
        self.log.advance_log_start(offset)
        self.expected = {key: value for key, value in self.expected.items() if key >= offset}
        self.insist(lambda: self.log.drop_segments(offset, in_order=True))
        removal = self.log.files.take_deleted()
        self.insist(removal.run)

    def compact(self) -> None:
        self.compacted = True
        self.log.end_swap()
        for name in self.disk.list(DIRECTORY):
            if name.endswith(names.CLEANED):
                self.disk.unlink(f"{DIRECTORY}/{name}")
        carry_out(self.disk, self.log, order_for(self.log, segment_bytes=1300))


def _refuse_failure(reason: str) -> None:
    raise AssertionError(f"a shortage is no failure: {reason}")


def follower_data(begin: int) -> bytearray:
    """Batches of a leader, with two transactions of which the first is aborted, and many segments' worth of bytes."""
    batches = [
        batch_of(b"a", b"b", producer_id=7, sequence=0, transactional=True),
        batch_of(b"c", producer_id=8, sequence=0, transactional=True),
        batch.encode_control(7, 0, False, 0, NOW),
        *(batch_of(b"%03d" % number) for number in range(6)),
        batch.encode_control(8, 0, True, 0, NOW),
    ]
    data, offset = bytearray(), begin
    for one in batches:
        batch.stamp(one, offset, 4)
        offset = batch.read_header(one).next_offset
        data += one
    return data


def play(disk: SimulatedDisk) -> Work:
    """Everything that a broker does with a log."""
    work = Work(disk)
    work.insist(work.create)
    for number in range(12):
        data = batch_of(b"%03d" % number, producer_id=3, sequence=number)
        work.insist(partial(work.append, data, number // 5))
        if number % 4 == 3:
            work.insist(work.log.flush)
    work.insist(lambda: work.append(batch_of(b"aborted", producer_id=9, sequence=0, transactional=True), 3))
    work.insist(lambda: work.append(batch.encode_control(9, 0, False, 0, NOW), 3))
    work.aborted.append((12, 13))
    work.insist(work.check)
    data = follower_data(work.log.end_offset)
    work.insist(lambda: work.follow(data))
    work.aborted.append((14, 17))
    work.insist(work.log.flush)
    work.insist(work.check)
    work.truncate(21)
    work.insist(lambda: work.follow(data))
    work.insist(work.check)
    work.expire(6)
    work.insist(work.check)
    work.insist(lambda: work.log.roll(NOW))
    for number in range(12, 16):
        again = pairs((f"key {number % 2}", "value"), producer_id=3, sequence=number)
        work.insist(partial(work.append, again, 5))
    work.insist(lambda: work.log.roll(NOW))
    work.insist(work.log.flush)
    work.insist(work.compact)
    work.insist(work.check)
    work.insist(lambda: work.append(batch_of(b"last", producer_id=3, sequence=16), 6))
    work.insist(work.check)
    return work


def attempts() -> int:
    disk = new_disk()
    assert play(disk).refusals == 0
    return disk.attempts


@pytest.mark.parametrize("ending", ["close", "kill", "power cut"])
def test_a_shortage_at_any_operation_passes(ending: str) -> None:
    count = attempts()
    assert count > 300
    refusals = 0
    for after, times in choose_sample([(after, times) for after in range(count) for times in LASTING], 40, ending):
        disk = new_disk(after)
        disk.run_short(after, times=times)
        try:
            work = play(disk)
            refusals += work.refusals
            disk.heal()
            check_ending(work, ending)
        except BaseException as error:
            error.add_note(f"{times} operations failed after {after}")
            raise
    assert refusals


def check_ending(work: Work, ending: str) -> None:
    """The log has the same records, epochs and producers after it was opened again."""
    disk, log = work.disk, work.log
    epochs = log.epochs.entries
    work.insist(log.flush)
    recovery_point = log.recovery_point
    assert recovery_point == log.end_offset
    if ending == "close":
        log.close()
    disk.crash(lose_unsynced=ending == "power cut")
    work.log = open_log(
        disk, SMALL, clean=ending == "close", recovery_point=recovery_point, log_start_offset=log.log_start_offset
    )
    work.check()
    assert work.log.epochs.entries == epochs
    assert append(work.log, batch_of(b"last", producer_id=3, sequence=16), leader_epoch=6).is_duplicate
    work.append(batch_of(b"more", producer_id=3, sequence=17), 6)
    unfinished = (names.CLEANED, names.SWAP, names.DELETED, names.TEMPORARY)
    assert not [name for name in disk.list(DIRECTORY) if name.endswith(unfinished)]


def filled_log(disk: SimulatedDisk) -> Log:
    """A log with many segments, their snapshots and an aborted transaction, opened again: nothing is cached."""
    log = new_log(disk, SMALL)
    for number in range(20):
        append(log, batch_of(b"%03d" % number, producer_id=1, sequence=number), leader_epoch=number // 5)
    append(log, batch_of(b"aborted", producer_id=2, sequence=0, transactional=True), leader_epoch=4)
    append(log, batch.encode_control(2, 0, False, 0, NOW), leader_epoch=4)
    log.close()
    log = open_log(disk, SMALL, clean=True, recovery_point=log.end_offset)
    log.on_disk_failure = _refuse_failure
    return log


CUTS: tuple[tuple[Callable[[Log], Truncation], list[int]], ...] = (
    (lambda log: start_truncation(log, 7), list(range(7))),
    (lambda log: start_truncation(log, 21), list(range(21))),  # the transaction is open again
    (lambda log: start_anew(log, 0), []),
    (lambda log: start_anew(log, 50), []),
)
"""Ways to cut the log of `filled_log`, with the offsets that stay."""


@pytest.mark.parametrize(("cut", "kept"), CUTS)
@pytest.mark.parametrize("times", [1, None])
def test_a_truncation_is_finished_when_there_is_room(
    cut: Callable[[Log], Truncation], kept: list[int], times: int | None
) -> None:
    # A file system that copies on write needs room for a rename and an unlink, too.
    refused = 0
    for after in range(80):
        disk = new_disk(after)
        log = filled_log(disk)
        before = [record.offset for record in records(log)]
        disk.run_short(after, times=times)
        try:
            truncation = cut(log)
        except OSError as error:
            assert not is_failure(error)
            disk.heal()
            assert [record.offset for record in records(log)] == before and log.aborted_transactions(0, 22), after
            truncation = cut(log)
        try:
            truncation.run()
        except OSError as error:
            refused += 1
            assert not is_failure(error)
            disk.heal()
            with pytest.raises(KafkaError):
                append(log, batch_of(b"too early"))
            assert [record.offset for record in records(log)] == kept, after
            truncation.run()
        disk.heal()
        finish_truncation(log, truncation)
        assert not log.has_failed and log.aborted_transactions(0, log.end_offset) == []
        base = append(log, batch_of(b"new"), leader_epoch=9).base_offset
        log.files.take_deleted().run()
        assert [record.offset for record in records(log)] == [*kept, base], after
        log.flush()
        disk.crash(lose_unsynced=True)
        again = open_log(disk, SMALL, recovery_point=log.recovery_point, log_start_offset=log.log_start_offset)
        assert [record.offset for record in records(again)] == [*kept, base], after
        assert again.epochs.entries == log.epochs.entries
        assert not [name for name in disk.list(DIRECTORY) if name.endswith((names.DELETED, names.TEMPORARY))]
    assert refused


@pytest.mark.parametrize(("cut", "kept"), CUTS)
@pytest.mark.parametrize("lose_unsynced", [False, True])
def test_a_crash_while_a_truncation_waits_for_room_leaves_no_hole(
    cut: Callable[[Log], Truncation], kept: list[int], lose_unsynced: bool
) -> None:
    # What is still there was cut off in memory only. It comes back, and the leader says again where to cut. A power cut
    # may bring back any of the segments that were renamed since the last sync.
    seen = set()
    for after in range(80):
        disk = new_disk(after)
        log = filled_log(disk)
        recovery_point = log.recovery_point
        disk.run_short(after, times=None)
        with contextlib.suppress(OSError):
            cut(log).run()
        disk.heal()
        disk.crash(lose_unsynced)
        again = open_log(disk, SMALL, recovery_point=recovery_point)
        found = [record.offset for record in records(again)]
        assert found[: len(kept)] == kept and (lose_unsynced or found == list(range(len(found)))), after
        seen.add(len(found))
        truncation = cut(again)
        truncation.run()
        finish_truncation(again, truncation)
        assert [record.offset for record in records(again)] == kept
    assert len(seen) > 1


@pytest.mark.parametrize(("cut", "kept"), [CUTS[0], *CUTS[2:]])  # the other drops no segment
def test_what_a_truncation_drops_makes_the_room_that_it_needs(
    cut: Callable[[Log], Truncation], kept: list[int]
) -> None:
    # The disk takes no byte and no new file as long as the dropped segments are there, and nothing else is deleted. Who
    # was about to read from one of them can finish.
    disk = new_disk()
    log = filled_log(disk)
    dropped = log.segments[-2]
    content = disk.read(dropped.path(names.LOG))
    file = dropped.file
    file.pin()
    truncation = cut(log)
    for operation in ("append", "create"):
        disk.fail(operation, errno.ENOSPC, times=None)
    with pytest.raises(OSError):
        truncation.run()
    assert not [name for name in disk.list(DIRECTORY) if name.endswith(names.DELETED)]
    held = [offset for offset in names.offsets_with(disk.list(DIRECTORY), names.LOG) if disk.size(path(offset, ".log"))]
    assert held == [segment.base_offset for segment in log.segments if segment.size]
    assert file.read_at(0, len(content)) == content
    file.unpin()
    disk.heal()
    truncation.run()
    finish_truncation(log, truncation)
    assert not log.files.has_deleted
    base = append(log, batch_of(b"new"), leader_epoch=9).base_offset
    assert [record.offset for record in records(log)] == [*kept, base]


@pytest.mark.parametrize("lose_unsynced", [False, True])
def test_a_crash_between_the_old_segments_and_a_new_beginning_leaves_an_empty_log(lose_unsynced: bool) -> None:
    disk = new_disk()
    log = filled_log(disk)
    disk.fail("create", errno.ENOSPC, path(50, ".log"))
    with pytest.raises(OSError):
        start_anew(log, 50).run()
    assert not names.offsets_with(disk.list(DIRECTORY), names.LOG)
    disk.fsync_directory(DIRECTORY)
    disk.crash(lose_unsynced)
    again = open_log(disk, SMALL, recovery_point=log.recovery_point)
    assert (again.log_start_offset, again.end_offset, again.epochs.entries) == (0, 0, [])
    truncation = start_anew(again, 50)
    truncation.run()
    finish_truncation(again, truncation)
    assert append(again, batch_of(b"new"), leader_epoch=9).base_offset == 50


def test_a_compaction_begins_when_the_names_of_the_last_one_are_on_the_disk() -> None:
    # After a power cut, a .swap file counts as incomplete if the next compaction had begun: it would be
    # deleted, and the segments that it replaced are gone.
    for seed in range(40):
        disk = new_disk(seed)
        log = new_log(disk, SMALL)
        expected = [b"%d" % number for number in range(9)]
        for number, value in enumerate(expected):
            append(log, pairs((f"key {number}", value.decode())))
        log.roll(NOW)
        log.flush()
        rename = disk.rename

        def rename_and_fail_next(source: str, target: str, disk: SimulatedDisk = disk, rename: Any = rename) -> None:
            rename(source, target)
            if source.endswith(names.LOG + names.SWAP):
                disk.fail("fsync_directory", errno.EMFILE, DIRECTORY)

        disk.rename = rename_and_fail_next  # type: ignore[method-assign]
        with pytest.raises(OSError):
            carry_out(disk, log, order_for(log, segment_bytes=1300))
        disk.rename = rename  # type: ignore[method-assign]
        log.end_swap()
        Target(disk, DIRECTORY, 0, 100)  # the first file of the next compaction
        disk.crash(lose_unsynced=True)
        assert values(open_log(disk, SMALL, recovery_point=9)) == expected, seed


def test_a_flush_that_found_no_room_for_the_epochs_writes_them_later() -> None:
    # Below the recovery point nobody reads epochs from the batches again.
    disk = new_disk()
    log = new_log(disk, SMALL)
    fill(log, [b"a"], leader_epoch=1)
    log.flush()
    fill(log, [b"b"], leader_epoch=7)
    log.roll(NOW)
    fill(log, [b"c"], leader_epoch=7)
    disk.fail("create", errno.ENOSPC, "*leader-epoch-checkpoint*")
    with pytest.raises(OSError):
        log.flush()
    log.flush()
    disk.crash(lose_unsynced=True)
    assert open_log(disk, SMALL, recovery_point=3).epochs.entries == [(1, 0), (7, 1)]


def test_a_flush_that_gets_no_descriptors_pins_no_file() -> None:
    # A pinned file keeps its descriptor for ever.
    disk = new_disk()
    log = new_log(disk, SMALL)
    fill(log, [b"%03d" % number for number in range(20)])
    files = [segment.file for segment in log.segments]
    disk.fail("reopen", errno.EMFILE, files[-1].path)
    with pytest.raises(OSError):
        log.start_flush()
    assert [file._pins for file in files] == [0] * len(files)  # type: ignore[attr-defined]
    log.flush()
    assert log.recovery_point == 20


def test_an_fsync_for_which_there_is_no_descriptor_has_not_failed() -> None:
    # Only a failed fsync says that the system has lost what it was to write.
    disk = new_disk()
    file = disk.open("/file", create=True)
    disk.fail("reopen", errno.EMFILE)
    with pytest.raises(OSError) as refused:
        sync(file)
    assert not is_failure(refused.value)
    disk.fail("fsync", errno.ENOSPC)
    with pytest.raises(FailedSync):
        sync(file)


@pytest.mark.parametrize("suffix", [names.OFFSET_INDEX, names.TIME_INDEX])
def test_an_index_that_cannot_be_rebuilt_now_is_rebuilt_later(suffix: str) -> None:
    # A log of one segment that was closed; its index was damaged since. The first append reads all of the segment. If
    # that fails in the middle, the append is taken back: not a single record more.
    count = 0
    for after in range(30):
        disk = new_disk()
        log = new_log(disk, LARGE)
        fill(log, [b"%03d" % number for number in range(9)])
        log.close()
        log = open_log(disk, LARGE, clean=True)
        overwrite(disk, path(0, suffix), b"torn")
        disk.run_short(after, times=1 + after % 2)
        try:
            append(log, batch_of(b"009"))
        except KafkaError:
            count += 1
            disk.heal()
            append(log, batch_of(b"009"))
        disk.heal()
        assert values(log) == [b"%03d" % number for number in range(10)], after
        disk.crash(lose_unsynced=False)
        assert values(open_log(disk, LARGE)) == [b"%03d" % number for number in range(10)], after
    assert count > 1


def test_a_full_disk_does_not_keep_damaged_indexes_from_being_read() -> None:
    # The indexes of a sealed segment are rebuilt in memory, and that of aborted transactions with all entries, then and
    # after a restart.
    disk = new_disk()
    log = new_log(disk, SMALL)
    for number in range(3):
        append(log, batch_of(b"aborted", producer_id=number, sequence=0, transactional=True))
        append(log, batch.encode_control(number, 0, False, 0, NOW))
    fill(log, [b"%03d" % number for number in range(9)])
    log.close()
    expected = [(0, 1), (2, 3), (4, 5)]
    for suffix in (names.OFFSET_INDEX, names.TIME_INDEX, names.TRANSACTION_INDEX):
        overwrite(disk, path(0, suffix), b"torn")
    for _ in range(2):
        log = open_log(disk, SMALL, clean=True)
        for operation in ("append", "create", "truncate"):
            disk.fail(operation, errno.ENOSPC, times=None)
        for _ in range(2):
            found = log.aborted_transactions(0, log.end_offset)
            assert [(entry.first_offset, entry.last_offset) for entry in found] == expected
            assert log.find_max_timestamp() is not None
            assert len(records(log)) == log.end_offset - log.log_start_offset
        disk.heal()


def test_an_active_segment_without_records_may_stay_when_the_log_goes_on_behind_it() -> None:
    # The first batch of a follower is too far away for the segment that is there.
    disk = new_disk()
    log = new_log(disk, SMALL)
    disk.fail("rename", errno.ENOSPC)
    far = batch_of(b"far")
    batch.stamp(far, 2**31 + 5, 0)
    log.append_as_follower(far, NOW)
    disk.heal()
    fill(log, [b"further"])
    log.advance_log_start(2**31 + 5)
    assert values(log) == [b"far", b"further"]
    disk.crash(lose_unsynced=False)
    assert values(open_log(disk, SMALL, log_start_offset=2**31 + 5)) == [b"far", b"further"]
