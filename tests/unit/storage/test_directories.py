"""Data directories: one owner, Kafka's files, and damage that never prevents a start."""

import errno
import logging
from pathlib import Path
from random import Random
from shutil import copytree
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.storage.directories import (
    CHECKPOINTED,
    CLEAN_SHUTDOWN,
    DELETE,
    HIGH_WATERMARKS,
    LOG_STARTS,
    META_PROPERTIES,
    RECOVERY_POINTS,
    STRAY,
    DataDirectory,
    DirectoryError,
    DirectoryIdentity,
    decode_checkpoint,
    decode_identity,
    encode_checkpoint,
    encode_identity,
    format_marked_name,
    format_partition_name,
    parse_name,
)
from ottla.storage.files import RealDisk
from ottla.topic_partition import TopicPartition
from tests.simulation.disk import Crashed, SimulatedDisk

DATA = "/data"
DIRECTORY_ID = bytes(range(16))
OFFSETS = {TopicPartition("orders", 0): 17, TopicPartition("orders", 12): 345, TopicPartition("a.b_c-d", 1): 2**62}


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk(Random(1))


def test_a_missing_directory_is_created(disk: SimulatedDisk) -> None:
    # Proves: a missing directory is created, and has no state yet.
    directory = DataDirectory.open(disk, "/some/where/data")
    assert directory.identity is None and not directory.was_clean
    assert directory.recovery_points == directory.log_starts == directory.high_watermarks == {}
    assert directory.partitions() == []


def test_only_one_process_may_use_a_directory(tmp_path: Path) -> None:
    # Proves: on a real disk too, a second opening is refused in one line until the first is closed.
    path = str(tmp_path / "data")
    first = DataDirectory.open(RealDisk(), path)
    with pytest.raises(DirectoryError) as refusal:
        DataDirectory.open(RealDisk(), path)
    assert str(refusal.value) == f"{path} is in use by another process"
    first.close(clean=True)
    first.close(clean=True)
    second = DataDirectory.open(RealDisk(), path)
    assert second.was_clean
    second.close(clean=False)
    assert not DataDirectory.open(RealDisk(), path).was_clean


@pytest.mark.parametrize("operation", ["mkdir", "create", "list", "read"])
def test_a_directory_that_cannot_be_used_says_why(disk: SimulatedDisk, operation: str) -> None:
    # Proves: whatever the system refuses becomes one readable line, and the lock is not kept.
    disk.fail(operation, errno.EACCES)
    with pytest.raises(DirectoryError) as refusal:
        DataDirectory.open(disk, DATA)
    assert str(refusal.value) == "/data cannot be used: Permission denied"
    DataDirectory.open(disk, DATA)


def test_a_file_instead_of_a_directory_is_refused(tmp_path: Path) -> None:
    # Proves: a path that is a file is refused in one line.
    (tmp_path / "data").write_bytes(b"")
    with pytest.raises(DirectoryError, match="cannot be used"):
        DataDirectory.open(RealDisk(), str(tmp_path / "data"))


# Whose it is


def test_an_identity_is_written_once(disk: SimulatedDisk) -> None:
    # Proves: the first claim marks the directory. Later ones must match it, and keep its directory id.
    directory = DataDirectory.open(disk, DATA)
    assert directory.claim("cluster", 3, DIRECTORY_ID) == DirectoryIdentity("cluster", 3, DIRECTORY_ID)
    directory.close(clean=False)
    again = DataDirectory.open(disk, DATA)
    assert again.identity == DirectoryIdentity("cluster", 3, DIRECTORY_ID)
    assert again.claim("cluster", 3, bytes(16)).directory_id == DIRECTORY_ID
    with pytest.raises(DirectoryError, match="belongs to cluster cluster, not to other"):
        again.claim("other", 3, DIRECTORY_ID)
    with pytest.raises(DirectoryError, match="belongs to node 3, not to node 4"):
        again.claim("cluster", 4, DIRECTORY_ID)


def test_the_identity_file_has_the_format_of_kafka() -> None:
    # Proves: the file is what Kafka writes, comments and escapes included.
    assert encode_identity(DirectoryIdentity("MkU3OEVBNTcwNTJENDM2Qg", 1, DIRECTORY_ID)) == (
        b"cluster.id=MkU3OEVBNTcwNTJENDM2Qg\ndirectory.id=AAECAwQFBgcICQoLDA0ODw\nnode.id=1\nversion=1\n"
    )
    comment = b"#\n#Sat Nov 15 00:00:00 UTC 2025\n"
    theirs = b"node.id=7\ndirectory.id=AAECAwQFBgcICQoLDA0ODw\nversion=1\ncluster.id=a\\=b\n"
    with pytest.raises(ValueError, match=r"its version is '0': .* Start with another directory"):
        decode_identity(b"version=0\nbroker.id=1\ncluster.id=a\n")  # of Kafka with ZooKeeper
    assert decode_identity(comment + theirs) == DirectoryIdentity("a=b", 7, DIRECTORY_ID)
    strange = DirectoryIdentity("a = b#c!d:e\\f", 0, DIRECTORY_ID)
    assert decode_identity(encode_identity(strange)) == strange


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"version=0\nbroker.id=1\n",
        b"version=1\nnode.id=1\n",
        b"\xff\xfe",
        b"version=1\ncluster.id=c\nnode.id=one\ndirectory.id=AAECAwQFBgcICQoLDA0ODw\n",
        b"version=1\ncluster.id=c\nnode.id=1\ndirectory.id=AAEC\n",
        b"version=1\ncluster.id=c\nnode.id=1\ndirectory.id=A\n",
    ],
)
def test_a_damaged_identity_stops_the_start(disk: SimulatedDisk, content: bytes) -> None:
    # Proves: a directory whose owner cannot be read does not count as new, and the refusal is one line.
    disk.make_directory(DATA)
    disk.replace(f"{DATA}/{META_PROPERTIES}", content)
    with pytest.raises(DirectoryError, match=r"meta\.properties cannot be read") as refusal:
        DataDirectory.open(disk, DATA)
    assert "\n" not in str(refusal.value)


# Logs that were begun here


def test_a_log_without_a_recovery_point_was_begun_after_the_mark(disk: SimulatedDisk) -> None:
    # Proves: the mark survives a power cut, together with the recovery points that it speaks of.
    directory = DataDirectory.open(disk, DATA)
    assert not directory.was_begun_here(TopicPartition("new", 0))
    directory.mark_checkpointed({TopicPartition("old", 0): 5, TopicPartition("empty", 0): 0})
    for _ in range(2):
        assert directory.was_begun_here(TopicPartition("new", 0)) and directory.was_begun_here(
            TopicPartition("empty", 0)
        )
        assert not directory.was_begun_here(TopicPartition("old", 0))
        disk.crash(lose_unsynced=True)
        directory = DataDirectory.open(disk, DATA)


def test_a_clean_shutdown_removes_the_mark_of_own_logs(disk: SimulatedDisk) -> None:
    # Proves: files that are moved in while no broker runs never count as our own, whichever mark is removed.
    directory = DataDirectory.open(disk, DATA)
    directory.mark_checkpointed({})
    directory.close(clean=True)
    assert not disk.exists(f"{DATA}/{CHECKPOINTED}")
    disk.replace(f"{DATA}/{CHECKPOINTED}", b"")  # as if its removal had not reached the disk
    again = DataDirectory.open(disk, DATA)
    assert again.was_clean and not again.was_begun_here(TopicPartition("new", 0))
    assert not disk.exists(f"{DATA}/{CHECKPOINTED}")


@pytest.mark.parametrize("content", [None, b"damaged"])
def test_the_mark_counts_only_with_its_checkpoint(disk: SimulatedDisk, content: bytes | None) -> None:
    # Proves: without the recovery points every log would look as if it had none.
    directory = DataDirectory.open(disk, DATA)
    directory.mark_checkpointed({TopicPartition("old", 0): 5})
    disk.crash(lose_unsynced=False)
    if content is None:
        disk.unlink(f"{DATA}/{RECOVERY_POINTS}")
    else:
        disk.replace(f"{DATA}/{RECOVERY_POINTS}", content)
    assert not DataDirectory.open(disk, DATA).was_begun_here(TopicPartition("old", 0))


def test_a_compacted_log_was_not_begun_here(disk: SimulatedDisk) -> None:
    # Proves: a log in the cleaner's checkpoint may have gaps, whatever happened to its recovery point.
    directory = DataDirectory.open(disk, DATA)
    directory.mark_checkpointed({TopicPartition("orders", 0): 0})
    directory.write_clean_ends({TopicPartition("orders", 0): 5})
    assert not directory.was_begun_here(TopicPartition("orders", 0))


# Clean shutdown


def test_the_mark_of_a_clean_shutdown_counts_once(disk: SimulatedDisk) -> None:
    # Proves: the mark counts once, and the broker's epoch comes with it.
    directory = DataDirectory.open(disk, DATA)
    directory.close(clean=True, broker_epoch=42)
    assert disk.read(f"{DATA}/{CLEAN_SHUTDOWN}") == b'{"version":0,"brokerEpoch":42}'
    again = DataDirectory.open(disk, DATA)
    assert (again.was_clean, again.broker_epoch) == (True, 42)
    disk.crash(lose_unsynced=False)
    assert not DataDirectory.open(disk, DATA).was_clean


def test_the_mark_does_not_come_back_after_a_power_cut() -> None:
    # Proves: after open has returned, no power cut brings the mark back, so a dirty log never counts as clean.
    for seed in range(100):
        disk = SimulatedDisk(Random(seed))
        DataDirectory.open(disk, DATA).close(clean=True)
        assert DataDirectory.open(disk, DATA).was_clean
        disk.crash(lose_unsynced=True)
        assert not DataDirectory.open(disk, DATA).was_clean


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"version":0}', b'{"brokerEpoch":"x"}', b"\xff"])
def test_a_mark_that_cannot_be_read_is_no_mark(
    disk: SimulatedDisk, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    # Proves: the empty mark of older brokers counts. One that is not complete costs a recovery and a log line.
    disk.make_directory(DATA)
    disk.replace(f"{DATA}/{CLEAN_SHUTDOWN}", content)
    directory = DataDirectory.open(disk, DATA)
    assert (directory.was_clean, directory.broker_epoch) == (not content, -1)
    assert [record.message.split(":")[0] for record in caplog.records] == (
        [f"{DATA}/{CLEAN_SHUTDOWN} is not believed, every log is checked"] if content else []
    )


def test_the_lock_is_free_even_if_the_mark_cannot_be_written(disk: SimulatedDisk) -> None:
    # Proves: a full disk at the end costs a recovery, not the next start.
    directory = DataDirectory.open(disk, DATA)
    disk.fail("append", errno.ENOSPC)
    with pytest.raises(OSError):
        directory.close(clean=True)
    assert not DataDirectory.open(disk, DATA).was_clean


# Checkpoints


def test_checkpoints_survive_a_restart(disk: SimulatedDisk) -> None:
    # Proves: the three checkpoints are separate and survive a restart.
    directory = DataDirectory.open(disk, DATA)
    directory.write_recovery_points(OFFSETS)
    directory.write_log_starts({TopicPartition("orders", 0): 5})
    directory.write_high_watermarks({})
    directory.close(clean=False)
    again = DataDirectory.open(disk, DATA)
    assert (again.recovery_points, again.log_starts, again.high_watermarks) == (
        OFFSETS,
        {TopicPartition("orders", 0): 5},
        {},
    )
    names = set(disk.list(DATA))
    assert {RECOVERY_POINTS, LOG_STARTS, HIGH_WATERMARKS} <= names


def test_the_same_checkpoint_is_not_written_twice(disk: SimulatedDisk) -> None:
    # Proves: an idle broker does not touch its disk; a changed offset is written, also after changing it in place.
    directory = DataDirectory.open(disk, DATA)
    offsets = dict(OFFSETS)
    directory.write_recovery_points(offsets)
    before = disk.operations
    directory.write_recovery_points(offsets)
    assert disk.operations == before
    offsets[TopicPartition("orders", 0)] = 18
    directory.write_recovery_points(offsets)
    assert disk.operations > before and directory.recovery_points[TopicPartition("orders", 0)] == 18


def test_a_checkpoint_is_written_again_after_an_error_behind_its_rename(disk: SimulatedDisk) -> None:
    # The file has the content of the write that failed, so the content before it is not there any more.
    directory = DataDirectory.open(disk, DATA)
    directory.write_recovery_points({TopicPartition("orders", 0): 2})
    disk.fail("fsync_directory", errno.EMFILE, DATA)
    with pytest.raises(OSError):
        directory.write_recovery_points({TopicPartition("orders", 0): 100})
    directory.write_recovery_points({TopicPartition("orders", 0): 2})
    directory.close(clean=False)
    assert DataDirectory.open(disk, DATA).recovery_points == {TopicPartition("orders", 0): 2}


def test_a_checkpoint_has_the_format_of_kafka() -> None:
    # Proves: the text is what Kafka writes, sorted so that the same offsets give the same file.
    assert encode_checkpoint(OFFSETS) == b"0\n3\na.b_c-d 1 4611686018427387904\norders 0 17\norders 12 345\n"
    assert decode_checkpoint(b"0\n0\n") == {}


def test_every_cut_of_a_checkpoint_is_noticed() -> None:
    # Proves: a half-written file is never read as smaller offsets or fewer partitions.
    whole = encode_checkpoint(OFFSETS)
    assert decode_checkpoint(whole) == OFFSETS
    for length in range(len(whole)):
        with pytest.raises(ValueError):
            decode_checkpoint(whole[:length])


@pytest.mark.parametrize(
    "content",
    [
        b"1\n0\n",
        b"0\n1\n",
        b"0\n1\na 0 1\nb 0 1\n",
        b"0\n1\na 0\n",
        b"0\n1\na 0 -1\n",
        b"0\n1\na -1 1\n",
        b"0\n1\na 0 1 2\n",
        b"0\n1\na b 0 1\n",
        b"0\n1\n../a 0 1\n",
        b"0\nmany\n",
        b"\0" * 100,
        b"\xff\n",
        b"\n\n",
        b"0\n1\na 0 99999999999999999999999\n",
    ],
)
def test_a_damaged_checkpoint_is_ignored_with_a_reason(
    disk: SimulatedDisk, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    # Proves: garbage does not stop the start, is reported in one line, and is replaced by the next checkpoint.
    disk.make_directory(DATA)
    disk.replace(f"{DATA}/{RECOVERY_POINTS}", content)
    with caplog.at_level(logging.WARNING):
        directory = DataDirectory.open(disk, DATA)
    assert directory.recovery_points == {}
    assert len(caplog.messages) == 1 and RECOVERY_POINTS in caplog.messages[0] and "\n" not in caplog.messages[0]
    directory.write_recovery_points({})
    assert disk.read(f"{DATA}/{RECOVERY_POINTS}") == b"0\n0\n"


def test_a_failed_write_that_replaced_the_file_is_forgotten_with_the_partition(disk: SimulatedDisk) -> None:
    # A new topic of the same name had the recovery point of the deleted one.
    directory, key = DataDirectory.open(disk, DATA), TopicPartition("orders", 0)
    disk.fail("fsync_directory", errno.EMFILE, DATA)
    with pytest.raises(OSError):
        directory.write_recovery_points({key: 100})
    assert directory.mentions([key])
    directory.forget([key])
    assert not directory.mentions([key])
    directory.close(clean=False)
    assert DataDirectory.open(disk, DATA).recovery_points == {}


@given(st.binary(max_size=60))
def test_any_checkpoint_bytes_are_survived(content: bytes) -> None:
    # Proves: any bytes raise only ValueError.
    try:
        decode_checkpoint(content)
    except ValueError:
        return
    assert content.startswith(b"0\n")


def test_a_crash_at_any_operation_leaves_a_directory_that_opens() -> None:
    # Proves: wherever the process or the power ends, the next start succeeds, with a whole old or new checkpoint,
    # and the mark of a clean shutdown is only there if everything before it is.
    def life(disk: SimulatedDisk) -> None:
        directory = DataDirectory.open(disk, DATA)
        directory.claim("cluster", 1, DIRECTORY_ID)
        directory.write_recovery_points({TopicPartition("t", 0): 1})
        directory.write_recovery_points({TopicPartition("t", 0): 2})
        directory.close(clean=True)

    probe = SimulatedDisk(Random(0))
    life(probe)
    for operation in range(1, probe.operations + 1):
        for seed in range(10):
            disk = SimulatedDisk(Random(seed))
            disk.crash_at(operation)
            with pytest.raises(Crashed):
                life(disk)
            disk.crash(lose_unsynced=seed % 2 == 0)
            directory = DataDirectory.open(disk, DATA)
            assert directory.recovery_points.get(TopicPartition("t", 0)) in (None, 1, 2)
            assert directory.claim("cluster", 1, DIRECTORY_ID)
            if directory.was_clean:
                assert directory.recovery_points == {TopicPartition("t", 0): 2}


# Names


@pytest.mark.parametrize(
    ("name", "parsed"),
    [
        ("orders-0", ("orders", 0, "")),
        ("a-b-12", ("a-b", 12, "")),
        ("a--1", ("a-", 1, "")),
        ("__consumer_offsets-49", ("__consumer_offsets", 49, "")),
        ("a.b-0", ("a.b", 0, "")),
        ("orders-3.0123abcd-delete", ("orders", 3, "delete")),
        ("orders-3.0123abcd-stray", ("orders", 3, "stray")),
        ("orders-3.0123abcd-future", ("orders", 3, "future")),
        ("a-0.x-delete-7", ("a-0.x-delete", 7, "")),
        ("orders", None),
        ("orders-", None),
        ("-0", None),
        ("orders-01", None),
        ("orders--", None),
        ("orders-x", None),
        ("..-0", None),
        (".-0", None),
        ("or ders-0", None),
        ("orders-3-delete", None),
        ("orders-٣", None),
        ("orders-0\n", None),
        ("a" * 250 + "-0", None),
        (".lock", None),
        ("meta.properties", None),
    ],
)
def test_names_of_partition_directories(name: str, parsed: tuple[str, int, str] | None) -> None:
    # Proves: every name that Kafka makes is understood, and no other name counts as a partition.
    assert parse_name(name) == parsed


@given(st.from_regex(r"[a-zA-Z0-9_-][a-zA-Z0-9._-]{0,248}", fullmatch=True), st.integers(0, 2**31 - 1))
def test_names_of_directories_can_be_parsed_again(topic: str, index: int) -> None:
    # Proves: names can be parsed again. The name of a directory that is set aside fits any disk even for the longest
    # topic.
    assert parse_name(format_partition_name(topic, index)) == (topic, index, "")
    for marker in (DELETE, STRAY):
        name = format_marked_name(topic, index, "0123456789abcdef" * 2, marker)
        parsed = parse_name(name)
        assert len(name) <= 255 and parsed is not None
        assert topic.startswith(parsed[0]) and parsed[1:] == (index, marker)


def test_partitions_are_found(disk: SimulatedDisk) -> None:
    # Proves: live directories and those set aside are distinguished, other names are left alone.
    directory = DataDirectory.open(disk, DATA)
    live = directory.partition_path("orders", 0)
    dead = directory.marked_path("orders", 1, "ff", DELETE)
    for path in (live, dead, f"{DATA}/lost+found"):
        disk.make_directory(path)
    directory.close(clean=True)
    again = DataDirectory.open(disk, DATA)
    found = [(partition.topic, partition.index, partition.marker, partition.path) for partition in again.partitions()]
    assert found == [("orders", 0, "", live), ("orders", 1, "delete", dead)]


def test_a_forgotten_partition_is_removed_from_every_checkpoint(disk: SimulatedDisk) -> None:
    # Proves: checkpoints use names, and a topic that is created again under a deleted one's name inherits nothing.
    directory = DataDirectory.open(disk, DATA)
    for write in (directory.write_recovery_points, directory.write_log_starts, directory.write_high_watermarks):
        write(OFFSETS)
    directory.forget([TopicPartition("orders", 0), TopicPartition("never", 3)])
    disk.crash(lose_unsynced=True)
    found = DataDirectory.open(disk, DATA)
    left = {key: offset for key, offset in OFFSETS.items() if key != TopicPartition("orders", 0)}
    assert found.recovery_points == found.log_starts == found.high_watermarks == left


def test_a_partition_that_no_checkpoint_has_is_forgotten_without_a_walk(disk: SimulatedDisk) -> None:
    # It happens for each partition that is created: a walk through all others makes 10,000 topics a hundred times as
    # expensive as 1,000.
    class Unwalked(dict[TopicPartition, int]):
        def items(self) -> Any:
            raise AssertionError("all partitions are looked at")

    directory = DataDirectory.open(disk, DATA)
    directory.write_recovery_points(OFFSETS)
    directory._written[RECOVERY_POINTS] = Unwalked(OFFSETS)
    directory.forget([TopicPartition("never", 3)])
    with pytest.raises(AssertionError, match="all partitions"):
        directory.forget([TopicPartition("orders", 0)])


def test_a_killed_process_has_lost_nothing_unless_the_machine_started_again() -> None:
    disk = SimulatedDisk(Random(1))
    directory = DataDirectory.open(disk, "/data")
    assert directory.killed_at == -1
    directory.mark_running(17)
    disk.crash(lose_unsynced=False)
    assert DataDirectory.open(disk, "/data").killed_at == 17
    disk.crash(lose_unsynced=True)
    assert DataDirectory.open(disk, "/data").killed_at == -1


def test_a_copy_of_a_directory_is_not_taken_for_the_original(tmp_path: Path) -> None:
    """It may have been made while a broker wrote."""
    disk, original, copy, moved = RealDisk(), tmp_path / "original", tmp_path / "copy", tmp_path / "moved"
    directory = DataDirectory.open(disk, str(original))
    directory.mark_running(17)
    directory.close(clean=False)
    copytree(original, copy)
    original.rename(moved)
    for path, epoch in ((copy, -1), (moved, 17)):
        again = DataDirectory.open(disk, str(path))
        assert again.killed_at == epoch
        again.close(clean=False)


def test_a_failed_fsync_counts_as_a_loss() -> None:
    disk = SimulatedDisk(Random(1))
    directory = DataDirectory.open(disk, "/data")
    directory.mark_running(17)
    directory.distrust()
    disk.crash(lose_unsynced=False)
    assert DataDirectory.open(disk, "/data").killed_at == -1


def test_a_damaged_mark_of_a_run_tells_nothing() -> None:
    for content in (b"", b"{", b"[]", b'{"place":"0/data"}', b'{"place":"0/data","brokerEpoch":"17"}'):
        disk = SimulatedDisk(Random(1))
        disk.make_directory("/data")
        disk.replace("/data/.ottla_running", content)
        assert DataDirectory.open(disk, "/data").killed_at == -1
