"""Checks of a segment's indexes against its batches. Each returns the first problem, or "" if there is none.

An entry of the offset index names the last offset of what was appended in one piece where it points: one batch here and
in Kafka 4, several in what a follower or the cleaner of an older Kafka wrote. So the offset is a batch's last one, and
that batch begins before the next entry. An entry of the time index names the first batch with the largest timestamp so
far, by any of its offsets.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence

from ottla.records.batch import BatchHeader
from ottla.storage.index import OFFSET_ENTRY_SIZE, TIME_ENTRY_SIZE, CorruptIndex, OffsetIndex, TimeIndex
from ottla.storage.transaction_index import AbortedTransaction


class Batches:
    """The sound batches of a segment, as columns."""

    def __init__(self) -> None:
        self.positions = array("q")
        self.firsts = array("q")
        self.lasts = array("q")
        self.timestamps = array("q")
        """The largest timestamp of each batch."""
        self.largest_so_far = array("q")

    def add(self, position: int, header: BatchHeader) -> None:
        before = self.largest_so_far[-1] if self.largest_so_far else -1
        self.positions.append(position)
        self.firsts.append(header.base_offset)
        self.lasts.append(header.last_offset)
        self.timestamps.append(header.max_timestamp)
        self.largest_so_far.append(max(before, header.max_timestamp))

    def begins_at(self, position: int) -> bool:
        number = bisect_left(self.positions, position)
        return number < len(self.positions) and self.positions[number] == position

    def find_ending_at(self, offset: int) -> int | None:
        """The number of the batch whose last offset this is."""
        number = bisect_left(self.lasts, offset)
        return number if number < len(self.lasts) and self.lasts[number] == offset else None

    def find_holding(self, offset: int) -> int | None:
        """The number of the batch that this offset is in."""
        number = bisect_right(self.firsts, offset) - 1
        return number if number >= 0 and offset <= self.lasts[number] else None


def remove_padding(data: bytes, entry_size: int) -> bytes:
    """Remove the zeros at the end: Apache Kafka gives the index of the active segment its largest size at once."""
    used = len(data.rstrip(b"\0"))
    return data[: -(-used // entry_size) * entry_size]


def find_offset_index_problem(data: bytes, base: int, batches: Batches) -> str:
    try:
        index = OffsetIndex.decode(remove_padding(data, OFFSET_ENTRY_SIZE))
    except CorruptIndex as error:
        return str(error)
    ends = [*index.positions, batches.positions[-1] + 1 if batches.positions else 0][1:]
    before = -1
    for relative, position, end in zip(index.offsets, index.positions, ends, strict=True):
        offset = base + relative
        if position <= before:
            return f"byte {position} does not follow {before}"
        if not batches.begins_at(position):
            return f"no batch begins at byte {position}"
        number = batches.find_ending_at(offset)
        if number is None or not position <= batches.positions[number] < end:
            return f"offset {offset} is not the last of a batch between bytes {position} and {end}"
        before = position
    return ""


def find_time_index_problem(data: bytes, base: int, batches: Batches, *, sealed: bool) -> str:
    """A sealed segment's last entry is the largest timestamp of all."""
    try:
        index = TimeIndex.decode(remove_padding(data, TIME_ENTRY_SIZE))
    except CorruptIndex as error:
        return str(error)
    for timestamp, relative in zip(index.timestamps, index.offsets, strict=True):
        number = batches.find_holding(base + relative)
        if number is None:
            return f"offset {base + relative} is not in the segment"
        if not timestamp == batches.timestamps[number] == batches.largest_so_far[number]:
            return f"{timestamp} is not the largest timestamp up to offset {base + relative}"
    last = index.timestamps[-1] if index.timestamps else -1
    if sealed and batches.largest_so_far and last < batches.largest_so_far[-1]:
        return f"it ends with {last}, the largest timestamp is {batches.largest_so_far[-1]}"
    return ""


def find_transaction_index_problem(
    entries: Sequence[AbortedTransaction],
    aborted: Sequence[AbortedTransaction],
    markers: Mapping[int, int],
    *,
    complete: bool,
) -> str:
    """Compare a transaction index with the log. Returns the first difference, or an empty string.

    `aborted` are the transactions that the log's records show, `markers` has the producer of the marker at each offset.

    They are `complete` if no record of the log is missing up to here. The index of a log that was compacted, or has
    lost its oldest records, may know more than the records: a transaction stays in the index until all of its records
    are gone, and its first records, or those of another open transaction, may be gone already.
    """
    expected = {entry.last_offset: entry for entry in aborted}
    for entry in entries:
        if markers.get(entry.last_offset) != entry.producer_id:
            return f"producer {entry.producer_id} has no marker at offset {entry.last_offset}"
        known = expected.pop(entry.last_offset, None)
        if entry == known:
            continue
        if complete:
            return f"the transaction that ended at offset {entry.last_offset} was {known or 'committed'}, not {entry}"
        if known is not None and not _may_be_earlier(entry, known):
            return f"the transaction that ended at offset {entry.last_offset} had begun at {known.first_offset}"
    if expected:
        return f"the transaction aborted at offset {min(expected)} is not in it"
    return ""


def repair_transactions(
    entries: Sequence[AbortedTransaction], aborted: Sequence[AbortedTransaction], markers: Mapping[int, int]
) -> list[AbortedTransaction]:
    """Merge the transactions found in the records with the index entries that may be right."""
    right = {entry.last_offset: entry for entry in aborted}
    for entry in entries:
        if markers.get(entry.last_offset) == entry.producer_id:
            known = right.get(entry.last_offset, entry)
            right[entry.last_offset] = entry if _may_be_earlier(entry, known) else known
    return [right[offset] for offset in sorted(right)]


def _may_be_earlier(entry: AbortedTransaction, known: AbortedTransaction) -> bool:
    return entry.first_offset <= known.first_offset and entry.last_stable_offset <= known.last_stable_offset
