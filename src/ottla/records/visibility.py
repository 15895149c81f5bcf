"""Which batches of a log a reader may see: no control batches, and none of an aborted transaction."""

from collections.abc import Iterable
from typing import Protocol

from ottla.records.batch import ABORT, CONTROL, TRANSACTIONAL, BatchHeader, Bytes, control_type


class AbortedTransaction(Protocol):
    """An aborted transaction, as a read of the log or a Fetch answer lists it."""

    @property
    def producer_id(self) -> int: ...
    @property
    def first_offset(self) -> int: ...


class HiddenBatches:
    """Tracks which producers are in an aborted transaction while batches are scanned in order.

    `aborted` lists the aborted transactions of the range that is scanned. None: the reader sees records of every
    transaction, committed or not.
    """

    def __init__(self, aborted: Iterable[AbortedTransaction] | None) -> None:
        self._sees_all = aborted is None
        self._ahead = sorted(aborted or (), key=lambda each: each.first_offset, reverse=True)
        self._open: set[int] = set()

    def hides(self, header: BatchHeader, records: Bytes, position: int) -> bool:
        """Whether the reader must not see the batch at `position` of `records`."""
        is_control = bool(header.attributes & CONTROL)
        if self._sees_all:
            return is_control
        is_aborted = self._is_aborted(header)
        if not is_control:
            return is_aborted and bool(header.attributes & TRANSACTIONAL)
        if header.record_count and control_type(records, position).type == ABORT:
            self._open.discard(header.producer_id)
        return True

    def _is_aborted(self, header: BatchHeader) -> bool:
        while self._ahead and self._ahead[-1].first_offset <= header.last_offset:
            self._open.add(self._ahead.pop().producer_id)
        return header.producer_id in self._open
