"""The judge of a history: which promises did the broker break? Pure functions, no simulation needed.

The promises, for each partition:

- LOST: what was acknowledged, or seen by a consumer, is in the final log. Only a power cut may take it, only in a topic
  that does not flush each message, and not if a clean shutdown came before the cut. Compaction takes it if a newer
  record with its key is in the log, retention if it is from before the log's beginning.
- HOLE: what a power cut takes is the end of the log: if a record is gone, so is everything that stood behind it. It may
  also take the beginning, if the names of the first segments were never synced; then that is where the log begins.
- DUPLICATED: no value is in the log twice.
- REORDERED: batches that one producer sent in order are in the log in that order, and each in one piece, or what
  compaction has left of it.
- SKIPPED: an idempotent producer's batch is not in the log if the one before it is missing, and was not cleaned up.
- CHANGED: every value in the log, or seen, is one that was sent there; an offset keeps its value.
- GAP: offsets are dense if the topic is not compacted, and a fetch begins where it was asked to.
- BACKWARDS: the high watermark does not go back within a life of the broker; with flush.messages=1 it never does.
- FORGOTTEN: an idempotent producer is refused, or a consumer told that its offset does not exist, only when a power cut
  may have taken what they know of, or retention.
- UNDONE: what a producer was told is not in the log is not there, and nobody has read it.

What is promised about committed offsets is in `offset_checker`, about transactions in `transaction_checker`, and about
the polls of an application and the offsets that ListOffsets tells in `poll_checker`.
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
from tests.simulation.offset_checker import offset_problems
from tests.simulation.poll_checker import poll_problems
from tests.simulation.transaction_checker import transaction_problems


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
    """In this life of the broker, `value` was known to be at `offset`."""

    life: int
    offset: int
    value: bytes
    witness: str


Log = tuple[tuple[int, bytes], ...]


def check(history: History) -> list[Violation]:
    """Every broken promise; an empty list if the broker kept them all."""
    partitions: dict[TopicPartition, None] = dict.fromkeys(history.final)
    for event in history.events:
        if isinstance(event, Sent):
            partitions[event.batch.partition] = None
    found = [violation for partition in partitions for violation in _PartitionCheck(history, partition).violations()]
    for name, group, message in offset_problems(history):
        found.append(Violation(Promise[name], TopicPartition(group, 0), message))
    for problems in (transaction_problems(history), poll_problems(history)):
        found += [Violation(Promise[name], partition, message) for name, partition, message in problems]
    return found


class _PartitionCheck:
    def __init__(self, history: History, partition: TopicPartition) -> None:
        self._partition = partition
        self._durable = partition.topic in history.durable_topics
        self._final: Log = history.final.get(partition, ())
        self._compacted = partition.topic in history.compacted_topics
        self._expires = partition.topic in history.expiring_topics
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
        """Whether the topic's cleanup policy may have taken this value."""
        if self._expires and offset < self._start:
            return True
        return self._compacted and self._newest.get(self._keys.get(value), -1) > offset

    def violations(self) -> Iterator[Violation]:
        yield from self._lost()
        yield from self._lost_somewhere()
        yield from self._duplicated()
        yield from self._reordered()
        yield from self._changed()
        yield from self._gaps()
        yield from self._backwards()
        yield from self._forgotten()
        yield from self._undone()

    def _violation(self, promise: Promise, message: str) -> Violation:
        return Violation(promise, self._partition, message)

    def _first_cut(self, life: int) -> int | None:
        """The first life from this one on whose end may have cost records that were in the log in it."""
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

    def _lost(self) -> Iterator[Violation]:
        final = dict(self._final)
        survivors: dict[int, int] = {}  # life -> largest offset that was known in it and is still there
        gone: dict[tuple[int, bytes], Observation] = {}  # as it was last known
        for seen in self._observations():
            if final.get(seen.offset) == seen.value:
                survivors[seen.life] = max(survivors.get(seen.life, -1), seen.offset)
            elif (known := gone.get((seen.offset, seen.value))) is None or known.life < seen.life:
                gone[seen.offset, seen.value] = seen
        for seen in gone.values():
            if self._is_cleaned(seen.value, seen.offset):
                continue
            cut = self._first_cut(seen.life)
            if cut is None:
                yield self._violation(Promise.LOST, f"{_short(seen.value)} at {seen.offset}, {seen.witness}")
                continue
            behind = max((offset for life, offset in survivors.items() if life <= cut), default=-1)
            if behind > seen.offset >= self._start:
                message = f"{_short(seen.value)} at {seen.offset} is gone, what was behind it at {behind} is there"
                yield self._violation(Promise.HOLE, message)

    def _lost_somewhere(self) -> Iterator[Violation]:
        """Of a batch that is only known to be there no offset is known: it must be there somewhere."""
        values = {value for _, value in self._final}
        for acknowledged in self._acknowledged:
            missing = [
                value for value in acknowledged.batch.values if value not in values and not self._is_cleaned(value, -1)
            ]
            if acknowledged.base_offset is None and missing and self._first_cut(acknowledged.life) is None:
                yield self._violation(Promise.LOST, f"{_short(missing[0])}, acknowledged {acknowledged.batch}")

    def _duplicated(self) -> Iterator[Violation]:
        offsets: dict[bytes, int] = {}
        for offset, value in self._final:
            if value in offsets:
                yield self._violation(Promise.DUPLICATED, f"{_short(value)} at {offsets[value]} and {offset}")
            offsets[value] = offset

    def _reordered(self) -> Iterator[Violation]:
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
            if chain[0].idempotent and there and not self._compacted and not self._cut_before(self._last_life):
                begun = chain.index(there[0][0]) if self._expires else 0
                yield from self._skipped(chain[begun:], [batch for batch, _ in there])

    def _skipped(self, chain: list[Batch], there: list[Batch]) -> Iterator[Violation]:
        for batch, expected in zip(there, chain, strict=False):
            if batch is not expected:
                yield self._violation(Promise.SKIPPED, f"{expected} is missing, and {batch} behind it is there")
                return

    def _changed(self) -> Iterator[Violation]:
        sent = {value for batch in self._sent for value in batch.values}
        known: dict[int, Observation] = {}
        everything = [Observation(self._last_life, *record, "in the final log") for record in self._final]
        observations = sorted([*self._observations(), *everything], key=lambda seen: seen.life)
        for seen in observations:
            if seen.value not in sent:
                yield self._violation(Promise.CHANGED, f"{_short(seen.value)} at {seen.offset} was never sent here")
            before = known.get(seen.offset, seen)
            known[seen.offset] = seen
            if before.value != seen.value:
                cut = self._first_cut(before.life)
                if cut is None or cut >= seen.life:
                    was = f"{_short(before.value)} ({before.witness})"
                    message = f"offset {seen.offset}: {was} became {_short(seen.value)} ({seen.witness})"
                    yield self._violation(Promise.CHANGED, message)

    def _gaps(self) -> Iterator[Violation]:
        if self._start and not self._expires and not self._cut_before(self._last_life):
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

    def _backwards(self) -> Iterator[Violation]:
        known: dict[str, Fetched] = {}
        for fetched in self._fetched:
            before = known.get(fetched.consumer, fetched)
            known[fetched.consumer] = fetched
            if fetched.high_watermark < before.high_watermark:
                cut = self._first_cut(before.life)
                if cut is None or cut >= fetched.life:
                    message = f"{fetched.consumer} was told {before.high_watermark}, then {fetched.high_watermark}"
                    yield self._violation(Promise.BACKWARDS, message)

    def _forgotten(self) -> Iterator[Violation]:
        for refused in self._refused:
            if not self._cut_before(refused.life):
                yield self._violation(Promise.FORGOTTEN, f"{refused.batch} is refused: {refused.error}")
        for lost in self._out_of_range:
            if not self._expires and not self._cut_before(lost.life):
                yield self._violation(Promise.FORGOTTEN, f"{lost.consumer} is told that {lost.position} does not exist")

    def _undone(self) -> Iterator[Violation]:
        there = {seen.value: seen for seen in self._observations()}
        there.update(
            (value, Observation(self._last_life, offset, value, "in the log")) for offset, value in self._final
        )
        for refused in self._not_written:
            for seen in (there[value] for value in refused.batch.values if value in there):
                message = f"{refused.batch} was not written ({refused.error}), and is {seen.witness} at {seen.offset}"
                yield self._violation(Promise.UNDONE, message)

    def _cut_before(self, life: int) -> bool:
        """Whether something may have been lost before this life began."""
        return not self._durable and any(self._endings.get(earlier) is Ending.POWER_CUT for earlier in range(life))


def _short(value: bytes) -> str:
    """Values begin with their name; the rest is padding."""
    return value.rstrip(b"x").decode(errors="replace")
