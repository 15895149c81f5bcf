"""Every kind of file, with a bit flipped or an end cut off: the broker starts or says in one line why not, and never
serves a record that is not what was written.

What Kafka's formats cannot tell is not asked for: a digit of a checkpoint that became another digit, for example.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from functools import partial
from random import Random

import pytest

from ottla.broker.broker import Broker
from ottla.cluster.metadata_files import DamagedMetadata
from ottla.errors import ErrorCode, KafkaError
from ottla.records.batch import CorruptBatch, check, decode, encode, encode_control, headers
from ottla.replication.partition import Partition
from ottla.storage.directories import FailedDirectory
from tests.samples import choose_sample
from tests.simulation.disk import SimulatedDisk
from tests.unit.replication.three_directories import TOPIC, create, started
from tests.unit.storage.logs import overwrite

DATA = ("/data",)
RECORDS = 18
PRODUCER = 7
CHECKPOINTS = ("recovery-point-offset-checkpoint", "replication-offset-checkpoint", "log-start-offset-checkpoint")
TEXTS = ("leader-epoch-checkpoint", "partition.metadata", "meta.properties", ".kafka_cleanshutdown", *CHECKPOINTS)
BINARIES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")

UNDETECTABLE = {
    (".txnindex", "flip at 0.5"),
    (".txnindex", "flip at 0.8"),
    (".txnindex", "flip at 1"),
    (".txnindex", "empty"),
}
"""Where an aborted transaction began has no second witness, and Kafka writes empty files where there was none."""

Mutation = Callable[[bytes], bytes]


def flipped(data: bytes, place: float, bit: int) -> bytes:
    changed = bytearray(data)
    changed[min(int(len(data) * place), len(data) - 1)] ^= bit
    return bytes(changed)


BINARY_MUTATIONS: dict[str, Mutation] = {
    **{f"flip at {place}": partial(flipped, place=place, bit=1) for place in (0, 0.2, 0.5, 0.8, 1)},
    "half": lambda data: data[: len(data) // 2],
    "last byte": lambda data: data[:-1],
    "empty": lambda data: b"",
    "zeros": lambda data: bytes(len(data)),
}
TEXT_MUTATIONS: dict[str, Mutation] = {
    **{f"flip at {place}": partial(flipped, place=place, bit=0x80) for place in (0, 0.3, 0.6, 1)},
    "half": lambda data: data[: len(data) // 2],
    "zeros": lambda data: bytes(len(data)),
}


async def filled(disk: SimulatedDisk) -> None:
    """A broker that ran and was stopped: several segments, one transaction that was aborted, a start that moved."""
    broker = await started(disk, DATA)
    await create(broker, TOPIC, 1, internal_segment_bytes="450", index_interval_bytes="50")
    log = broker.node.replicas.get(TOPIC, 0).log
    for number in range(RECORDS):
        aborted = number == RECORDS // 2
        batch = encode(
            [(None, value_of(log.end_offset), (), 1_000 + number)],
            producer_id=PRODUCER,
            producer_epoch=0,
            base_sequence=number,
            transactional=aborted,
        )
        log.append(batch, check(batch), 1, 1)
        if aborted:
            marker = encode_control(PRODUCER, 0, False, 0, 1_000)
            log.append(marker, check(marker), 1, 1)
    broker.node.replicas.get(TOPIC, 0)._move_high_watermark()
    broker.node.replicas.get(TOPIC, 0).delete_records(1)
    await broker.node.replication.log_starts.write()
    await broker.stop(1)


def value_of(offset: int) -> bytes:
    return b"record %d " % offset * 5


def files(disk: SimulatedDisk, directory: str = "/data") -> Iterator[str]:
    for name in disk.list(directory):
        path = f"{directory}/{name}"
        try:
            inside = disk.list(path)
        except NotADirectoryError:
            yield path
        else:
            yield from (f"{path}/{name}" for name in inside)


@pytest.fixture(scope="module")
def paths() -> list[str]:
    disk = SimulatedDisk(Random(1))
    asyncio.run(filled(disk))
    return list(files(disk))


def serve(partition: Partition) -> dict[int, bytes | None]:
    """Every record that a client gets, each batch checked as clients do; CORRUPT_MESSAGE is stepped over."""
    log = partition.log
    found: dict[int, bytes | None] = {}
    offset = log.log_start_offset
    while offset < log.end_offset:
        try:
            read = log.read(offset, 1, up_to=log.end_offset, at_least_one=True)
            assert read is not None
            data = read.slice.read()
            for position, header in headers(data):
                check(data, position)
                if not header.is_control:
                    found.update({one.offset: one.value for one in decode(data, position) if one.offset >= offset})
                offset = header.next_offset
        except KafkaError as error:
            assert error.code is ErrorCode.CORRUPT_MESSAGE
            offset += 1
        except CorruptBatch:
            offset += 1
    return found


async def look_at(disk: SimulatedDisk, path: str) -> int:
    """Start, read everything, stop. How many records are there."""
    broker = await started(disk, DATA)
    try:
        partition = broker.node.replicas.get(TOPIC, 0)
    except KafkaError as error:
        assert error.code is ErrorCode.KAFKA_STORAGE_ERROR and path.endswith("partition.metadata")
        await broker.stop(1)
        return 0
    found = serve(partition)
    assert all(value == value_of(offset) for offset, value in found.items())
    check_lookups(broker, partition, found, path)
    await broker.stop(1)
    return len(found)


def check_lookups(broker: Broker, partition: Partition, found: dict[int, bytes | None], path: str) -> None:
    log = partition.log
    if not path.endswith(".log"):
        aborted = log.aborted_transactions(log.log_start_offset, log.end_offset)
        assert [one.producer_id for one in aborted] == [PRODUCER]
        last = log.find_offset_for_timestamp(1_000 + RECORDS - 1, log.end_offset)
        assert last is not None and last.offset == log.end_offset - 1


def damaged(path: str, mutation: Mutation, *, clean: bool) -> tuple[SimulatedDisk, bool]:
    """A disk with this damage on it; whether it is any."""
    disk = SimulatedDisk(Random(1))
    asyncio.run(filled(disk))
    before = disk.read(path)
    overwrite(disk, path, mutation(before))
    if not clean:
        disk.unlink("/data/.kafka_cleanshutdown")
    return disk, disk.read(path) != before


def cases(paths: list[str], kind: str, mutations: dict[str, Mutation]) -> Iterator[tuple[str, str, Mutation]]:
    for path in paths:
        if path.endswith(kind) and "__cluster_metadata" not in path:
            for name, mutation in mutations.items():
                if (kind, name) not in UNDETECTABLE:
                    yield path, name, mutation


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "crashed"])
@pytest.mark.parametrize("kind", BINARIES)
def test_binary_files(kind: str, clean: bool, paths: list[str]) -> None:
    # Of a log at most what was damaged is missing, or what was cut off; of all others nothing is.
    tried = 0
    for path, name, mutation in choose_sample([*cases(paths, kind, BINARY_MUTATIONS)], 6):
        disk, changed = damaged(path, mutation, clean=clean)
        if changed:
            tried += 1
            count = asyncio.run(look_at(disk, path))
            assert kind == ".log" or count == RECORDS - 1, f"{path} {name}"
            assert asyncio.run(look_at(disk, path)) == count, f"{path} {name}: another start shows something else"
    assert tried


@pytest.mark.parametrize("kind", [kind for kind in TEXTS if kind not in ("meta.properties", ".kafka_cleanshutdown")])
def test_text_files(kind: str, paths: list[str], caplog: pytest.LogCaptureFixture) -> None:
    # One line says that the file cannot be used. Nothing is missing, but for a partition that does not say whose it is,
    # and records that were deleted in the middle of a segment: without the checkpoint nobody knows.
    tried = 0
    for path, name, mutation in cases(paths, kind, TEXT_MUTATIONS):
        disk, changed = damaged(path, mutation, clean=True)
        if changed:
            tried += 1
            caplog.clear()
            count = asyncio.run(look_at(disk, path))
            expected = {"partition.metadata": 0, "log-start-offset-checkpoint": RECORDS}.get(kind, RECORDS - 1)
            assert count == expected, f"{path} {name}"
            told = [record.message for record in caplog.records if record.levelno >= logging.WARNING]
            assert any(kind in line for line in told), f"{path} {name}: {told}"
    assert tried


@pytest.mark.parametrize("name", TEXT_MUTATIONS)
def test_a_damaged_identity_ends_the_start_in_one_line(name: str) -> None:
    disk, _ = damaged("/data/meta.properties", TEXT_MUTATIONS[name], clean=True)
    with pytest.raises(FailedDirectory, match=r"^/data/meta\.properties cannot be read: .+$"):
        asyncio.run(look_at(disk, "meta.properties"))


@pytest.mark.parametrize("name", TEXT_MUTATIONS)
def test_a_damaged_mark_is_no_mark(name: str, caplog: pytest.LogCaptureFixture) -> None:
    # Everything is checked then, and all is there.
    disk, _ = damaged("/data/.kafka_cleanshutdown", TEXT_MUTATIONS[name], clean=True)
    assert asyncio.run(look_at(disk, ".kafka_cleanshutdown")) == RECORDS - 1
    assert ".kafka_cleanshutdown is not believed" in caplog.text


@pytest.mark.parametrize("name", BINARY_MUTATIONS)
def test_a_damaged_metadata_log_is_never_believed(name: str, paths: list[str]) -> None:
    # The start ends in one line, again and again, and no partition is taken for one that belongs to nobody.
    (path,) = [path for path in paths if "__cluster_metadata" in path and path.endswith(".log")]
    disk, _ = damaged(path, BINARY_MUTATIONS[name], clean=True)
    for _ in range(2):
        with pytest.raises(DamagedMetadata) as refused:
            asyncio.run(look_at(disk, path))
        assert "\n" not in str(refused.value) and "__cluster_metadata" in str(refused.value)
    assert disk.exists("/data/orders-0")
