"""A broker that starts on damaged files: what it keeps, what it cuts off, and what its clients then see.

The storage tests go through every byte and every file; here the same damage is done to the files of a whole broker.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ottla.errors import ErrorCode
from ottla.records.batch import headers
from ottla.testing import LocalBroker
from ottla.testing import broker as local_broker
from tests.scenarios.client_calls import (
    LATEST,
    append,
    connect,
    decode_values,
    list_offset,
    make_batch,
    produce_batch,
    read_all_values,
)

TOPIC = "orders"
BATCHES = 10
SENT = [b"%d" % number * 100 for number in range(BATCHES)]
CHECKPOINTS = ("recovery-point-offset-checkpoint", "replication-offset-checkpoint", "log-start-offset-checkpoint")
ENDS = pytest.mark.parametrize("end", ("stop", "kill"))


@pytest.fixture
def broker() -> Iterator[LocalBroker]:
    """A broker with ten batches of one record each, from an idempotent producer."""
    with local_broker() as running:
        running.create_topic(TOPIC)
        with connect(running) as client:
            for number, value in enumerate(SENT):
                append(
                    client,
                    TOPIC,
                    value,
                    timestamp=running.now_ms,
                    producer_id=7,
                    producer_epoch=0,
                    base_sequence=number,
                )
        yield running


def find_segment(broker: LocalBroker, offset: int = 0) -> Path:
    return Path(broker.directory) / f"{TOPIC}-0" / f"{offset:020}.log"


def find_batches(path: Path) -> list[int]:
    """Where each batch begins, and where the last one ends."""
    data = path.read_bytes()
    found = [(position, header.size) for position, header in headers(data)]
    return [position for position, _ in found] + [sum(found[-1])]


def damage_and_restart(broker: LocalBroker, end: str, damage: Callable[[Path], object]) -> None:
    """End the broker in this way, damage its first segment, and start it again."""
    getattr(broker, end)()
    damage(find_segment(broker))
    broker.restart()


def check_usable(broker: LocalBroker, values: list[bytes]) -> None:
    """Check that these records and no others are there, and that the log continues after them, also after a restart."""
    count = len(values)
    with connect(broker) as client:
        assert read_all_values(client, TOPIC) == values
        assert list_offset(client, TOPIC, LATEST).offset == count
        fields = {"producer_id": 7, "producer_epoch": 0}
        if values:
            again = make_batch(values[-1], timestamp=broker.now_ms, base_sequence=count - 1, **fields)
            assert produce_batch(client, TOPIC, again).base_offset == count - 1
        assert append(client, TOPIC, b"new", timestamp=broker.now_ms, base_sequence=count, **fields) == count
    broker.kill()
    broker.restart()
    with connect(broker) as client:
        assert read_all_values(client, TOPIC) == [*values, b"new"]


@pytest.mark.parametrize("cut", (1, 2, 30, 61, 62, 100))
def test_a_torn_last_batch_is_cut_off(cut: int, broker: LocalBroker) -> None:
    # The last batch has lost bytes: every batch before it is there, and its producer can send it again.
    damage_and_restart(broker, "kill", lambda path: path.write_bytes(path.read_bytes()[:-cut]))
    check_usable(broker, SENT[:-1])


def test_nothing_is_kept_behind_a_torn_batch(broker: LocalBroker) -> None:
    # The last batch but one did not reach the disk and the last one did: the log ends before both.
    def tear(path: Path) -> None:
        begins = find_batches(path)
        data = bytearray(path.read_bytes())
        data[begins[-3] : begins[-2]] = bytes(begins[-2] - begins[-3])
        path.write_bytes(data)

    damage_and_restart(broker, "kill", tear)
    check_usable(broker, SENT[:-2])


def test_damage_in_flushed_data_costs_only_its_own_batch(broker: LocalBroker) -> None:
    # A flipped bit below the recovery point: that batch is refused, what was acknowledged after it stays.
    def flip(path: Path) -> None:
        data = bytearray(path.read_bytes())
        data[find_batches(path)[4] + 80] ^= 1
        path.write_bytes(data)
        (Path(broker.directory) / ".kafka_cleanshutdown").unlink()

    damage_and_restart(broker, "stop", flip)
    with connect(broker) as client:
        assert client.fetch(TOPIC, 0, 4).error_code == ErrorCode.CORRUPT_MESSAGE
        assert decode_values(client.fetch(TOPIC, 0, 0)) == SENT[:4]
        assert decode_values(client.fetch(TOPIC, 0, 5)) == SENT[5:]
        assert append(client, TOPIC, b"new") == BATCHES


@pytest.mark.parametrize("length", (1, 60, 61, 10_000))
def test_zeros_after_the_last_batch_are_the_end_of_the_log(length: int, broker: LocalBroker) -> None:
    damage_and_restart(broker, "kill", lambda path: path.write_bytes(path.read_bytes() + bytes(length)))
    check_usable(broker, SENT)


@ENDS
@pytest.mark.parametrize("kind", ("missing", "empty", "short", "garbage"))
@pytest.mark.parametrize("suffix", (".index", ".timeindex", ".snapshot"))
def test_damaged_indexes_and_snapshots_are_rebuilt(suffix: str, kind: str, end: str, broker: LocalBroker) -> None:
    # Whatever is left of these files, the start succeeds, reads by offset and by time are right, and the producer is
    # known.
    def damage(path: Path) -> None:
        files = list(path.parent.glob(f"*{suffix}")) or [path.with_suffix(suffix)]
        for file in files:
            content = file.read_bytes() if file.exists() else b""
            if kind == "missing":
                file.unlink(missing_ok=True)
            else:
                file.write_bytes({"empty": b"", "short": content[:-1], "garbage": b"\xff" * 120}[kind])

    damage_and_restart(broker, end, damage)
    with connect(broker) as client:
        assert list_offset(client, TOPIC, 0).offset == 0
        assert list_offset(client, TOPIC, 2**60).offset == -1
        assert decode_values(client.fetch(TOPIC, 0, 7)) == SENT[7:]
    check_usable(broker, SENT)


@ENDS
@pytest.mark.parametrize("content", (b"", b"0\n", b"0\n1\norders 0 99999999\n", b"0\n5\norders 0 1\n", b"\xff\x00"))
def test_checkpoints_that_are_ahead_of_the_log_or_half_written_are_ignored(
    content: bytes, end: str, broker: LocalBroker
) -> None:
    # The log start offset is kept: only its checkpoint has it.
    def damage(path: Path) -> None:
        for name in CHECKPOINTS[:2]:
            (Path(broker.directory) / name).write_bytes(content)

    damage_and_restart(broker, end, damage)
    check_usable(broker, SENT)


def test_a_torn_log_is_repaired_in_spite_of_a_clean_shutdown_marker(broker: LocalBroker) -> None:
    # The file lost bytes after the clean shutdown: no half batch is served.
    damage_and_restart(broker, "stop", lambda path: path.write_bytes(path.read_bytes()[:-10]))
    check_usable(broker, SENT[:-1])


def test_indexes_snapshots_and_checkpoints_lost_together_are_rebuilt(broker: LocalBroker) -> None:
    # Only the log files of the partition are left: every record is there, and so is the producer state.
    def damage(path: Path) -> None:
        for file in path.parent.iterdir():
            if file.suffix != ".log" and file.name != "partition.metadata":
                file.unlink()
        for name in CHECKPOINTS:
            (Path(broker.directory) / name).unlink(missing_ok=True)

    damage_and_restart(broker, "kill", damage)
    check_usable(broker, SENT)
