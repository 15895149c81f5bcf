"""The file layer on the operating system: few descriptors for many files, pins, short writes, failed fsyncs, locks."""

import errno
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Thread

import pytest

from ottla.storage import files
from ottla.storage.files import FileSlice, RealDisk

HOLDER = """
import sys
from ottla.storage.files import RealDisk
held = RealDisk().lock(sys.argv[1])
print("held", flush=True)
input()
"""


@pytest.fixture
def disk() -> RealDisk:
    return RealDisk(descriptors=4)


def at(folder: Path, name: str) -> str:
    return str(folder / name)


def count_descriptors(folder: Path) -> int:
    """Of files below the folder: other tests of this process may have left connections that are being closed."""
    count = 0
    for each in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the one of this directory
            count += each.readlink().is_relative_to(folder)
    return count


def test_append_read_write_truncate(disk: RealDisk, tmp_path: Path) -> None:
    # Proves: the basic operations, and that the size kept in memory is the real one.
    file = disk.open(at(tmp_path, "a"), create=True)
    file.append(b"hello ")
    file.append(memoryview(bytearray(b"world")))
    assert file.read_at(0, 100) == b"hello world" and file.size == 11
    file.write_at(6, b"W")
    file.write_at(11, b"!")
    assert file.read_at(4, 4) == b"o Wo" and file.size == 12
    file.truncate(5)
    file.append(b", you")
    assert disk.read(file.path) == b"hello, you" and file.size == disk.size(file.path) == 10
    assert file.read_at(10, 5) == b"" and file.read_at(50, 5) == b""
    assert FileSlice(file, 7, 3).read() == b"you"


def test_reading_past_the_end_takes_no_memory(disk: RealDisk, tmp_path: Path) -> None:
    # Proves: a length from a damaged header does not become an allocation.
    file = disk.open(at(tmp_path, "a"), create=True)
    file.append(b"x")
    assert file.read_at(0, 2**40) == b"x"


def test_a_file_must_exist_unless_it_is_created(disk: RealDisk, tmp_path: Path) -> None:
    # Proves: a missing file is not created by accident, and a read-only one cannot be written.
    with pytest.raises(FileNotFoundError):
        disk.open(at(tmp_path, "a"))
    with pytest.raises(FileNotFoundError):
        disk.open_read(at(tmp_path, "a"))
    writer = disk.open(at(tmp_path, "a"), create=True)
    reader = disk.open_read(at(tmp_path, "a"))
    with pytest.raises(OSError):
        reader.append(b"x")
    writer.append(b"later")
    assert reader.read_at(0, 10) == b"later"


def test_many_files_need_few_descriptors(disk: RealDisk, tmp_path: Path) -> None:
    # Proves: a hundred open files share four descriptors, and all of them work.
    opened = [disk.open(at(tmp_path, f"{number}"), create=True) for number in range(100)]
    for _ in range(3):
        for number, file in enumerate(opened):
            file.append(b"%d " % number)
            assert disk.open_files <= 4
    assert 0 < count_descriptors(tmp_path) <= 4
    for number, file in enumerate(opened):
        file.fsync()
        assert file.read_at(0, 100) == b"%d " % number * 3
        file.close()
    assert disk.open_files == 0 and count_descriptors(tmp_path) == 0


def test_a_file_in_use_keeps_its_descriptor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Proves: a file in constant use is not reopened again and again because of many others that are used once.
    disk = RealDisk(descriptors=4)
    busy = disk.open(at(tmp_path, "busy"), create=True)
    opened: list[str] = []
    system_open = os.open

    def counting(path: str, flags: int, mode: int = 0o777) -> int:
        opened.append(path)
        return system_open(path, flags, mode)

    monkeypatch.setattr(os, "open", counting)
    for number in range(50):
        busy.append(b"x")
        disk.open(at(tmp_path, f"{number}"), create=True)
    assert busy.path not in opened


def test_pinned_files_are_never_closed(disk: RealDisk, tmp_path: Path) -> None:
    # Proves: a descriptor that is being sent stays the same file, however many others are opened.
    pinned = [disk.open(at(tmp_path, f"p{number}"), create=True) for number in range(6)]
    descriptors = []
    for file in pinned:
        file.append(file.path.encode())
        descriptors.append(file.pin())
    for number in range(20):
        disk.open(at(tmp_path, f"{number}"), create=True).append(b"x")
    for file, descriptor in zip(pinned, descriptors, strict=True):
        assert os.pread(descriptor, 1000, 0) == file.path.encode()
        file.unpin()
    disk.open(at(tmp_path, "last"), create=True)
    for number in range(20):
        disk.open(at(tmp_path, f"{number}"))
    assert disk.open_files <= 4


def test_a_file_deleted_and_closed_while_pinned_stays_readable(disk: RealDisk, tmp_path: Path) -> None:
    # Proves: a send in progress is not cut by retention, and the descriptor goes with the last unpin.
    file = disk.open(at(tmp_path, "a"), create=True)
    file.append(b"still here")
    descriptor = file.pin()
    assert file.pin() == descriptor
    disk.unlink(file.path)
    file.close()
    for _ in range(2):
        assert os.pread(descriptor, 100, 0) == b"still here"
        file.unpin()
    assert disk.open_files == 0
    with pytest.raises(OSError):
        os.fstat(descriptor)


def test_a_closed_file_says_so(disk: RealDisk, tmp_path: Path) -> None:
    # Proves: use after close raises OSError, and is no operation on another file's descriptor. Closing twice is fine.
    file = disk.open(at(tmp_path, "a"), create=True)
    file.close()
    file.close()
    uses: list[Callable[[], object]] = [file.pin, file.fsync, lambda: file.append(b"x"), lambda: file.read_at(0, 1)]
    for use in uses:
        with pytest.raises(OSError) as failure:
            use()
        assert failure.value.errno == errno.EBADF


def test_a_renamed_file_is_found_at_its_new_path(tmp_path: Path) -> None:
    # Proves: a file whose descriptor was closed to save descriptors is reopened by its new path.
    disk = RealDisk(descriptors=1)
    file = disk.open(at(tmp_path, "a"), create=True)
    file.append(b"one ")
    disk.rename(file.path, at(tmp_path, "b"))
    file.path = at(tmp_path, "b")
    disk.open(at(tmp_path, "other"), create=True)
    file.append(b"two")
    assert disk.read(at(tmp_path, "b")) == b"one two" and not disk.exists(at(tmp_path, "a"))


def test_a_deleted_file_is_not_created_again(tmp_path: Path) -> None:
    # Proves: use of a deleted file whose descriptor was closed fails, instead of creating an empty one.
    disk = RealDisk(descriptors=1)
    file = disk.open(at(tmp_path, "a"), create=True)
    file.append(b"content")
    disk.unlink(file.path)
    disk.open(at(tmp_path, "other"), create=True)
    with pytest.raises(FileNotFoundError):
        file.append(b"more")
    assert not disk.exists(file.path)


def test_short_writes_are_continued(disk: RealDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Proves: if the system writes a few bytes at a time, all of them are still written, in order.
    system_write = os.pwrite

    def short(descriptor: int, data: bytes, position: int) -> int:
        return system_write(descriptor, bytes(data[:3]), position)

    monkeypatch.setattr(os, "pwrite", short)
    file = disk.open(at(tmp_path, "a"), create=True)
    file.append(b"hello world")
    file.write_at(0, b"HELLO")
    assert disk.read(file.path) == b"HELLO world" and file.size == 11


def test_a_failed_append_leaves_the_size(disk: RealDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Proves: after a full disk in the middle of a write, truncating to the known size and going on works.
    file = disk.open(at(tmp_path, "a"), create=True)
    file.append(b"kept")
    system_write = os.pwrite

    def full(descriptor: int, data: bytes, position: int) -> int:
        if position > 4:
            raise OSError(errno.ENOSPC, "no space")
        return system_write(descriptor, bytes(data[:2]), position)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(OSError):
            file.append(b"lost")
    assert file.size == 4 and disk.read(file.path) == b"keptlo"
    file.truncate(file.size)
    file.append(b" and more")
    assert disk.read(file.path) == b"kept and more"


def test_a_failed_fsync_is_never_forgotten(disk: RealDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Proves: after one EIO no later fsync of the file counts as success.
    file = disk.open(at(tmp_path, "a"), create=True)

    def broken(descriptor: int) -> None:
        raise OSError(errno.EIO, "lost")

    with monkeypatch.context() as patch:
        patch.setattr(files, "_sync", broken)
        with pytest.raises(OSError):
            file.fsync()
    with pytest.raises(OSError, match="earlier fsync") as failure:
        file.fsync()
    assert failure.value.errno == errno.EIO


def test_the_pool_survives_a_process_without_descriptors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Proves: when the process has no descriptor left, the pool closes one of its own instead of failing.
    disk = RealDisk(descriptors=100)
    first = disk.open(at(tmp_path, "first"), create=True)
    system_open = os.open
    refusals = iter([True, False])

    def exhausted(path: str, flags: int, mode: int = 0o777) -> int:
        if next(refusals):
            raise OSError(errno.EMFILE, "too many open files")
        return system_open(path, flags, mode)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", exhausted)
        disk.open(at(tmp_path, "second"), create=True).append(b"x")
    assert disk.open_files == 1
    first.append(b"y")
    assert disk.read(first.path) == b"y"


def test_fsync_in_a_thread_while_descriptors_change_hands(tmp_path: Path) -> None:
    # Proves: fsyncs and reads in threads never use a descriptor that was closed or belongs to another file.
    disk = RealDisk(descriptors=2)
    opened = [disk.open(at(tmp_path, f"{number}"), create=True) for number in range(8)]
    failures: list[BaseException] = []
    done = False

    def disturb(number: int) -> None:
        try:
            while not done:
                for file in opened[number::2]:
                    file.fsync()
                    content = file.read_at(0, 1 << 20)
                    assert content == file.path[-1:].encode() * len(content)
        except BaseException as failure:
            failures.append(failure)

    threads = [Thread(target=disturb, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(200):
        for file in opened:
            file.append(file.path[-1:].encode() * 10)
    done = True
    for thread in threads:
        thread.join()
    assert not failures
    assert [disk.size(file.path) for file in opened] == [2000] * 8


def test_replace_is_all_or_nothing(disk: RealDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Proves: the old content stays until the new one is complete and synced, and a stale temporary file is no obstacle.
    path = at(tmp_path, "checkpoint")
    disk.replace(path, b"old")
    (tmp_path / "checkpoint.tmp").write_bytes(b"left over from a crash, and longer")

    def broken(descriptor: int) -> None:
        raise OSError(errno.EIO, "lost")

    with monkeypatch.context() as patch:
        patch.setattr(files, "_sync", broken)
        with pytest.raises(OSError):
            disk.replace(path, b"new")
    assert disk.read(path) == b"old"
    disk.replace(path, b"new")
    assert disk.read(path) == b"new" and disk.list(str(tmp_path)) == ["checkpoint"]


def test_new_entries_reach_their_directories(disk: RealDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Proves: every directory that got a new entry is fsynced, and the content of a replaced file before its name.
    calls: list[str] = []
    monkeypatch.setattr(disk, "fsync_directory", lambda path: calls.append(os.path.relpath(path, tmp_path)))
    assert disk.make_directory(at(tmp_path, "a/b/c"))
    assert calls == [".", "a", "a/b"]
    assert not disk.make_directory(at(tmp_path, "a/b/c"))
    assert calls == [".", "a", "a/b"]
    monkeypatch.setattr(files, "_sync", lambda descriptor: calls.append("content"))
    disk.replace(at(tmp_path, "a/file"), b"x")
    assert calls[3:] == ["content", "a"]


def test_a_file_in_the_way_of_a_directory_is_an_error(disk: RealDisk, tmp_path: Path) -> None:
    disk.replace(at(tmp_path, "file"), b"x")
    for path in ("file", "file/d"):
        with pytest.raises(OSError):
            disk.make_directory(at(tmp_path, path))


def test_directories_and_names(disk: RealDisk, tmp_path: Path) -> None:
    # Proves: a list is sorted, and a directory can be removed only when it is empty.
    disk.make_directory(at(tmp_path, "d"))
    for name in ("b", "a", "c"):
        disk.replace(at(tmp_path, f"d/{name}"), name.encode())
    disk.fsync_directory(at(tmp_path, "d"))
    assert list(disk.list(at(tmp_path, "d"))) == ["a", "b", "c"] and disk.read(at(tmp_path, "d/a")) == b"a"
    with pytest.raises(OSError):
        disk.remove_directory(at(tmp_path, "d"))
    for name in disk.list(at(tmp_path, "d")):
        disk.unlink(at(tmp_path, f"d/{name}"))
    disk.remove_directory(at(tmp_path, "d"))
    with pytest.raises(FileNotFoundError):
        disk.list(at(tmp_path, "d"))
    with pytest.raises(FileExistsError):
        disk.replace(at(tmp_path, "file"), b"")
        disk.make_directory(at(tmp_path, "file"))


def test_a_lock_has_one_holder(disk: RealDisk, tmp_path: Path) -> None:
    # Proves: neither this process nor another gets the lock twice, and it is free again after close.
    path = at(tmp_path, ".lock")
    held = disk.lock(path)
    with pytest.raises(BlockingIOError):
        RealDisk().lock(path)
    held.close()
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    ) as other:
        assert other.stdout is not None and other.stdout.readline() == "held\n"
        with pytest.raises(BlockingIOError):
            disk.lock(path)
        other.kill()
        other.wait()
    disk.lock(path).close()


def test_the_share_of_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    # Proves: the pool takes a part of what the process may open, within sensible limits.
    for allowed, expected in ((256, 64), (1024, 256), (1 << 20, 1024), (resource.RLIM_INFINITY, 1024)):
        monkeypatch.setattr(resource, "getrlimit", lambda _, allowed=allowed: (allowed, allowed))
        assert RealDisk()._descriptors._limit == expected
