"""What a follower asks the leader of one partition for, and what the leader's answer means. No I/O, no clock.

A follower asks for the records from the end of its log on, and says in which leader epoch its last record was written.
A leader that has no such record answers with the largest epoch that is not above it, and where that epoch ends: the
logs diverge there at the latest. The follower truncates its log to that point and asks again (KIP-101, KIP-279,
KIP-595). It never truncates to its high watermark, which may lag behind what the leader has acknowledged.

An answer is applied only if nothing has changed since it was asked for: the leader, its epoch, the topic, and the end
of the log. Otherwise the records of an earlier leader could end up behind a hole.
"""

from dataclasses import dataclass
from typing import Protocol

from ottla.cluster.entities import PartitionImage
from ottla.errors import ErrorCode
from ottla.records.batch import CorruptBatch, read_header
from ottla.storage.epochs import UNDEFINED, LeaderEpochs
from ottla.storage.scan import check_batches
from ottla.wire.fetch import EpochEndOffset, FetchPartition, PartitionResult
from ottla.wire.primitives import Bytes

BACKOFF_FIRST_S = 0.01
"""Pause after the first error of a partition. After a change of leaders the new leader may learn of it a moment later
than its followers. The pause doubles up to replica.fetch.backoff.ms."""


class FollowedLog(Protocol):
    end_offset: int
    log_start_offset: int
    epochs: LeaderEpochs


class FollowedPartition(Protocol):
    broker_id: int

    @property
    def state(self) -> PartitionImage | None: ...

    @property
    def log(self) -> FollowedLog: ...


@dataclass(frozen=True, slots=True)
class Append:
    """The leader sent records, which come after the end of the log."""

    records: Bytes


@dataclass(frozen=True, slots=True)
class UpToDate:
    """The leader has no further records."""


@dataclass(frozen=True, slots=True)
class Truncate:
    """The log and the leader's diverge at `offset`, or before it."""

    offset: int


@dataclass(frozen=True, slots=True)
class StartAnew:
    """The log has nothing in common with what the leader has: remove all records, and begin at `offset`."""

    offset: int


@dataclass(frozen=True, slots=True)
class BeginWithin:
    """The follower has no record from the leader's log start on, which is inside the leader's first batch.

    DeleteRecords has deleted the records of the batch before it, and a batch is copied as a whole. So remove what is
    left, begin where the batch does, at `offset`, append `records`, and let the log start be at `log_start_offset`.
    """

    offset: int
    log_start_offset: int
    records: bytes


@dataclass(frozen=True, slots=True)
class AskRange:
    """The leader has no record at the end of this log. Ask it where its log begins and ends."""


@dataclass(frozen=True, slots=True)
class Retry:
    """Ask again after a pause. `error_code` is the leader's, or CORRUPT_MESSAGE if its answer makes no sense."""

    error_code: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Outdated:
    """Something changed after the request was sent: ignore the answer."""


Verdict = Append | UpToDate | Truncate | StartAnew | BeginWithin | AskRange | Retry | Outdated

UP_TO_DATE = UpToDate()
ASK_RANGE = AskRange()
OUTDATED = Outdated()


def make_request(
    index: int, leader_epoch: int, log: FollowedLog, high_watermark: int, max_bytes: int
) -> FetchPartition:
    """What to ask the leader for next. The high watermark is this replica's: the leader sends a later one."""
    request = FetchPartition(index, leader_epoch, log.end_offset, last_epoch(log), log.log_start_offset, max_bytes)
    request.high_watermark = high_watermark
    return request


def last_epoch(log: FollowedLog) -> int:
    """The leader epoch of the last record; -1 if there is none.

    It is not the last epoch that the log knows: a leader notes its epoch before the first record of it.
    """
    if log.end_offset == log.log_start_offset:
        return UNDEFINED
    return log.epochs.epoch_at(log.end_offset - 1)


def judge(partition: FollowedPartition, leader: int, asked: FetchPartition, result: PartitionResult) -> Verdict:
    """What the leader's answer to the request `asked` means for the partition as it is now."""
    state, log = partition.state, partition.log
    if (
        state is None
        or state.leader != leader
        or state.leader_epoch != asked.current_leader_epoch
        or log.end_offset != asked.fetch_offset
    ):
        return OUTDATED
    if result.error_code:
        if result.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            return ASK_RANGE
        return Retry(result.error_code)
    if result.diverging_epoch is not None:
        offset, leader_start = find_divergence(log, result.diverging_epoch), result.log_start_offset
        may_be_elected = partition.broker_id in state.isr or partition.broker_id in state.elr
        if offset < log.log_start_offset or (offset <= leader_start and not may_be_elected):
            # No record is common to both logs, except for some that the leader does not have any more. Those of this
            # log would come back if a crash undid that its log start follows the leader's, and may be other ones.
            return StartAnew(leader_start) if leader_start >= 0 else ASK_RANGE
        if offset >= log.end_offset:
            epoch, end = result.diverging_epoch
            return Retry(
                ErrorCode.CORRUPT_MESSAGE, f"the leader's epoch {epoch} to {end} does not diverge from this log"
            )
        return Truncate(offset)
    records = result.records
    if not isinstance(records, bytes | bytearray | memoryview) or not len(records):
        return UP_TO_DATE
    if log.end_offset in (log.log_start_offset, result.log_start_offset):
        begin = find_begin(records, log.end_offset)
        if begin is not None:
            return BeginWithin(begin, log.end_offset, bytes(records))
    return Append(records)


def find_begin(records: Bytes, next_offset: int) -> int | None:
    """Where the first batch begins, if `next_offset` is inside it and all batches are sound; otherwise None."""
    try:
        first = read_header(records)
        if not 0 <= first.base_offset < next_offset < first.next_offset:
            return None
        return first.base_offset if check_batches(memoryview(records), first.base_offset) else None
    except CorruptBatch:
        return None


def find_divergence(log: FollowedLog, leaders: EpochEndOffset) -> int:
    """Where to truncate the log if the leader's largest common epoch, or an earlier one, ends as `leaders` says.

    If this log does not have the epoch, everything after its next lower one is not the leader's, and the next answer
    tells how much of that one is.
    """
    epoch, end_offset = log.epochs.end_offset_for(leaders.epoch, log.end_offset)
    if epoch == UNDEFINED:
        return leaders.end_offset
    return min(end_offset, leaders.end_offset) if epoch == leaders.epoch else end_offset


def judge_range(log: FollowedLog, leader_epoch: int, leader_start: int, leader_end: int) -> Verdict:
    """What to do after OFFSET_OUT_OF_RANGE, if the leader's log is from `leader_start` to `leader_end`."""
    end = log.end_offset
    if leader_start > end:
        return StartAnew(leader_start)
    # The leader knows no epoch above its own. Records of such epochs can only be left from metadata that was lost.
    epoch, epoch_end = log.epochs.end_offset_for(leader_epoch, end)
    if epoch != UNDEFINED:
        leader_end = min(leader_end, epoch_end)
    if leader_end < log.log_start_offset:
        return StartAnew(leader_start)
    if leader_end < end:
        return Truncate(leader_end)
    return Retry(ErrorCode.OFFSET_OUT_OF_RANGE, f"although the leader's log is from {leader_start} to {leader_end}")


def next_backoff_s(backoff_s: float, backoff_s_max: float) -> float:
    return min(max(2 * backoff_s, BACKOFF_FIRST_S), backoff_s_max)


def name_error(code: int) -> str:
    """The name of an error code; a code that this broker does not know keeps its number."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error code {code}"
