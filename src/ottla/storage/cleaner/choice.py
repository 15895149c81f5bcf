"""Which part of a log is dirty and may be compacted, and whether that is worth the work.

A log has a clean part, which was compacted before, a dirty one, and behind it what may not be compacted yet: the active
segment, everything from the segment with the first open transaction or the first uncommitted record on, and from the
first segment on that has a record younger than min.compaction.lag.ms or an unflushed one: if a power cut took a new
value whose predecessor was compacted away, the key would have no value at all. All limits are borders of segments.
"""

import logging
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from ottla.storage.cleaner.order import NO_OFFSET, LastBatch, Source
from ottla.storage.producer_state import ProducerStates
from ottla.storage.segment import Segment

logger = logging.getLogger(__name__)

NO_LIMIT_MS = 2**63 - 1


@dataclass(frozen=True, slots=True)
class CompactionRules:
    """A topic's settings about when to compact."""

    min_dirty_ratio: float = 0.5
    min_lag_ms: int = 0
    max_lag_ms: int = NO_LIMIT_MS


class DirtyLog(Protocol):
    log_start_offset: int
    end_offset: int
    first_dirty_offset: int
    recovery_point: int
    truncations: int
    producers: ProducerStates

    @property
    def segments(self) -> list[Segment]: ...


class Dirt(NamedTuple):
    """The part of a log that a compaction would read."""

    segments: Sequence[Segment]
    """All that may be compacted, the clean ones first."""
    dirty_from: int
    up_to: int
    clean_bytes: int
    dirty_bytes: int
    overdue_ms: int
    """For how long the oldest dirty segment has exceeded max.compaction.lag.ms; 0 if it has not."""
    truncations: int
    """How often the log had been truncated. A later truncation may have cut the last of the segments."""

    @property
    def ratio(self) -> float:
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0

    def is_worth_it(self, rules: CompactionRules) -> bool:
        return self.dirty_bytes > 0 and (self.overdue_ms > 0 or self.ratio > rules.min_dirty_ratio)

    def sources(self) -> tuple[Source, ...]:
        ends = [*(segment.base_offset for segment in self.segments[1:]), self.up_to]
        return tuple(
            Source(segment.base_offset, end, segment.size) for segment, end in zip(self.segments, ends, strict=True)
        )


def measure_dirt(log: DirtyLog, last_stable_offset: int, rules: CompactionRules, now_ms: int) -> Dirt:
    """Find what can be compacted: Kafka's rules, and only flushed records. OSError if a segment cannot be read."""
    segments = log.segments
    bases = [segment.base_offset for segment in segments]
    dirty_from = _find_first_dirty(log)
    first_dirty = max(bisect_right(bases, dirty_from) - 1, 0)
    end = max(bisect_right(bases, min(last_stable_offset, log.recovery_point)) - 1, 0)
    if rules.min_lag_ms > 0:
        for index in range(first_dirty, end):
            if segments[index].max_timestamp > now_ms - rules.min_lag_ms:
                end = index
                break
    dirty_bytes = sum(segment.size for segment in segments[first_dirty:end])
    return Dirt(
        segments[:end],
        dirty_from,
        bases[end],
        sum(segment.size for segment in segments[: min(first_dirty, end)]),
        dirty_bytes,
        _find_overdue_ms(segments[first_dirty : len(segments) - 1], rules, now_ms) if dirty_bytes else 0,
        log.truncations,
    )


def _find_first_dirty(log: DirtyLog) -> int:
    if log.first_dirty_offset > log.end_offset:
        logger.warning("%s was compacted to %d, after its end %d", log, log.first_dirty_offset, log.end_offset)
        log.first_dirty_offset = log.log_start_offset
    return max(log.first_dirty_offset, log.log_start_offset)


def _find_overdue_ms(segments: Sequence[Segment], rules: CompactionRules, now_ms: int) -> int:
    if rules.max_lag_ms == NO_LIMIT_MS:
        return 0
    timestamps = [segment.first_timestamp for segment in segments]
    earliest = min((timestamp for timestamp in timestamps if timestamp > 0), default=now_ms)
    return max(now_ms - rules.max_lag_ms - earliest, 0)


def collect_last_batches(producers: ProducerStates) -> dict[int, LastBatch]:
    """The last batch of each producer, which compaction has to keep."""
    return {
        producer_id: LastBatch(producer.batches[-1].last_offset if producer.batches else NO_OFFSET, producer.epoch)
        for producer_id, producer in producers.producers.items()
    }
