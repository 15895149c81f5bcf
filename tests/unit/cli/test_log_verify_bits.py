"""`ottla log verify` and every single bit of a data directory: a change is reported, or there is a known reason why
not.

The directory is small and has all files that a broker leaves after a clean shutdown. Under a checksum one bit of each
byte is enough; everywhere else all eight are tried. The suite changes a sample that its seed chooses, `make test-all`
every bit.
"""

from collections.abc import Iterator
from random import Random

import pytest

from ottla.cli.log_verification import Report, verify_path
from ottla.cluster.changes import Change, CreatePartition, CreateTopic, Endpoint, RegisterBroker, SetClusterId
from ottla.cluster.encoding import encode
from ottla.cluster.metadata_files import encode_entry
from ottla.records import batch
from ottla.storage import index, names
from ottla.storage.directories import DataDirectory
from ottla.storage.opening import create_log, open_log
from ottla.storage.overlay import OverlayDisk
from ottla.storage.settings import LogSettings
from ottla.topic_partition import TopicPartition
from tests.samples import FULL
from tests.simulation.disk import SimulatedDisk
from tests.unit.storage.logs import DIRECTORY, NOW, TOPIC_ID, append, batch_of

HOME = "/data"
METADATA = f"{HOME}/__cluster_metadata-0"
PARTITION = TopicPartition("orders", 0)
VALUES = 3
SAMPLE = 40
"""How many bits of each file are tried."""
UNCOVERED = 21
"""The first fields of a batch, which are not under its checksum: base offset, length, leader epoch, magic, checksum."""


@pytest.fixture(scope="module")
def disk() -> SimulatedDisk:
    """Two segments with indexes, two leader epochs, a start within the first segment, aborted transactions."""
    disk = SimulatedDisk(Random(1))
    directory = DataDirectory.open(disk, HOME)
    directory.claim("a-cluster", 1, bytes(range(16)))
    log = create_log(disk, DIRECTORY, TOPIC_ID, LogSettings(index_interval_bytes=90), NOW)
    for part in range(2):
        append(log, batch_of(b"first", timestamp=NOW + 1000 * part), leader_epoch=2 * part)
        append(log, batch_of(*[b"value"] * VALUES, timestamp=NOW + 1000 * part + 20), leader_epoch=2 * part)
        append(log, batch_of(b"lost", producer_id=7, sequence=part, transactional=True), leader_epoch=2 * part)
        append(log, batch.encode_control(7, 0, False, 5, NOW), leader_epoch=2 * part)
        if part == 0:
            log.roll(NOW)
    log.advance_log_start(2)
    end, start = log.end_offset, log.log_start_offset
    log.close()
    disk.make_directory(METADATA)
    endpoints = (Endpoint("PLAINTEXT", "localhost", 9092, "PLAINTEXT"),)
    entries: tuple[tuple[Change, ...], ...] = (
        (SetClusterId("a-cluster"), RegisterBroker(1, (bytes(range(16)),), endpoints)),
        (CreateTopic(TOPIC_ID, "orders"), CreatePartition(TOPIC_ID, 0, (1,), (1,), 1)),
    )
    file = disk.open(names.path(METADATA, 1, names.LOG), create=True)
    for version, changes in enumerate(entries, start=1):
        file.append(encode_entry(version, bytes(16), encode(changes), NOW))
    file.close()
    directory.write_recovery_points({PARTITION: end})
    directory.write_log_starts({PARTITION: start})
    directory.write_high_watermarks({PARTITION: end})
    directory.close(clean=True, broker_epoch=3)
    return disk


UNSEEN = {
    "mark of a clean shutdown": "a broker asks whether it can be read, and hands its epoch to a controller as a hint",
    "high watermark": "a smaller one, or none, hides records for a moment: this broker is the only replica",
    "padding of directory.id": "four bits of its last letter stand for nothing, the id is the same",
    "leader epoch of a metadata entry": "nobody reads it: there is one writer",
    "offset index: offset": "of a later batch before the next entry, as an older Kafka writes it",
    "time index: offset": "another one of the same batch, as an older Kafka writes it",
}
"""Changes that are not reported, each with the reason. None of them changes what a consumer sees."""


def files_of(disk: SimulatedDisk) -> Iterator[str]:
    for directory in (HOME, DIRECTORY, METADATA):
        for name in disk.list(directory):
            path = f"{directory}/{name}"
            if path not in (DIRECTORY, METADATA) and name != ".lock":
                yield path


def bits_of(path: str, data: bytes) -> Iterator[tuple[int, int]]:
    """The byte and the bit of each change to try."""
    covered = set(range(len(data))) if path.endswith(names.SNAPSHOT) else set()
    if path.endswith(names.LOG):
        for start, header in batch.headers(data):
            covered.update(range(start + UNCOVERED, start + header.size))
    for at in range(len(data)):
        yield from ((at, bit) for bit in ((at % 8,) if at in covered else range(8)))


def field_of(path: str, data: bytes, at: int) -> str:
    """The name in `UNSEEN` of the field at this position, or the position if every change there must be reported."""
    name = path.rpartition("/")[2]
    if name == "replication-offset-checkpoint":
        return "high watermark"
    if name == ".kafka_cleanshutdown":
        return "mark of a clean shutdown"
    if name == "meta.properties" and data[at + 1 : at + 2] == b"\n" and b"directory.id" in data[:at].splitlines()[-1]:
        return "padding of directory.id"
    if path.startswith(METADATA) and any(12 <= at - start < 16 for start, _ in batch.headers(data)):
        return "leader epoch of a metadata entry"
    if name.endswith(names.OFFSET_INDEX) and at % index.OFFSET_ENTRY_SIZE < 4:
        return "offset index: offset"
    if name.endswith(names.TIME_INDEX) and at % index.TIME_ENTRY_SIZE >= 8:
        return "time index: offset"
    return f"{name}, byte {at}: {data[max(at - 8, 0) : at + 8]!r}"


def is_reported(disk: SimulatedDisk) -> bool:
    report = Report()
    verify_path(disk, HOME, report, mend=False, on_problem=lambda problem: None)
    return bool(report.problems or report.notices)


def answers(disk: SimulatedDisk) -> list[object]:
    """All answers that clients can get from the log, read from a copy of its files."""
    end = 2 * (VALUES + 3)
    log = open_log(
        OverlayDisk(disk), DIRECTORY, LogSettings(), clean=True, recovery_point=end, log_start_offset=2, now_ms=NOW
    )
    slices = [log.read(offset, 1, up_to=log.end_offset, at_least_one=True) for offset in range(2, log.end_offset)]
    found: list[object] = [(read.slice.read(), log.aborted_transactions(2, log.end_offset)) for read in slices if read]
    found += [log.find_offset_for_timestamp(NOW + time, log.end_offset) for time in range(0, 1040, 5)]
    found.append(log.find_max_timestamp())
    log.abandon()
    return found


def test_a_valid_directory_has_no_problems(disk: SimulatedDisk) -> None:
    # Otherwise the other tests would show nothing.
    assert not is_reported(disk)
    assert {path.rpartition("/")[2].lstrip("0123456789") for path in files_of(disk)} == {
        ".log",
        ".index",
        ".timeindex",
        ".txnindex",
        ".snapshot",
        "leader-epoch-checkpoint",
        "partition.metadata",
        "recovery-point-offset-checkpoint",
        "log-start-offset-checkpoint",
        "replication-offset-checkpoint",
        ".kafka_cleanshutdown",
        "meta.properties",
    }


def test_every_changed_bit_is_reported_or_changes_no_answer(disk: SimulatedDisk, seed: int) -> None:
    # The fields whose changes are not reported are exactly those that are listed. The answers of the log stay the same.
    random = Random(seed)
    unseen: dict[str, list[tuple[str, int, int]]] = {}
    sound = answers(disk)
    for path in files_of(disk):
        data = disk.read(path)
        file = disk.open(path)
        bits = [*bits_of(path, data)]
        for at, bit in bits if FULL else random.sample(bits, min(len(bits), SAMPLE)):
            file.write_at(at, bytes([data[at] ^ 1 << bit]))
            if not is_reported(disk):
                unseen.setdefault(field_of(path, data, at), []).append((path, at, bit))
                assert answers(disk) == sound, (path, at, bit)
            file.write_at(at, data[at : at + 1])
        file.close()
    assert unseen.keys() == UNSEEN.keys() if FULL else unseen.keys() <= UNSEEN.keys()
