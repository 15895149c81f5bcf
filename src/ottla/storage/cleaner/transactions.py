"""Which batches belong to aborted transactions, and which markers are no longer needed.

A marker stays as long as any batch of its transaction does, even an empty one that keeps a producer's last sequence:
without the marker such a batch would look like the beginning of a transaction that never ends.
"""

from collections.abc import Iterable

from ottla.records.batch import ABORT, COMMIT, TRANSACTIONAL, BatchHeader, CorruptBatch, control_type
from ottla.storage.cleaner.order import Uncleanable
from ottla.storage.transaction_index import AbortedTransaction


class TransactionTrace:
    """Follows transactions through a log. Every batch has to be shown to it, in the order of the log."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._ahead = sorted(aborted, key=lambda transaction: transaction.first_offset, reverse=True)
        self._aborted: dict[int, AbortedTransaction] = {}
        """The aborted transaction that each producer is in."""
        self._seen: set[int] = set()
        """Producers of which a batch was seen since their last marker."""
        self._kept: list[AbortedTransaction] = []

    def follow_data(self, header: BatchHeader) -> bool:
        """Whether the batch belongs to an aborted transaction, so that its records may go."""
        if not header.attributes & TRANSACTIONAL:
            return False
        self._reach(header.last_offset)
        self._seen.add(header.producer_id)
        transaction = self._aborted.get(header.producer_id)
        return transaction is not None and header.last_offset < transaction.last_offset

    def follow_marker(self, header: BatchHeader, batch: memoryview) -> bool:
        """Whether nothing of the marker's transaction is left, so that it may go after delete.retention.ms."""
        self._reach(header.last_offset)
        if not header.record_count:
            return True  # an earlier compaction has removed its record
        try:
            kind = control_type(batch).type
        except CorruptBatch as error:
            raise Uncleanable(f"the marker at offset {header.base_offset} cannot be read: {error}") from None
        if kind not in (ABORT, COMMIT):
            return False
        seen = header.producer_id in self._seen
        self._seen.discard(header.producer_id)
        if kind == ABORT:
            transaction = self._aborted.pop(header.producer_id, None)
            if seen and transaction is not None:
                self._kept.append(transaction)
        return not seen

    def take_kept(self) -> list[AbortedTransaction]:
        """Take the aborted transactions that ended since the last call and still need an index entry."""
        kept, self._kept = self._kept, []
        return kept

    def _reach(self, offset: int) -> None:
        while self._ahead and self._ahead[-1].first_offset <= offset:
            transaction = self._ahead.pop()
            self._aborted[transaction.producer_id] = transaction
