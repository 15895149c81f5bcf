"""Reads a partition as Kafka's own consumer does: passes over markers and, with read_committed, aborted
transactions."""

from collections.abc import Iterator

from ottla.records import batch as batches
from ottla.records.batch import ABORT, BatchHeader
from ottla.replication.partition import Partition, PartitionRead
from tests.simulation.naive_partition import NaiveRecord

FETCHES_MAX = 10_000


def read_all(partition: Partition, max_bytes: int, *, read_committed: bool) -> dict[int, NaiveRecord]:
    """Read every record, without markers, from the first to the last that this reader may see."""
    found: dict[int, NaiveRecord] = {}
    for _, header, records in _read_batches(partition, max_bytes, read_committed=read_committed):
        if not header.is_control:
            found.update((record.offset, record) for record in records)
    return found


def times(partition: Partition) -> list[tuple[int, int]]:
    """Offset and timestamp of every record and marker, in order."""
    return [
        (record.offset, record.timestamp)
        for _, _, records in _read_batches(partition, 1 << 20, read_committed=False)
        for record in records
    ]


def _read_batches(
    partition: Partition, max_bytes: int, *, read_committed: bool
) -> Iterator[tuple[int, BatchHeader, list[NaiveRecord]]]:
    offset = partition.log.log_start_offset
    for _ in range(FETCHES_MAX):
        read = partition.read(offset, max_bytes, read_committed=read_committed, at_least_one=True)
        if read.records is None:
            return
        began = offset
        for position, header, data in _drop_aborted(read):
            batches.check(data, position)
            records = [NaiveRecord(*record[:4]) for record in batches.decode(data, position)]
            yield position, header, [record for record in records if record.offset >= began]
        data = read.records.read()
        offset = max(header.next_offset for _, header in batches.headers(data))
        assert offset > began, f"a fetch at {began} leads to {offset}"
    raise AssertionError(f"{partition} has no end")


def _drop_aborted(read: PartitionRead) -> Iterator[tuple[int, BatchHeader, bytes]]:
    """The batches of one answer, without those of transactions that the answer lists as aborted."""
    assert read.records is not None
    data = read.records.read()
    waiting = sorted(read.aborted or (), key=lambda one: one.first_offset)
    hidden: set[int] = set()
    for position, header in batches.headers(data):
        while waiting and waiting[0].first_offset <= header.last_offset:
            hidden.add(waiting.pop(0).producer_id)
        if header.is_control:
            if header.record_count and batches.control_type(data, position).type == ABORT:
                hidden.discard(header.producer_id)
        elif header.is_transactional and header.producer_id in hidden:
            continue
        yield position, header, data
