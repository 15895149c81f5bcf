"""The order for a compaction and the reports on it: plain values, because they are sent between processes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from ottla.storage.transaction_index import AbortedTransaction

NO_OFFSET = -1
OFFSET_MAX = 2**63 - 1
GIVEN_UP = "the compaction was given up"


class Source(NamedTuple):
    """A sealed segment: its offsets are in [base_offset, end_offset)."""

    base_offset: int
    end_offset: int
    size: int


class LastBatch(NamedTuple):
    """What compaction keeps for a producer: the batch with its last sequence, or else a marker of its epoch."""

    last_offset: int
    """The last offset of that batch; NO_OFFSET if no batch of the producer's epoch is known."""
    epoch: int


@dataclass(frozen=True, slots=True)
class CompactionOrder:
    directory: str
    sources: Sequence[Source]
    """All segments from the first of the log to the last that may be compacted."""
    dirty_from: int
    """Records before this offset were compacted before."""
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    aborted: Sequence[AbortedTransaction] = ()
    """The aborted transactions that have records in the sources."""
    producers: Mapping[int, LastBatch] = field(default_factory=dict)
    map_bytes: int = 128 * 1024 * 1024
    map_load_factor: float = 0.9
    read_bytes: int = 512 * 1024
    report_bytes: int = 32 * 1024 * 1024
    """How much is read or written between two reports."""
    seed: bytes = bytes(16)
    compiled: bool = True
    keep_deletes_from: int = OFFSET_MAX
    """Tombstones and transaction markers from this offset on stay, however old: a replica may not have them yet."""

    @property
    def up_to(self) -> int:
        return self.sources[-1].end_offset


class BytesProcessed(NamedTuple):
    """How many bytes were read or written since the last report."""

    bytes: int


class Cleaned(NamedTuple):
    """A compacted segment is on the disk, durably, in files whose names end with .cleaned."""

    base_offset: int
    sources: Sequence[int]
    """Base offsets of the segments that it replaces."""
    deletes_removed_before: int = 0
    """Tombstones and transaction markers were removed, all before this offset, here or in an earlier segment."""


class Summary(NamedTuple):
    """The last report of a compaction."""

    end_offset: int
    """All records before this offset are compacted."""
    bytes_read: int = 0
    bytes_written: int = 0
    records_read: int = 0
    records_written: int = 0
    keyless: int = 0
    map_used: float = 0.0
    """How much of the offset map was used, from 0 to 1."""


Report = BytesProcessed | Cleaned | Summary


class Uncleanable(Exception):
    """This log cannot be compacted as it is; the message says why."""


class NoProcess(Exception):
    """The system has no process for a compaction now; the message says why."""


class Compactor(Protocol):
    """Carries out one order at a time, step by step. Calls may block. Only `end` may be called during another call."""

    def begin(self, order: CompactionOrder) -> None:
        """NoProcess if it has to be tried again later."""

    def step(self) -> Report:
        """The next report; a Summary ends the order. OSError if the disk fails, Uncleanable if the log is at fault."""

    def end(self) -> None:
        """Give up the order, if there is one, and release all memory."""
