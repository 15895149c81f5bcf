"""What a follower asks for, and what each answer of the leader means to it."""

from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.cluster.image import PartitionImage
from ottla.errors import ErrorCode
from ottla.records import batch
from ottla.replication.following import (
    ASK_RANGE,
    OUTDATED,
    UP_TO_DATE,
    Append,
    BeginWithin,
    Retry,
    StartAnew,
    Truncate,
    Verdict,
    find_divergence,
    judge,
    judge_range,
    last_epoch,
    make_request,
    next_backoff_s,
)
from ottla.storage.epochs import LeaderEpochs
from ottla.wire.fetch import EpochEndOffset, FetchPartition, PartitionResult
from tests.simulation.disk import SimulatedDisk

LEADER, ME = 1, 2
EPOCH = 7


def log(end: int, *epochs: tuple[int, int], start: int = 0) -> Any:
    """A log up to `end`, whose leader epochs begin at these offsets."""
    known = LeaderEpochs(SimulatedDisk(Random(1)), "/epochs")
    for epoch, offset in epochs:
        known.assign(epoch, offset)
    return SimpleNamespace(end_offset=end, log_start_offset=start, epochs=known)


def partition(
    followed: Any,
    leader: int = LEADER,
    epoch: int = EPOCH,
    isr: tuple[int, ...] = (LEADER, ME),
    elr: tuple[int, ...] = (),
) -> Any:
    state = PartitionImage((LEADER, ME), isr, leader, epoch, elr=elr)
    return SimpleNamespace(broker_id=ME, state=state, log=followed)


def ask(followed: Any, epoch: int = EPOCH) -> FetchPartition:
    return make_request(3, epoch, followed, 4, 1000)


def verdict(followed: Any, result: PartitionResult) -> Verdict:
    return judge(partition(followed), LEADER, ask(followed), result)


def test_a_request_says_where_the_log_ends_and_who_wrote_its_last_record() -> None:
    asked = ask(log(10, (2, 0), (5, 8), start=3))
    assert (asked.index, asked.current_leader_epoch, asked.fetch_offset, asked.last_fetched_epoch) == (3, 7, 10, 5)
    assert (asked.log_start_offset, asked.max_bytes, asked.high_watermark) == (3, 1000, 4)


def test_an_epoch_without_records_is_not_the_last_one() -> None:
    # A leader notes its epoch when it begins to lead. If it wrote nothing, no other replica has heard of the epoch.
    assert last_epoch(log(10, (2, 0), (6, 10))) == 2
    assert last_epoch(log(10, (2, 0), start=10)) == -1
    assert last_epoch(log(0)) == -1


def test_records_are_appended() -> None:
    for records in (b"batch", bytearray(b"batch"), memoryview(b"batch")):
        assert verdict(log(10, (5, 0)), PartitionResult(3, records=records)) == Append(records)


def encode(base: int, count: int) -> bytes:
    return bytes(batch.encode([(None, b"%d" % number, (), 0) for number in range(count)], base_offset=base))


def test_an_empty_log_that_starts_within_the_first_batch_begins_where_that_does() -> None:
    # DeleteRecords moves a log start to any offset, also into the middle of a batch.
    empty, first = log(55, start=55), encode(50, 10)
    for records in (first, first + encode(60, 3), bytearray(first), memoryview(first)):
        assert verdict(empty, PartitionResult(3, records=records)) == BeginWithin(50, 55, bytes(records))
    for start in (51, 59):
        assert verdict(log(start, start=start), PartitionResult(3, records=first)) == BeginWithin(50, start, first)


def test_a_log_that_ends_where_the_leaders_starts_is_as_good_as_empty() -> None:
    # Its last record, 54, is of another epoch than the leader's batch. The leader knows nothing of it: its log starts
    # at 55, and so does the epoch of the batch.
    result = PartitionResult(3, records=encode(50, 10), log_start_offset=55)
    assert verdict(log(55, (2, 0)), result) == BeginWithin(50, 55, encode(50, 10))
    assert verdict(log(55, (2, 0)), PartitionResult(3, records=encode(55, 10), log_start_offset=55)) == Append(
        encode(55, 10)
    )


@pytest.mark.parametrize(
    ("start", "end", "records"),
    [
        (50, 50, encode(50, 10)),
        (45, 45, encode(50, 10)),  # the batch before it was compacted away
        (60, 60, encode(50, 10)),  # is over before the log start
        (54, 55, encode(50, 10)),  # the log has a record
        (55, 55, encode(50, 10)[:-1]),
        (55, 55, encode(50, 10)[:-1] + b"?"),
        (55, 55, encode(50, 10) + encode(55, 2)),
        (55, 55, encode(-1, 100)),
        (55, 55, b"no batch"),
    ],
)
def test_a_log_does_not_give_up_its_start_for_other_batches(start: int, end: int, records: bytes) -> None:
    """Those that do not fit are refused when they are appended."""
    assert verdict(log(end, (5, 0), start=start), PartitionResult(3, records=records)) == Append(records)


def test_no_records_means_that_there_are_none() -> None:
    for records in (None, b"", memoryview(b"")):
        assert verdict(log(10, (5, 0)), PartitionResult(3, records=records)) == UP_TO_DATE


def test_an_answer_is_outdated_if_anything_changed() -> None:
    followed = log(10, (5, 0))
    asked, result = ask(followed), PartitionResult(3, records=b"batch")
    assert judge(partition(followed), LEADER, asked, result) == Append(b"batch")
    assert judge(partition(followed, leader=9), LEADER, asked, result) == OUTDATED
    assert judge(partition(followed, leader=ME), LEADER, asked, result) == OUTDATED
    assert judge(partition(followed, epoch=EPOCH + 1), LEADER, asked, result) == OUTDATED
    retired = partition(followed)
    retired.state = None
    assert judge(retired, LEADER, asked, result) == OUTDATED
    for end in (9, 11):
        followed.end_offset = end
        assert judge(partition(followed), LEADER, asked, result) == OUTDATED


def test_outdated_errors_and_divergences_are_ignored_too() -> None:
    followed = log(10, (5, 0))
    asked = ask(followed)
    followed.end_offset = 9
    for result in (
        PartitionResult(3, ErrorCode.OFFSET_OUT_OF_RANGE),
        PartitionResult(3, diverging_epoch=EpochEndOffset(5, 4)),
    ):
        assert judge(partition(followed), LEADER, asked, result) == OUTDATED


@pytest.mark.parametrize("code", [code for code in ErrorCode if code.value > 0 and code.name != "OFFSET_OUT_OF_RANGE"])
def test_errors_are_retried(code: ErrorCode) -> None:
    assert verdict(log(10, (5, 0)), PartitionResult(3, code, records=b"x")) == Retry(code)


def test_an_error_that_this_broker_does_not_know_is_retried() -> None:
    assert verdict(log(10, (5, 0)), PartitionResult(3, 999)) == Retry(999)


def test_out_of_range_needs_the_leaders_range() -> None:
    assert verdict(log(10, (5, 0)), PartitionResult(3, ErrorCode.OFFSET_OUT_OF_RANGE)) == ASK_RANGE


# Divergence


def test_the_log_is_truncated_where_the_common_epoch_ends_earlier() -> None:
    followed = log(10, (2, 0), (5, 4))
    assert verdict(followed, diverging(5, 8)) == Truncate(8)  # the leader's end of the epoch
    assert verdict(followed, diverging(2, 9)) == Truncate(4)  # our end of it
    assert verdict(followed, diverging(2, 3)) == Truncate(3)


def test_an_epoch_that_this_log_lacks_costs_everything_after_the_next_lower_one() -> None:
    # KIP-279: how much of epoch 2 the leader has is asked next.
    assert verdict(log(10, (2, 0), (5, 4)), diverging(3, 9)) == Truncate(4)
    assert verdict(log(10, (2, 0), (5, 4), (6, 7)), diverging(5, 9)) == Truncate(7)


def test_a_log_with_nothing_in_common_starts_anew_where_the_leader_begins() -> None:
    followed = log(10, (5, 6), start=6)
    assert verdict(followed, diverging(5, 2, start=1)) == StartAnew(1)
    assert verdict(followed, diverging(5, 2, start=-1)) == ASK_RANGE
    assert verdict(followed, diverging(5, 6, start=1)) == Truncate(6)


def test_a_log_that_has_only_what_the_leader_has_deleted_starts_anew() -> None:
    followed = log(10, (2, 0), (5, 4))

    def find(result: PartitionResult, **known: Any) -> Verdict:
        return judge(partition(followed, **known), LEADER, ask(followed), result)

    assert find(diverging(5, 8, start=8), isr=(LEADER,)) == StartAnew(8)
    assert find(diverging(5, 10, start=10), isr=(LEADER,)) == StartAnew(10)
    assert find(diverging(2, 9, start=7), isr=(LEADER,)) == StartAnew(7)
    assert find(diverging(5, 8, start=7), isr=(LEADER,)) == Truncate(8)
    # While it starts anew, such a replica would lack what was acknowledged if it were elected.
    assert find(diverging(5, 8, start=8), isr=(LEADER, ME)) == Truncate(8)
    assert find(diverging(5, 8, start=8), isr=(LEADER,), elr=(ME,)) == Truncate(8)


def test_the_high_watermark_never_decides_where_to_truncate() -> None:
    followed = log(10, (2, 0), (5, 4))
    for high_watermark in (0, 5, 9, 10):
        result = diverging(5, 8)
        result.high_watermark = high_watermark
        assert verdict(followed, result) == Truncate(8)


def test_a_divergence_that_takes_nothing_away_is_not_believed() -> None:
    found = verdict(log(10, (2, 0), (5, 4)), diverging(5, 10))
    assert isinstance(found, Retry) and found.error_code == ErrorCode.CORRUPT_MESSAGE
    assert isinstance(verdict(log(10), diverging(5, 12)), Retry)


def diverging(epoch: int, end: int, start: int = 0) -> PartitionResult:
    return PartitionResult(3, log_start_offset=start, diverging_epoch=EpochEndOffset(epoch, end))


epoch_lengths = st.dictionaries(st.integers(0, 6), st.integers(1, 4), max_size=5)


@given(common=epoch_lengths, mine=epoch_lengths, leaders=epoch_lengths)
def test_repeated_truncation_ends_where_the_logs_are_equal(
    common: dict[int, int], mine: dict[int, int], leaders: dict[int, int]
) -> None:
    """Logs are made of (epoch, number) records; they diverge after a common beginning. No epoch has two leaders."""
    shared = [(epoch, number) for epoch in sorted(common) for number in range(common[epoch])]
    last = max(common, default=-1)
    # An epoch is written by one leader only: whoever has more of it has the same records before.
    ours = shared + [(epoch, number) for epoch in sorted(mine) if epoch > last for number in range(mine[epoch])]
    theirs = shared + [
        (epoch, number)
        for epoch in sorted(leaders)
        if epoch > last and epoch not in mine
        for number in range(leaders[epoch])
    ]
    leader = epochs_of(theirs)
    leader.assign(EPOCH, len(theirs))
    for _ in range(20):
        followed = SimpleNamespace(end_offset=len(ours), log_start_offset=0, epochs=epochs_of(ours))
        asked = ask(followed)
        if asked.last_fetched_epoch < 0:
            break
        epoch, end = leader.end_offset_for(asked.last_fetched_epoch, len(theirs))
        if epoch == asked.last_fetched_epoch and end >= asked.fetch_offset:
            break
        offset = find_divergence(followed, EpochEndOffset(epoch, end))
        assert offset < len(ours)
        del ours[offset:]
    assert ours == shared == theirs[: len(ours)]


def epochs_of(records: list[tuple[int, int]]) -> LeaderEpochs:
    known = LeaderEpochs(SimulatedDisk(Random(1)), "/epochs")
    for offset, (epoch, _) in enumerate(records):
        if epoch != known.latest:
            known.assign(epoch, offset)
    return known


# Out of range


def test_below_the_leaders_start_the_log_starts_anew() -> None:
    assert judge_range(log(10, (5, 0)), EPOCH, 11, 20) == StartAnew(11)


def test_above_the_leaders_end_the_log_is_truncated() -> None:
    assert judge_range(log(10, (5, 0)), EPOCH, 0, 8) == Truncate(8)
    assert judge_range(log(10, start=10), EPOCH, 0, 8) == StartAnew(0)
    assert judge_range(log(10, (5, 9), start=9), EPOCH, 2, 8) == StartAnew(2)


def test_records_of_epochs_after_the_leaders_are_truncated() -> None:
    assert judge_range(log(10, (5, 0), (9, 6)), EPOCH, 0, 20) == Truncate(6)
    assert judge_range(log(10, (5, 0), (9, 6)), EPOCH, 0, 4) == Truncate(4)


def test_a_range_that_explains_nothing_is_asked_for_again_later() -> None:
    found = judge_range(log(10, (5, 0)), EPOCH, 0, 20)
    assert isinstance(found, Retry) and found.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_pauses_grow_up_to_the_setting() -> None:
    pauses = [0.0]
    for _ in range(10):
        pauses.append(next_backoff_s(pauses[-1], 1.0))
    assert pauses[1] < 0.1 and pauses == sorted(pauses) and pauses[-1] == 1.0
    assert next_backoff_s(0.0, 0.0) == 0.0
