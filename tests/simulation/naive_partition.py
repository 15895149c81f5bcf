"""A partition in its simplest form: a list of every batch that was ever accepted, and what a reader may see of it.

Everything else is computed from the list, so a log that lost its end is the same list, cut.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


class NaiveRecord(NamedTuple):
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None


@dataclass(frozen=True, slots=True)
class NaiveBatch:
    records: tuple[NaiveRecord, ...]
    producer_id: int = -1
    sequence: int = -1
    transactional: bool = False
    commits: bool | None = None
    """For a transaction marker: whether it commits or aborts. None for a batch of records."""

    @property
    def base_offset(self) -> int:
        return self.records[0].offset

    @property
    def end_offset(self) -> int:
        return self.records[-1].offset + 1


@dataclass(slots=True)
class NaivePartition:
    batches: list[NaiveBatch] = field(default_factory=list)
    start: int = 0
    certain_start: int = 0
    """Records before this offset are deleted durably: a power cut does not bring them back."""
    flushed: int = 0
    """Records before this offset are flushed: a power cut must not lose them."""
    gone: set[int] = field(default_factory=set)
    """Offsets that compaction removed. They never come back."""
    compacting_since: dict[int, int] = field(default_factory=dict)
    """Offset of each tombstone -> the time of the first compaction that may have seen it."""
    compacted_ms: int = 0
    """The latest time at which a compaction ran."""

    @property
    def end(self) -> int:
        return self.batches[-1].end_offset if self.batches else self.start

    def cut(self, end: int) -> None:
        """Remove everything from `end` on, as a crash did."""
        while self.batches and self.batches[-1].end_offset > end:
            lost = self.batches.pop()
            assert lost.base_offset >= end, f"half of the batch at {lost.base_offset} is left, up to {end}"
        self.gone = {offset for offset in self.gone if offset < end}
        for offset in [offset for offset in self.compacting_since if offset >= end]:
            del self.compacting_since[offset]

    # Producers and transactions

    def open_transactions(self) -> dict[int, int]:
        """Producer id -> the offset at which its open transaction began."""
        found: dict[int, int] = {}
        for batch in self.batches:
            if batch.commits is not None:
                found.pop(batch.producer_id, None)
            elif batch.transactional:
                found.setdefault(batch.producer_id, batch.base_offset)
        return found

    @property
    def stable(self) -> int:
        return min(self.open_transactions().values(), default=self.end)

    def aborted(self) -> set[int]:
        """Offsets of records whose transaction was aborted."""
        found: set[int] = set()
        pending: dict[int, list[int]] = {}
        for batch in self.batches:
            if batch.commits is not None:
                offsets = pending.pop(batch.producer_id, [])
                found.update(() if batch.commits else offsets)
            elif batch.transactional:
                pending.setdefault(batch.producer_id, []).extend(record.offset for record in batch.records)
        return found

    def last_batch(self, producer_id: int) -> NaiveBatch | None:
        return next(
            (one for one in reversed(self.batches) if one.producer_id == producer_id and one.commits is None), None
        )

    def next_sequence(self, producer_id: int) -> int:
        last = self.last_batch(producer_id)
        return 0 if last is None else last.sequence + len(last.records)

    # What readers see

    def records(self) -> dict[int, NaiveRecord]:
        """All records from the log's beginning on, without transaction markers."""
        return {
            record.offset: record
            for batch in self.batches
            if batch.commits is None
            for record in batch.records
            if record.offset >= self.start
        }

    def compaction_runs(self, now_ms: int) -> None:
        self.compacted_ms = max(self.compacted_ms, now_ms)
        for offset, record in self.records().items():
            if record.value is None:
                self.compacting_since.setdefault(offset, now_ms)

    def check(
        self, seen: Mapping[int, NaiveRecord], compacted_to: int, delete_retention_ms: int, *, compacted: bool
    ) -> None:
        """Check the records that read_uncommitted sees: each must be right, and each missing one must be allowed to be
        missing."""
        expected = self.records()
        for offset, record in seen.items():
            assert expected.get(offset) == record, f"{record} was never written, or deleted"
        back = self.gone.intersection(seen)
        assert not back, f"compaction had taken {sorted(back)}"
        missing = expected.keys() - seen.keys()
        if not compacted:
            assert not missing, f"{sorted(missing)} are missing"
            return
        kept = sorted(missing - self.removable(delete_retention_ms))
        assert not kept, f"{[expected[offset] for offset in kept]} are missing"
        aborted = self.aborted()
        cleaned = {record.key: record.offset for record in self._settled(aborted) if record.offset < compacted_to}
        for offset, record in seen.items():
            if offset < compacted_to:
                assert offset not in aborted, f"{record} was aborted, compacted up to {compacted_to}, and is there"
                newer = cleaned[record.key]
                assert newer == offset, f"{record} is there, {newer} is newer, compacted up to {compacted_to}"
        self.gone |= missing

    def removable(self, delete_retention_ms: int) -> set[int]:
        """The offsets of records that compaction may have removed: of aborted transactions, with a newer record of the
        same key, and expired tombstones."""
        aborted = self.aborted()
        latest = {record.key: record.offset for record in self._settled(aborted)}
        return {
            offset
            for offset, record in self.records().items()
            if offset in aborted or latest.get(record.key, -1) > offset or self._is_expired(record, delete_retention_ms)
        }

    def _settled(self, aborted: set[int]) -> list[NaiveRecord]:
        """Records of committed transactions, and of none."""
        stable = self.stable
        return [each for each in self.records().values() if each.offset < stable and each.offset not in aborted]

    def _is_expired(self, record: NaiveRecord, delete_retention_ms: int) -> bool:
        """Whether compaction may have removed a tombstone: one compaction saw it, another came delete.retention.ms
        later."""
        since = self.compacting_since.get(record.offset)
        return record.value is None and since is not None and self.compacted_ms >= since + delete_retention_ms
