"""The last offset of every key in the dirty part of a log, in memory of a fixed size.

Any number of keys can be compacted: when the map is full it says so, what it holds is used, and the rest of the log
stays dirty until the next time. A slot takes 24 bytes, as in Kafka.
"""

from typing import Any

from ottla.storage.cleaner.kernels import BROKEN, FULL, WORDS, Kernels
from ottla.storage.cleaner.order import CompactionOrder, Uncleanable

_SLOT_BYTES = 8 * WORDS


class OffsetMap:
    def __init__(self, kernels: Kernels, order: CompactionOrder) -> None:
        records_max = order.up_to - order.dirty_from
        factor = min(max(order.map_load_factor, 0.01), 1.0)
        slots = min(order.map_bytes // _SLOT_BYTES, int(records_max / factor) + 2)
        self._kernels = kernels
        self._room = min(int(slots * factor), slots - 1)
        if self._room < 1:
            raise Uncleanable(f"log.cleaner.dedupe.buffer.size: {order.map_bytes} bytes have no room for a key")
        self._used = 0
        self._seed = (int.from_bytes(order.seed[:8], "little"), int.from_bytes(order.seed[8:16], "little"))
        self._table = kernels.table(WORDS * slots)
        self._first_offset = order.dirty_from
        self.end_offset = order.dirty_from
        """All records of the dirty part before this offset are in the map."""

    @property
    def used(self) -> float:
        """The share of the room that is taken."""
        return self._used / self._room

    def index(self, records: Any, count: int, base_offset: int) -> bool:
        """Enter `count` records of one batch. Returns whether all had room; if not, `end_offset` is where it ended."""
        verdict, offset, self._used = self._kernels.index_keys(
            records, count, base_offset, self._first_offset, self._table, self._used, self._room, *self._seed
        )
        if verdict == BROKEN:
            raise Uncleanable(f"the records of the batch at offset {base_offset} cannot be read")
        if verdict == FULL:
            self.end_offset = offset
        return verdict != FULL

    def judge(
        self, records: Any, count: int, base_offset: int, base_timestamp: int, keep_tombstones: bool, kept: Any
    ) -> tuple[int, int, int, int, int]:
        """Decide which records stay, and set a byte in `kept` for each.

        Returns how many stay, how many of them are tombstones, how many have no key, and the smallest and the largest
        timestamp of those that stay.
        """
        verdict, *found = self._kernels.judge(
            records,
            count,
            base_offset,
            self.end_offset - 1,
            self._table,
            base_timestamp,
            keep_tombstones,
            *self._seed,
            kept,
        )
        if verdict == BROKEN:
            raise Uncleanable(f"the records of the batch at offset {base_offset} cannot be read")
        staying, tombstones, keyless, earliest, newest = found
        return staying, tombstones, keyless, earliest, newest
