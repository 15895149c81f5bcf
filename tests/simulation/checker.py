"""Checks a history: which promises did the broker break? Pure functions, no simulation needed.

The promises, for each partition:

- LOST: a record that was acknowledged, or seen by a consumer, is in the final log. It may be gone after a power cut, if
  the topic does not flush each message and no clean shutdown came before the cut. It may be gone by compaction, if the
  log has a newer record with its key, and by retention, if its offset is below the beginning of the log.
- HOLE: a power cut takes the end of the log. If a record is gone, everything behind it is gone too. A power cut may
  also take the beginning, if the names of the first segments were never synced; the log then begins later.
- DUPLICATED: no value is in the log twice.
- REORDERED: batches that one producer sent in order are in the log in that order. Each is in one piece, except for the
  records that compaction removed.
- SKIPPED: an idempotent producer's batch is not in the log if the batch before it is missing and was not cleaned up.
- CHANGED: every value in the log, or seen by a consumer, was sent to this partition, and an offset keeps its value.
- GAP: offsets are dense if the topic is not compacted, and a fetch begins at the offset that was asked for.
- BACKWARDS: the high watermark does not go back within a life of the broker; with flush.messages=1 it never does. In a
  cluster the one that ListOffsets tells does not go back (`poll_checker`).
- FORGOTTEN: an idempotent producer is refused, or a consumer is told that its offset does not exist, only if a power
  cut or retention may have taken the records that they know.
- UNDONE: a batch that a producer was told is not in the log is not there, and nobody has read it.

The promises about committed offsets are in `offset_checker`, those about transactions in `transaction_checker`, and
those about the polls of an application and the offsets that ListOffsets returns in `poll_checker`.
"""

from collections import defaultdict
from collections.abc import Iterator
from enum import Enum
from itertools import pairwise
from typing import NamedTuple

from ottla.topic_partition import TopicPartition
from tests.simulation.history import (
    Acknowledged,
    Batch,
    Ended,
    Ending,
    Fetched,
    History,
    NotWritten,
    OutOfRange,
    Polled,
    Refused,
    Sent,
)
from tests.simulation.offset_checker import find_offset_problems
from tests.simulation.poll_checker import find_poll_problems
from tests.simulation.transaction_checker import find_transaction_problems


class Promise(Enum):
    LOST = "lost"
    HOLE = "hole"
    DUPLICATED = "duplicated"
    REORDERED = "reordered"
    SKIPPED = "skipped"
    CHANGED = "changed"
    GAP = "gap"
    BACKWARDS = "backwards"
    FORGOTTEN = "forgotten"
    UNDONE = "undone"
    ABORTED_READ = "aborted read"
    DIRTY_READ = "dirty read"
    IN_PART = "in part"


class Violation(NamedTuple):
    promise: Promise
    partition: TopicPartition
    message: str

    def __str__(self) -> str:
        return f"{self.promise.name} {self.partition}: {self.message}"


class Observation(NamedTuple):
    """A client or the final log showed `value` at `offset` in this life of the broker."""

    life: int
    offset: int
    value: bytes
    witness: str


Log = tuple[tuple[int, bytes], ...]


def check(history: History) -> list[Violation]:
    """Find every broken promise. The list is empty if the broker kept them all."""
    partitions: dict[TopicPartition, None] = dict.fromkeys(history.final)
    for event in history.events:
        if isinstance(event, Sent):
            partitions[event.batch.partition] = None
    found = [
        violation for partition in partitions for violation in _PartitionCheck(history, partition).find_violations()
    ]
    for name, group, message in find_offset_problems(history):
        found.append(Violation(Promise[name], TopicPartition(group, 0), message))
    for problems in (find_transaction_problems(history), find_poll_problems(history)):
        found += [Violation(Promise[name], partition, message) for name, partition, message in problems]
    return found


class _PartitionCheck:
    def __init__(self, history: History, partition: TopicPartition) -> None:
        self._partition = partition
        self._durable = partition.topic in history.durable_topics
        self._final: Log = history.final.get(partition, ())
        self._compacted = partition.topic in history.compacted_topics
        self._expires = partition.topic in history.expiring_topics
        self._is_replicated = history.is_replicated
        self._is_dense = not self._compacted and partition.topic not in history.transactional_topics
        self._start = history.starts.get(partition, self._final[0][0] if self._final else 0)
        self._endings = {event.life: event.ending for event in history.events if isinstance(event, Ended)}
        self._last_life = max(self._endings, default=0) + 1
        self._sent = [
            event.batch for event in history.events if isinstance(event, Sent) and event.batch.partition == partition
        ]
        self._acknowledged = [
            event for event in history.events if isinstance(event, Acknowledged) and event.batch.partition == partition
        ]
        self._fetched = [
            event for event in history.events if isinstance(event, Fetched) and event.partition == partition
        ]
        self._polled = [event for event in history.events if isinstance(event, Polled) and event.partition == partition]
        self._not_written = [
            event for event in history.events if isinstance(event, NotWritten) and event.batch.partition == partition
        ]
        self._out_of_range = [
            event for event in history.events if isinstance(event, OutOfRange) and event.partition == partition
        ]
        self._refused = [
            event for event in history.events if isinstance(event, Refused) and event.batch.partition == partition
        ]

        self._keys = {value: key for batch in self._sent for value, key in zip(batch.values, batch.keys, strict=False)}
        self._newest = {self._keys.get(value): offset for offset, value in self._final}

    def _is_cleaned(self, value: bytes, offset: int) -> bool:
        """Whether compaction or retention may have removed this value."""
        if self._expires and offset < self._start:
            return True
        return self._compacted and self._newest.get(self._keys.get(value), -1) > offset

    def find_violations(self) -> Iterator[Violation]:
        yield from self._find_lost()
        yield from self._find_lost_without_offset()
        yield from self._find_duplicated()
        yield from self._find_reordered()
        yield from self._find_changed()
        yield from self._find_gaps()
        yield from self._find_backwards()
        yield from self._find_forgotten()
        yield from self._find_undone()

    def _violation(self, promise: Promise, message: str) -> Violation:
        return Violation(promise, self._partition, message)

    def _find_first_cut(self, life: int) -> int | None:
        """The first life, from this one on, that ended in a power cut which may have lost records of this life."""
        if self._durable:
            return None
        for later in range(life, self._last_life):
            if self._endings.get(later) is Ending.SHUTDOWN:
                return None
            if self._endings.get(later) is Ending.POWER_CUT:
                return later
        return None

    def _observations(self) -> Iterator[Observation]:
        for acknowledged in self._acknowledged:
            if acknowledged.base_offset is not None:
                for delta, value in enumerate(acknowledged.batch.values):
                    offset = acknowledged.base_offset + delta
                    yield Observation(acknowledged.life, offset, value, f"acknowledged {acknowledged.batch}")
        for fetched in self._fetched:
            for offset, value in fetched.records:
                yield Observation(fetched.life, offset, value, f"seen by {fetched.consumer}")
        for polled in self._polled:
            for offset, value in polled.records:
                yield Observation(self._last_life, offset, value, f"seen by {polled.consumer}")

    def _find_lost(self) -> Iterator[Violation]:
        final = dict(self._final)
        survivors: dict[int, int] = {}  # life -> the largest offset that was seen in it and is still in the final log
        gone: dict[tuple[int, bytes], Observation] = {}  # the latest observation of each record that is missing
        for seen in self._observations():
            if final.get(seen.offset) == seen.value:
                survivors[seen.life] = max(survivors.get(seen.life, -1), seen.offset)
            elif (known := gone.get((seen.offset, seen.value))) is None or known.life < seen.life:
                gone[seen.offset, seen.value] = seen
        for seen in gone.values():
            if self._is_cleaned(seen.value, seen.offset):
                continue
            cut = self._find_first_cut(seen.life)
            if cut is None:
                yield self._violation(Promise.LOST, f"{_shorten(seen.value)} at {seen.offset}, {seen.witness}")
                continue
            behind = max((offset for life, offset in survivors.items() if life <= cut), default=-1)
            if behind > seen.offset >= self._start:
                message = f"{_shorten(seen.value)} at {seen.offset} is gone, what was behind it at {behind} is there"
                yield self._violation(Promise.HOLE, message)

    def _find_lost_without_offset(self) -> Iterator[Violation]:
        """Find lost batches among those that were acknowledged without an offset: they may be anywhere in the log."""
        values = {value for _, value in self._final}
        for acknowledged in self._acknowledged:
            missing = [
                value for value in acknowledged.batch.values if value not in values and not self._is_cleaned(value, -1)
            ]
            if acknowledged.base_offset is None and missing and self._find_first_cut(acknowledged.life) is None:
                yield self._violation(Promise.LOST, f"{_shorten(missing[0])}, acknowledged {acknowledged.batch}")

    def _find_duplicated(self) -> Iterator[Violation]:
        offsets: dict[bytes, int] = {}
        for offset, value in self._final:
            if value in offsets:
                yield self._violation(Promise.DUPLICATED, f"{_shorten(value)} at {offsets[value]} and {offset}")
            offsets[value] = offset

    def _find_reordered(self) -> Iterator[Violation]:
        offsets = {value: offset for offset, value in self._final}
        chains: dict[tuple[str, int], list[Batch]] = defaultdict(list)
        for batch in self._sent:
            chains[batch.producer, batch.identity].append(batch)
        for chain in chains.values():
            there = []
            for batch in chain:
                found = [offsets[value] for value in batch.values if value in offsets]
                if not found:
                    continue
                whole = sorted(found) if self._compacted else list(range(found[0], found[0] + len(batch.values)))
                if found != whole:
                    yield self._violation(Promise.REORDERED, f"{batch} is not in one piece: offsets {found}")
                there.append((batch, found[0]))
            for (batch, offset), (after, offset_after) in pairwise(there):
                if offset_after < offset:
                    message = f"{batch} at {offset} was sent before {after} at {offset_after}"
                    yield self._violation(Promise.REORDERED, message)
            if (
                chain[0].idempotent
                and there
                and not self._compacted
                and not self._had_power_cut_before(self._last_life)
            ):
                begun = chain.index(there[0][0]) if self._expires else 0
                yield from self._find_skipped(chain[begun:], [batch for batch, _ in there])

    def _find_skipped(self, chain: list[Batch], there: list[Batch]) -> Iterator[Violation]:
        for batch, expected in zip(there, chain, strict=False):
            if batch is not expected:
                yield self._violation(Promise.SKIPPED, f"{expected} is missing, and {batch} behind it is there")
                return

    def _find_changed(self) -> Iterator[Violation]:
        sent = {value for batch in self._sent for value in batch.values}
        known: dict[int, Observation] = {}
        everything = [Observation(self._last_life, *record, "in the final log") for record in self._final]
        observations = sorted([*self._observations(), *everything], key=lambda seen: seen.life)
        for seen in observations:
            if seen.value not in sent:
                yield self._violation(Promise.CHANGED, f"{_shorten(seen.value)} at {seen.offset} was never sent here")
            before = known.get(seen.offset, seen)
            known[seen.offset] = seen
            if before.value != seen.value:
                cut = self._find_first_cut(before.life)
                if cut is None or cut >= seen.life:
                    was = f"{_shorten(before.value)} ({before.witness})"
                    message = f"offset {seen.offset}: {was} became {_shorten(seen.value)} ({seen.witness})"
                    yield self._violation(Promise.CHANGED, message)

    def _find_gaps(self) -> Iterator[Violation]:
        if self._start and not self._expires and not self._had_power_cut_before(self._last_life):
            yield self._violation(Promise.GAP, f"the final log begins at {self._start}")
        for expected, (offset, _) in enumerate(self._final, self._start):
            if offset != expected and self._is_dense:
                yield self._violation(Promise.GAP, f"the final log goes on at {offset} instead of {expected}")
                break
        for fetched in self._fetched:
            offsets = [offset for offset, _ in fetched.records]
            dense = list(range(fetched.position, fetched.position + len(offsets)))
            sparse = not self._is_dense and offsets == sorted(set(offsets)) and offsets[:1] >= dense[:1]
            if offsets != dense and not sparse:
                message = f"{fetched.consumer} asked for {fetched.position} and got {offsets}"
                yield self._violation(Promise.GAP, message)
            if offsets and offsets[-1] >= fetched.high_watermark:
                message = f"{fetched.consumer} got {offsets[-1]} with the high watermark at {fetched.high_watermark}"
                yield self._violation(Promise.BACKWARDS, message)

    def _find_backwards(self) -> Iterator[Violation]:
        if self._is_replicated:
            return
        known: dict[str, Fetched] = {}
        for fetched in self._fetched:
            before = known.get(fetched.consumer, fetched)
            known[fetched.consumer] = fetched
            if fetched.high_watermark < before.high_watermark:
                cut = self._find_first_cut(before.life)
                if cut is None or cut >= fetched.life:
                    message = f"{fetched.consumer} was told {before.high_watermark}, then {fetched.high_watermark}"
                    yield self._violation(Promise.BACKWARDS, message)

    def _find_forgotten(self) -> Iterator[Violation]:
        for refused in self._refused:
            if not self._had_power_cut_before(refused.life):
                yield self._violation(Promise.FORGOTTEN, f"{refused.batch} is refused: {refused.error}")
        for lost in self._out_of_range:
            if not self._expires and not self._had_power_cut_before(lost.life):
                yield self._violation(Promise.FORGOTTEN, f"{lost.consumer} is told that {lost.position} does not exist")

    def _find_undone(self) -> Iterator[Violation]:
        there = {seen.value: seen for seen in self._observations()}
        there.update(
            (value, Observation(self._last_life, offset, value, "in the log")) for offset, value in self._final
        )
        for refused in self._not_written:
            for seen in (there[value] for value in refused.batch.values if value in there):
                message = f"{refused.batch} was not written ({refused.error}), and is {seen.witness} at {seen.offset}"
                yield self._violation(Promise.UNDONE, message)

    def _had_power_cut_before(self, life: int) -> bool:
        """Whether a power cut may have lost records before this life began."""
        return not self._durable and any(self._endings.get(earlier) is Ending.POWER_CUT for earlier in range(life))


def _shorten(value: bytes) -> str:
    """The name of a value without the padding that follows it."""
    return value.rstrip(b"x").decode(errors="replace")
