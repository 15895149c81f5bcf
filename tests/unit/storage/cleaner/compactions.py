"""Compacts a log in the test's own process: the order, its reports, and the swaps, without a broker around them."""

from collections.abc import Sequence

from ottla.records import batch
from ottla.records.batch import BatchHeader
from ottla.storage.cleaner.choice import CompactionRules, collect_last_batches, measure_dirt
from ottla.storage.cleaner.inline import InlineCompactor
from ottla.storage.cleaner.order import OFFSET_MAX, Cleaned, CompactionOrder, Summary
from ottla.storage.cleaner.swap import Swap
from ottla.storage.files import Disk
from ottla.storage.log import Appended, Log, LogSettings
from tests.unit.storage.logs import NOW, append

SETTINGS = LogSettings(segment_bytes=600, index_interval_bytes=100, compacted=True)
Pair = tuple[str, str | None]


def pairs(
    *records: Pair,
    timestamp: int = NOW,
    codec: int = 0,
    producer_id: int = -1,
    epoch: int = 0,
    sequence: int = -1,
    transactional: bool = False,
) -> bytearray:
    """A batch of keys and values; a null value makes a tombstone."""
    return batch.encode(
        [(key.encode(), None if value is None else value.encode(), (), timestamp) for key, value in records],
        codec=codec,
        producer_id=producer_id,
        producer_epoch=epoch if producer_id >= 0 else -1,
        base_sequence=sequence,
        transactional=transactional,
    )


def put(log: Log, *records: Pair, timestamp: int = NOW, codec: int = 0) -> Appended:
    return append(log, pairs(*records, timestamp=timestamp, codec=codec))


def end_transaction(log: Log, producer_id: int, *, commit: bool, epoch: int = 0, timestamp: int = NOW) -> Appended:
    return append(log, batch.encode_control(producer_id, epoch, commit, 0, timestamp))


def order_for(
    log: Log,
    *,
    now_ms: int = NOW,
    delete_retention_ms: int = 0,
    map_bytes: int = 1 << 20,
    segment_bytes: int | None = None,
    compiled: bool = False,
    rules: CompactionRules | None = None,
    keep_deletes_from: int = OFFSET_MAX,
) -> CompactionOrder:
    dirt = measure_dirt(log, log.last_stable_offset(log.end_offset), rules or CompactionRules(), now_ms)
    settings = log.settings
    return CompactionOrder(
        log.directory,
        dirt.sources(),
        dirt.dirty_from,
        now_ms,
        delete_retention_ms,
        segment_bytes or settings.segment_bytes,
        settings.segment_index_bytes,
        settings.index_interval_bytes,
        log.aborted_transactions(log.segments[0].base_offset, dirt.up_to),
        collect_last_batches(log.producers),
        map_bytes,
        seed=bytes(range(16)),
        compiled=compiled,
        keep_deletes_from=keep_deletes_from,
    )


def carry_out(disk: Disk, log: Log, order: CompactionOrder) -> Summary:
    compactor = InlineCompactor(disk)
    compactor.begin(order)
    while True:
        report = compactor.step()
        if isinstance(report, Cleaned):
            log.removed_deletes.note(report.deletes_removed_before)
            log.removed_deletes.save(log.recovery_point)
            swap_in(log, report.sources)
        if isinstance(report, Summary):
            log.first_dirty_offset = report.end_offset
            return report


def swap_in(log: Log, sources: Sequence[int]) -> None:
    swap = Swap(log.files, [segment for segment in log.segments if segment.base_offset in sources])
    swap.sync()
    swap.switch()
    swap.sync()
    swap.finish()
    swap.sync()
    swap.end()


def compact(
    disk: Disk,
    log: Log,
    *,
    now_ms: int = NOW,
    delete_retention_ms: int = 0,
    map_bytes: int = 1 << 20,
    segment_bytes: int | None = None,
    roll: bool = True,
    keep_deletes_from: int = OFFSET_MAX,
) -> Summary:
    """Compact everything that can be compacted."""
    if roll:
        log.roll(now_ms)
    log.flush()
    order = order_for(
        log,
        now_ms=now_ms,
        delete_retention_ms=delete_retention_ms,
        map_bytes=map_bytes,
        segment_bytes=segment_bytes,
        keep_deletes_from=keep_deletes_from,
    )
    return carry_out(disk, log, order)


def stored(log: Log) -> list[tuple[BatchHeader, list[batch.Record]]]:
    """Every batch with its records, as the files have it."""
    found = []
    for segment in log.segments:
        data = segment.file.read_at(0, segment.size)
        for position, _ in batch.headers(data):
            found.append((batch.check(data, position), batch.decode(data, position)))
    return found


def contents(log: Log) -> list[tuple[int, str, str | None]]:
    """Offset, key and value of every record that is not a marker."""
    return [
        (record.offset, (record.key or b"").decode(), None if record.value is None else record.value.decode())
        for header, records in stored(log)
        if not header.is_control
        for record in records
    ]
