"""The simulated disk: it forgets exactly what was not synced, fails where it is told to, and is deterministic."""

import errno
from collections.abc import Callable
from random import Random

import pytest

from ottla.storage.files import Disk, File
from tests.simulation.disk import Crashed, SimulatedDisk
from tests.simulation.platter import SECTOR

SEEDS = range(200)


def create_disk(seed: int = 0) -> SimulatedDisk:
    disk = SimulatedDisk(Random(seed))
    disk.make_directory("/d")
    return disk


def create_durable_file(disk: SimulatedDisk, content: bytes, path: str = "/d/f") -> File:
    file = disk.open(path, create=True)
    file.append(content)
    file.fsync()
    disk.fsync_directory("/d")
    return file


def list_contents_after_power_cuts(prepare: Callable[[SimulatedDisk], None], path: str = "/d/f") -> set[bytes | None]:
    """Every content that the file has after one of many power cuts; None stands for a missing file."""
    outcomes: set[bytes | None] = set()
    for seed in SEEDS:
        disk = create_disk(seed)
        prepare(disk)
        disk.crash(lose_unsynced=True)
        outcomes.add(disk.read(path) if disk.exists(path) else None)
    return outcomes


def test_the_disk_has_the_interface_of_the_file_layer() -> None:
    # Proves: the interface of the file layer is met (by mypy), and its operations do what they say.
    disk: Disk = create_disk()
    file: File = disk.open("/d/f", create=True)
    file.append(b"hello ")
    file.append(memoryview(b"world"))
    file.write_at(0, b"H")
    file.write_at(12, b"!")
    assert file.read_at(0, 100) == b"Hello world\0!" and file.size == disk.size("/d/f") == 13
    file.truncate(5)
    assert file.read_at(3, 1) == b"l" and file.read_at(9, 9) == b"" and disk.read("/d/f") == b"Hello"
    assert file.pin() is None
    file.unpin()
    disk.rename("/d/f", "/d/a")
    assert list(disk.list("/d")) == ["a"] and disk.read("/d/a") == b"Hello"
    disk.make_directory("/x/y/z")
    disk.remove_directory("/x/y/z")
    assert list(disk.list("/x")) == ["y"] and list(disk.list("/x/y")) == []
    disk.unlink("/d/a")
    assert not disk.exists("/d/a")


@pytest.mark.parametrize(
    ("wrong", "number"),
    [
        (lambda disk: disk.open("/d/none"), errno.ENOENT),
        (lambda disk: disk.open("/none/f", create=True), errno.ENOENT),
        (lambda disk: disk.open_read("/d/none"), errno.ENOENT),
        (lambda disk: disk.read("/d"), errno.EISDIR),
        (lambda disk: disk.list("/none"), errno.ENOENT),
        (lambda disk: disk.list("/d/f"), errno.ENOTDIR),
        (lambda disk: disk.unlink("/d/none"), errno.ENOENT),
        (lambda disk: disk.unlink("/d"), errno.EISDIR),
        (lambda disk: disk.rename("/d/none", "/d/x"), errno.ENOENT),
        (lambda disk: disk.rename("/d/f", "/d/none/x"), errno.ENOENT),
        (lambda disk: disk.rename("/e", "/d"), errno.ENOTEMPTY),
        (lambda disk: disk.remove_directory("/d"), errno.ENOTEMPTY),
        (lambda disk: disk.make_directory("/d/f"), errno.EEXIST),
        (lambda disk: disk.fsync_directory("/none"), errno.ENOENT),
        (lambda disk: disk.open_read("/d/f").append(b"x"), errno.EBADF),
    ],
)
def test_wrong_calls_raise_the_errors_of_a_real_disk(wrong: Callable[[SimulatedDisk], object], number: int) -> None:
    # Proves: code that handles the system's errors meets the same ones here.
    disk = create_disk()
    disk.make_directory("/e")
    create_durable_file(disk, b"content")
    with pytest.raises(OSError) as failure:
        wrong(disk)
    assert failure.value.errno == number


def test_what_was_synced_survives_everything() -> None:
    # Proves: synced content under a synced name is the one certain thing.
    def prepare(disk: SimulatedDisk) -> None:
        file = create_durable_file(disk, b"one")
        file.append(b" two")
        file.write_at(0, b"O")
        file.fsync()

    assert list_contents_after_power_cuts(prepare) == {b"One two"}


def test_a_name_needs_an_fsync_of_its_directory() -> None:
    # Proves: a new file, a rename and an unlink without one may come out either way.
    def create(disk: SimulatedDisk) -> None:
        file = disk.open("/d/f", create=True)
        file.append(b"synced")
        file.fsync()

    def rename(disk: SimulatedDisk) -> None:
        create_durable_file(disk, b"new", "/d/g")
        create_durable_file(disk, b"old")
        disk.rename("/d/g", "/d/f")

    def unlink(disk: SimulatedDisk) -> None:
        create_durable_file(disk, b"back")
        disk.unlink("/d/f")

    assert list_contents_after_power_cuts(create) == {None, b"synced"}
    assert list_contents_after_power_cuts(rename) == {b"old", b"new"}
    assert list_contents_after_power_cuts(unlink) == {None, b"back"}


def test_changes_of_names_survive_in_any_combination() -> None:
    # Proves: a later change may survive where an earlier one is lost.
    combinations = set()
    for seed in SEEDS:
        disk = create_disk(seed)
        disk.open("/d/a", create=True)
        disk.open("/d/b", create=True)
        disk.crash(lose_unsynced=True)
        combinations.add(tuple(disk.list("/d")))
    assert combinations == {(), ("a",), ("b",), ("a", "b")}


def test_a_rename_is_one_change() -> None:
    # Proves: a file is under its old or its new name, never under both or none, also across directories.
    for seed in SEEDS:
        disk = create_disk(seed)
        disk.make_directory("/e")
        create_durable_file(disk, b"content")
        disk.rename("/d/f", "/e/g")
        disk.crash(lose_unsynced=True)
        assert disk.exists("/d/f") != disk.exists("/e/g")


def test_unsynced_appends_may_be_lost_torn_or_reordered() -> None:
    # Proves: every kind of damage that recovery must survive does happen.
    first, second = b"a" * 700, b"b" * 700

    def prepare(disk: SimulatedDisk) -> None:
        file = create_durable_file(disk, b"kept ")
        file.append(first)
        file.append(second)

    outcomes = list_contents_after_power_cuts(prepare)
    whole = b"kept " + first + second
    assert all(outcome is not None and outcome.startswith(b"kept") for outcome in outcomes)
    contents = [outcome for outcome in outcomes if outcome is not None]
    assert b"kept " in contents and b"kept " + first in contents and whole in contents
    assert b"kept " + bytes(700) + second in contents, "the later write landed, the earlier did not"
    assert any(content[:SECTOR] == whole[:SECTOR] and content[SECTOR:600] == bytes(88) for content in contents)
    assert any(content.endswith(b"\0") and whole.startswith(content.rstrip(b"\0")) for content in contents)
    assert len(contents) > 20


def test_a_truncation_may_be_lost() -> None:
    # Proves: what was cut off can come back, alone or under newer bytes.
    def prepare(disk: SimulatedDisk) -> None:
        file = create_durable_file(disk, b"0123456789")
        file.truncate(4)
        file.append(b"ab")

    assert {b"0123456789", b"0123ab", b"0123", b"0123ab6789"} <= list_contents_after_power_cuts(prepare)


def test_kill_keeps_the_page_cache() -> None:
    # Proves: the end of the process alone loses nothing; a power cut after it still may.
    for seed in range(20):
        disk = create_disk(seed)
        disk.open("/d/f", create=True).append(b"cached")
        disk.crash(lose_unsynced=False)
        assert disk.read("/d/f") == b"cached"

    def kill_first(disk: SimulatedDisk) -> None:
        disk.open("/d/f", create=True).append(b"cached")
        disk.crash(lose_unsynced=False)

    assert {None, b"cached"} <= list_contents_after_power_cuts(kill_first)


def test_after_a_power_cut_what_is_there_is_certain() -> None:
    # Proves: a second power cut right after the first changes nothing more.
    for seed in SEEDS:
        disk = create_disk(seed)
        disk.open("/d/f", create=True).append(b"x" * 2000)
        disk.crash(lose_unsynced=True)
        before = [(name, disk.read(f"/d/{name}")) for name in disk.list("/d")]
        disk.crash(lose_unsynced=True)
        assert [(name, disk.read(f"/d/{name}")) for name in disk.list("/d")] == before


def test_replace_is_atomic_at_every_operation() -> None:
    # Proves: wherever the process or the power ends, the whole old or the whole new content is there.
    probe = create_disk()
    probe.replace("/d/f", b"old" * 500)
    before = probe.operations
    probe.replace("/d/f", b"new" * 500)
    for operation in range(before + 1, probe.operations + 1):
        for seed in range(30):
            disk = create_disk(seed)
            disk.replace("/d/f", b"old" * 500)
            disk.crash_at(operation)
            with pytest.raises(Crashed):
                disk.replace("/d/f", b"new" * 500)
            disk.crash(lose_unsynced=seed % 2 == 0)
            assert disk.read("/d/f") in (b"old" * 500, b"new" * 500)
            disk.replace("/d/f", b"again")
            assert disk.read("/d/f") == b"again"


def test_operations_are_counted_and_traced() -> None:
    # Proves: every change has its number and its position in the trace; looking changes nothing.
    disk = create_disk()
    start = disk.operations
    disk.replace("/d/f", b"x")
    assert list(disk.trace)[start:] == [
        ("create", "/d/f.tmp"),
        ("append", "/d/f.tmp"),
        ("fsync", "/d/f.tmp"),
        ("rename", "/d/f.tmp"),
        ("fsync_directory", "/d"),
    ]
    assert disk.operations == start + 5
    disk.read("/d/f")
    disk.list("/d")
    disk.open("/d/f").read_at(0, 1)
    assert disk.operations == start + 5


def test_a_dead_process_writes_nothing() -> None:
    # Proves: after a crash no clean-up code reaches the disk, and files of the dead process stay dead.
    disk = create_disk()
    file = create_durable_file(disk, b"kept")
    disk.crash_at(disk.operations + 1)
    with pytest.raises(Crashed):
        disk.unlink("/d/f")
    late: list[Callable[[], object]] = [
        lambda: file.append(b"!"),
        file.fsync,
        lambda: disk.unlink("/d/f"),
        lambda: disk.replace("/d/g", b""),
        lambda: disk.read("/d/f"),
    ]
    for use in late:
        with pytest.raises(Crashed):
            use()
    disk.crash(lose_unsynced=False)
    with pytest.raises(Crashed):
        file.append(b"!")
    assert disk.read("/d/f") == b"kept" and list(disk.list("/d")) == ["f"]


def test_a_crash_in_a_write_tears_it() -> None:
    # Proves: kill -9 in the middle of an append leaves any prefix of it.
    lengths = set()
    for seed in SEEDS:
        disk = create_disk(seed)
        file = create_durable_file(disk, b"")
        disk.crash_at(disk.operations + 1)
        with pytest.raises(Crashed):
            file.append(b"12345")
        disk.crash(lose_unsynced=False)
        content = disk.read("/d/f")
        assert b"12345".startswith(content)
        lengths.add(len(content))
    assert lengths == set(range(6))


def test_faults_hit_only_matching_operations_and_paths() -> None:
    # Proves: a full disk fails matching appends, with any prefix written, until it is healed, and nothing else.
    disk = create_disk(3)
    log, index = create_durable_file(disk, b"", "/d/0.log"), create_durable_file(disk, b"", "/d/0.index")
    disk.fail("append", errno.ENOSPC, "*.log", times=None)
    sizes = set()
    for _ in range(30):
        with pytest.raises(OSError) as failure:
            log.append(b"abc")
        assert failure.value.errno == errno.ENOSPC
        sizes.add(log.size)
        log.truncate(0)
    assert sizes == {0, 1, 2, 3}
    index.append(b"fine")
    disk.heal()
    log.append(b"abc")
    assert log.size == 3
    disk.fail("read_at", errno.EIO)
    with pytest.raises(OSError):
        log.read_at(0, 1)
    assert log.read_at(0, 1) == b"a"


def test_a_numbered_operation_fails_once() -> None:
    # Proves: the n-th operation fails with the exception given, once, and has no effect.
    disk = create_disk()
    create_durable_file(disk, b"x")
    disk.fail_at(disk.operations + 2, PermissionError("no"))
    disk.open("/d/g", create=True)
    with pytest.raises(PermissionError):
        disk.unlink("/d/f")
    assert disk.exists("/d/f")
    disk.unlink("/d/f")


def test_a_failed_fsync_loses_data_for_good() -> None:
    # Proves: the file itself never syncs again, and a fresh one that seems to is no proof of anything.
    contents = set()
    for seed in SEEDS:
        disk = create_disk(seed)
        file = create_durable_file(disk, b"old ")
        file.append(b"new")
        disk.fail("fsync", errno.EIO)
        for _ in range(2):
            with pytest.raises(OSError):
                file.fsync()
        assert file.read_at(0, 10) == b"old new"
        disk.open("/d/f").fsync()
        disk.crash(lose_unsynced=True)
        contents.add(disk.read("/d/f"))
    assert {b"old ", b"old new"} <= contents


def test_a_lock_has_one_holder_and_a_crash_frees_it() -> None:
    # Proves: one holder at a time, free after close and after any crash; a stale holder cannot free a new one's.
    disk = create_disk()
    stale = disk.lock("/d/.lock")
    with pytest.raises(BlockingIOError):
        disk.lock("/d/.lock")
    disk.crash(lose_unsynced=False)
    held = disk.lock("/d/.lock")
    stale.close()
    with pytest.raises(BlockingIOError):
        disk.lock("/d/.lock")
    held.close()
    disk.lock("/d/.lock")


def test_an_unpinned_file_is_found_by_its_path() -> None:
    # Proves: use after a rename without a new path, or after deletion without a pin, is caught; pins keep files alive.
    disk = create_disk()
    file = create_durable_file(disk, b"content")
    disk.rename("/d/f", "/d/g")
    with pytest.raises(FileNotFoundError):
        file.read_at(0, 1)
    file.path = "/d/g"
    file.pin()
    disk.unlink("/d/g")
    file.close()
    assert file.read_at(0, 7) == b"content"
    file.unpin()
    with pytest.raises(OSError) as failure:
        file.read_at(0, 7)
    assert failure.value.errno == errno.EBADF


def test_a_file_with_two_names_is_one_file() -> None:
    # Proves: both names tell the same after a power cut that took the first of two renames and not the second.
    seen = 0
    for seed in SEEDS:
        disk = create_disk(seed)
        file = create_durable_file(disk, b"")
        disk.rename("/d/f", "/d/g")
        disk.rename("/d/g", "/d/h")
        file.path = "/d/h"
        file.append(b"x" * 1500)
        disk.crash(lose_unsynced=True)
        if disk.exists("/d/f") and disk.exists("/d/h"):
            seen += 1
            assert disk.read("/d/f") == disk.read("/d/h")
    assert seen


def test_the_same_seed_gives_the_same_disk() -> None:
    # Proves: nothing but the seed decides.
    def run(seed: int) -> list[tuple[str, bytes]]:
        disk = create_disk(seed)
        for number in range(5):
            file = disk.open(f"/d/{number}", create=True)
            file.append(b"%d" % number * 999)
            if number % 2:
                file.fsync()
        disk.crash(lose_unsynced=True)
        return [(name, disk.read(f"/d/{name}")) for name in disk.list("/d")]

    assert all(run(seed) == run(seed) for seed in range(20))
    assert len({str(run(seed)) for seed in range(20)}) > 5
