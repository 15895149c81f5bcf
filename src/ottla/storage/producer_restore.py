"""Producers' state as of an offset: from the newest snapshot before it and the records in between."""

import contextlib
import logging
from collections.abc import Sequence
from itertools import pairwise

from ottla.errors import KafkaError
from ottla.records.batch import CONTROL, BatchHeader, ControlMarker, CorruptBatch, control_type, sequence_after
from ottla.storage import names
from ottla.storage.files import Disk, File
from ottla.storage.producer_snapshot import CorruptSnapshot, decode, encode
from ottla.storage.producer_state import BATCHES_KEPT, AppendedBatch, ProducerState, ProducerStates
from ottla.storage.scan import read_batch, scan
from ottla.storage.segment import Segment
from ottla.storage.transaction_index import AbortedTransaction

logger = logging.getLogger(__name__)

NEVER = 2**63
"""An expiration time that no producer reaches."""

RECALL_BYTES = 8 * 1024 * 1024
"""How far back a retry is looked for: more than five of the largest batches that a producer sends by default."""


def write_snapshot(disk: Disk, directory: str, offset: int, producers: ProducerStates) -> None:
    """Write a snapshot without fsync. A torn one fails its checksum, and the state is rebuilt from the log."""
    file = disk.open(names.path(directory, offset, names.SNAPSHOT), create=True)
    try:
        file.truncate(0)
        file.append(encode(producers.producers.values()))
    finally:
        file.close()


def restore_producers(
    disk: Disk,
    segments: Sequence[Segment],
    snapshots: list[int],
    up_to: int,
    now_ms: int = 0,
    expiration_ms: int = NEVER,
) -> ProducerStates:
    """Rebuild the state before the record at `up_to`. Damaged snapshots are deleted and removed from `snapshots`."""
    producers = ProducerStates()
    directory = segments[0].directory
    start = segments[0].base_offset
    # A snapshot before the first segment misses the records between the two.
    for offset in sorted((offset for offset in snapshots if start <= offset <= up_to), reverse=True):
        path = names.path(directory, offset, names.SNAPSHOT)
        try:
            producers.load(decode(disk.read(path)), now_ms, expiration_ms)
            start = offset
            break
        except CorruptSnapshot as error:
            logger.warning("%s is damaged and deleted: %s", path, error)
            disk.unlink(path)
            snapshots.remove(offset)
    for index, segment in enumerate(segments):
        ends_before = index + 1 < len(segments) and segments[index + 1].base_offset <= start
        if start < up_to and segment.base_offset < up_to and not ends_before:
            replay_segment(segment, start, up_to, producers)
    producers.expire(now_ms, expiration_ms)
    return producers


def check_producer(producers: ProducerStates, segments: Sequence[Segment], header: BatchHeader) -> AppendedBatch | None:
    """Like `ProducerStates.check`, with a second look at the log if not all of the producer's last batches are known.

    OSError if the log cannot be read.
    """
    try:
        return producers.check(header)
    except KafkaError:
        producer = producers.producers[header.producer_id]
        if not producer.is_partial:
            raise
    _recall_batches(producer, segments)
    return producers.check(header)


def _recall_batches(producer: ProducerState, segments: Sequence[Segment]) -> None:
    """Find the batches before the one that a snapshot had, so that a retry of any of the last five is recognised.

    A client may have had five requests in flight when the broker was restarted. Only the end of the log is searched,
    and only when a producer retries what is not known.
    """
    budget = RECALL_BYTES
    for segment in reversed(segments):
        known = producer.batches[0].base_offset if producer.batches else segments[-1].base_offset
        begin = segment.offset_index.entry_before(segment.size - budget)
        earlier: list[AppendedBatch] = []
        with contextlib.suppress(CorruptBatch):
            for _, header in scan(segment.file, begin, segment.size):
                if header.base_offset >= known:
                    break
                if (header.producer_id, header.producer_epoch) == (producer.producer_id, producer.epoch):
                    earlier.append(AppendedBatch.of(header, header.base_offset))
        for batch in reversed(earlier):
            if len(producer.batches) < BATCHES_KEPT and batch.first_sequence >= 0:
                producer.batches.insert(0, batch)
        budget -= segment.size
        if budget <= 0 or len(producer.batches) == BATCHES_KEPT:
            break
    follow = all(sequence_after(one.last_sequence, 1) == two.first_sequence for one, two in pairwise(producer.batches))
    producer.has_lost_batches = not follow or len(producer.batches) < BATCHES_KEPT
    producer.is_partial = False  # only now: after a read error the next retry searches again


def replay_segment(segment: Segment, start: int, up_to: int, producers: ProducerStates) -> list[AbortedTransaction]:
    """Replay a segment's batches in [start, up_to). Returns the transactions that abort markers among them end."""
    aborted: list[AbortedTransaction] = []
    try:
        location = segment.locate(start) if start > segment.base_offset else None
        begin = location.position if location else 0 if start <= segment.base_offset else segment.size
        for position, header in scan(segment.file, begin, segment.size):
            if header.base_offset >= up_to:
                break
            if header.producer_id >= 0:
                marker = read_marker(segment.file, position, header)
                entry = marker and producers.find_aborted_by(header, header.base_offset, marker)
                if entry:
                    aborted.append(entry)
                producers.replay(header, header.base_offset, marker)
    except (CorruptBatch, KafkaError) as error:
        logger.error("producers of %s are known only up to its damage: %s", segment, error)
    return aborted


def read_marker(file: File, position: int, header: BatchHeader) -> ControlMarker | None:
    """The content of a control batch; None for other batches. Type -1 if compaction has removed its record."""
    if not header.attributes & CONTROL:
        return None
    if not header.record_count:
        return ControlMarker(-1, -1)
    return control_type(read_batch(file, position, header))
