"""Helpers for tests of a log: a log on a simulated disk, batches to append, and its whole content."""

from collections.abc import Iterable
from random import Random

from ottla.records import batch
from ottla.storage import opening
from ottla.storage.log import Appended, Log, LogSettings
from tests.simulation.disk import SimulatedDisk

DIRECTORY = "/data/orders-0"
TOPIC_ID = bytes(range(16))
NOW = 1_700_000_000_000


def new_disk(seed: int = 1) -> SimulatedDisk:
    return SimulatedDisk(Random(seed))


def new_log(disk: SimulatedDisk, settings: LogSettings | None = None) -> Log:
    return opening.create_log(disk, DIRECTORY, TOPIC_ID, settings or LogSettings(), NOW)


def open_log(
    disk: SimulatedDisk,
    settings: LogSettings | None = None,
    *,
    clean: bool = False,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    now_ms: int = NOW,
) -> Log:
    return opening.open_log(
        disk,
        DIRECTORY,
        settings or LogSettings(),
        clean=clean,
        recovery_point=recovery_point,
        log_start_offset=log_start_offset,
        now_ms=now_ms,
    )


def batch_of(
    *values: bytes,
    timestamp: int = NOW,
    producer_id: int = -1,
    epoch: int = 0,
    sequence: int = -1,
    transactional: bool = False,
) -> bytearray:
    return batch.encode(
        [(None, value, (), timestamp + index) for index, value in enumerate(values or (b"v",))],
        producer_id=producer_id,
        producer_epoch=epoch if producer_id >= 0 else -1,
        base_sequence=sequence,
        transactional=transactional,
    )


def append(log: Log, data: bytearray, *, leader_epoch: int = 0, now_ms: int = NOW) -> Appended:
    return log.append(data, batch.read_header(data), leader_epoch, now_ms)


def fill(log: Log, values: Iterable[bytes], *, leader_epoch: int = 0) -> None:
    for value in values:
        append(log, batch_of(value), leader_epoch=leader_epoch)


def records(log: Log) -> list[batch.Record]:
    """Every record from the start to the end of the log, read as a consumer would."""
    found: list[batch.Record] = []
    offset = log.log_start_offset
    while offset < log.end_offset:
        read = log.read(offset, 1024 * 1024, up_to=log.end_offset, at_least_one=True)
        assert read is not None, f"nothing at {offset} before the end {log.end_offset}"
        data = read.slice.read()
        for position, header in batch.headers(data):
            batch.check(data, position)
            found += [record for record in batch.decode(data, position) if record.offset >= offset]
            offset = header.next_offset
    return found


def values(log: Log) -> list[bytes]:
    return [record.value or b"" for record in records(log)]


def path(offset: int, suffix: str) -> str:
    return f"{DIRECTORY}/{offset:020d}{suffix}"


def overwrite(disk: SimulatedDisk, file_path: str, data: bytes) -> None:
    """Overwrite a file, as a crash, a bad disk or an operator may."""
    file = disk.open(file_path, create=True)
    file.truncate(0)
    if data:
        file.append(data)
    file.close()
