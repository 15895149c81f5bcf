"""Reads the files of a data directory entry by entry, for `ottla log dump`. Nothing is ever written.

An entry is a dictionary whose first item is its kind. Where a file cannot be read, an entry of kind `damage` is the
last one: without the damaged part it is unknown where the next entry begins.
"""

from collections.abc import Callable, Iterator

from ottla.cli.command_error import CommandError
from ottla.config.properties import read_properties
from ottla.records.batch import BatchHeader, ControlMarker, CorruptBatch, control_type, decode
from ottla.records.compression import NAMES as CODECS
from ottla.storage import names
from ottla.storage import producer_snapshot as snapshots
from ottla.storage import transaction_index as transactions
from ottla.storage.directories import (
    CLEAN_SHUTDOWN,
    HIGH_WATERMARKS,
    LOG_STARTS,
    META_PROPERTIES,
    RECOVERY_POINTS,
    decode_checkpoint,
)
from ottla.storage.epochs import LeaderEpochs
from ottla.storage.files import Disk
from ottla.storage.index import OFFSET_ENTRY_SIZE, TIME_ENTRY_SIZE, CorruptIndex, OffsetIndex, TimeIndex
from ottla.storage.index_verification import remove_padding
from ottla.storage.scan import read_batch, scan

Entry = dict[str, object]
Reader = Callable[[Disk, str, bool], Iterator[Entry]]

DAMAGE = "damage"

_TEMPORARY_SUFFIXES = (names.DELETED, names.CLEANED, names.SWAP)
_MARKERS = {0: "abort", 1: "commit"}


def reader_of(path: str) -> Reader | None:
    """The function that reads files of this name; None if a broker does not write such files."""
    name = path.rpartition("/")[2]
    if name in _BY_NAME:
        return _BY_NAME[name]
    suffix = _suffix(name)
    return _BY_SUFFIX.get(suffix) if names.offset_of(f"{name[:20]}{suffix}", suffix) is not None else None


def entries(disk: Disk, path: str, reader: Reader, *, with_records: bool) -> Iterator[Entry]:
    """The entries of a file. CommandError if it cannot be opened or read."""
    try:
        yield from reader(disk, path, with_records)
    except (CorruptBatch, CorruptIndex, snapshots.CorruptSnapshot, ValueError) as error:
        yield {"kind": DAMAGE, "reason": str(error)}
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror or error}") from None


def _suffix(name: str) -> str:
    suffix = name[20:]
    for temporary in _TEMPORARY_SUFFIXES:  # a segment that is being replaced or deleted has the same content
        suffix = suffix.removesuffix(temporary)
    return suffix


def _base_offset(path: str) -> int:
    return int(path.rpartition("/")[2][:20])


def _read_segment(disk: Disk, path: str, with_records: bool) -> Iterator[Entry]:
    file = disk.open_read(path)
    position = 0
    try:
        for position, header in scan(file, 0, file.size, checked=True):
            batch = read_batch(file, position, header) if with_records or header.is_control else b""
            yield _describe_batch(position, header, control_type(batch) if header.is_control else None)
            if with_records:
                for record in decode(batch):
                    yield {"kind": "record", **record._asdict()}
            position += header.size
    except CorruptBatch as error:
        raise CorruptBatch(f"at byte {position} of {file.size}: {error}") from None
    finally:
        file.close()


def _describe_batch(position: int, header: BatchHeader, marker: ControlMarker | None) -> Entry:
    entry: Entry = {
        "kind": "batch",
        "first_offset": header.base_offset,
        "last_offset": header.last_offset,
        "records": header.record_count,
        "position": position,
        "size": header.size,
        "codec": CODECS[header.codec] if header.codec < len(CODECS) else header.codec,
        "timestamp": header.max_timestamp,
        "leader_epoch": header.leader_epoch,
    }
    if header.producer_id >= 0:
        entry["producer_id"] = header.producer_id
        entry["producer_epoch"] = header.producer_epoch
        entry["sequence"] = header.base_sequence
    if header.log_append_time:
        entry["timestamp_type"] = "LogAppendTime"
    if header.is_transactional:
        entry["transactional"] = True
    if marker is not None:
        entry["control"] = _MARKERS.get(marker.type, marker.type)
        entry["coordinator_epoch"] = marker.coordinator_epoch
    return entry


def _read_offset_index(disk: Disk, path: str, with_records: bool) -> Iterator[Entry]:
    base = _base_offset(path)
    index = OffsetIndex.decode(remove_padding(disk.read(path), OFFSET_ENTRY_SIZE))
    for offset, position in zip(index.offsets, index.positions, strict=True):
        yield {"kind": "offset-index", "offset": base + offset, "position": position}


def _read_time_index(disk: Disk, path: str, with_records: bool) -> Iterator[Entry]:
    base = _base_offset(path)
    index = TimeIndex.decode(remove_padding(disk.read(path), TIME_ENTRY_SIZE))
    for timestamp, offset in zip(index.timestamps, index.offsets, strict=True):
        yield {"kind": "time-index", "timestamp": timestamp, "offset": base + offset}


def _read_transaction_index(disk: Disk, path: str, with_records: bool) -> Iterator[Entry]:
    for entry in transactions.decode(disk.read(path)):
        yield {"kind": "aborted-transaction", **entry._asdict()}


def _read_snapshot(disk: Disk, path: str, with_records: bool) -> Iterator[Entry]:
    for producer in snapshots.decode(disk.read(path)):
        last = producer.batches[-1] if producer.batches else None
        yield {
            "kind": "producer",
            "producer_id": producer.producer_id,
            "epoch": producer.epoch,
            "last_sequence": producer.last_sequence,
            "last_offset": last.last_offset if last else -1,
            "timestamp": producer.timestamp,
            "coordinator_epoch": producer.coordinator_epoch,
            "transaction_start": producer.transaction_start,
        }


def _read_epochs(disk: Disk, path: str, with_records: bool) -> Iterator[Entry]:
    for epoch, start in LeaderEpochs.load(disk, path).entries:
        yield {"kind": "leader-epoch", "epoch": epoch, "start_offset": start}


def _read_checkpoint(disk: Disk, path: str, with_records: bool) -> Iterator[Entry]:
    for (topic, partition), offset in decode_checkpoint(disk.read(path)).items():
        yield {"kind": "checkpoint", "topic": topic, "partition": partition, "offset": offset}


def _read_text(disk: Disk, path: str, with_records: bool) -> Iterator[Entry]:
    yield {"kind": "text", "text": disk.read(path).decode().strip()}


def _read_properties(disk: Disk, path: str, with_records: bool) -> Iterator[Entry]:
    yield {"kind": "properties", **read_properties(disk.read(path).decode())}


_BY_SUFFIX: dict[str, Reader] = {
    names.LOG: _read_segment,
    names.OFFSET_INDEX: _read_offset_index,
    names.TIME_INDEX: _read_time_index,
    names.TRANSACTION_INDEX: _read_transaction_index,
    names.SNAPSHOT: _read_snapshot,
}
_BY_NAME: dict[str, Reader] = {
    names.EPOCHS: _read_epochs,
    names.METADATA: _read_properties,
    META_PROPERTIES: _read_properties,
    CLEAN_SHUTDOWN: _read_text,
    RECOVERY_POINTS: _read_checkpoint,
    LOG_STARTS: _read_checkpoint,
    HIGH_WATERMARKS: _read_checkpoint,
}
