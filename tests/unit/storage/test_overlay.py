"""A disk over another disk: it always shows what a plain disk would, and the disk below never changes."""

import errno
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla.storage.files import Disk, RealDisk
from ottla.storage.overlay import OverlayDisk
from tests.unit.storage.logs import DIRECTORY, fill, new_disk, new_log, open_log, records

NAMES = ("a", "b", "c/x", "c/y", "d/z")

Step = tuple[str, str, str, int, bytes]
steps = st.lists(
    st.tuples(
        st.sampled_from(["append", "truncate", "write", "rename", "unlink", "replace", "mkdir", "rmdir"]),
        st.sampled_from([*NAMES, "c", "d"]),
        st.sampled_from([*NAMES, "e"]),
        st.integers(0, 12),
        st.binary(max_size=6),
    ),
    max_size=30,
)


def seeded(home: Path) -> None:
    for name in NAMES[:4]:
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_bytes(name.encode() * 3)


def take(disk: Disk, home: str, step: Step) -> str:
    """Run a step. Returns how it ended."""
    kind, name, other, number, data = step
    path, target = f"{home}/{name}", f"{home}/{other}"
    if kind == "replace" and name in ("c", "d"):
        return "a directory"  # a plain disk notices this too late, and leaves its temporary file
    try:
        match kind:
            case "mkdir":
                return "made" if disk.make_directory(path) else "was there"
            case "rmdir":
                disk.remove_directory(path)
            case "rename":
                if disk.exists(target) and path != target:
                    return "two names"  # no broker relies on what happens to a directory in the way
                disk.rename(path, target)
            case "unlink":
                disk.unlink(path)
            case "replace":
                disk.replace(path, data)
            case _:
                file = disk.open(path, create=True)
                if kind == "append":
                    file.append(data)
                elif kind == "truncate":
                    file.truncate(number)
                elif number <= file.size:
                    file.write_at(number, data)
                file.close()
    except OSError:
        return "refused"
    return "done"


def tree(disk: Disk, path: str) -> dict[str, bytes | None]:
    found: dict[str, bytes | None] = {}
    for name in disk.list(path):
        inner = f"{path}/{name}"
        try:
            below = tree(disk, inner)
            found[name] = None
            found |= {f"{name}/{deeper}": content for deeper, content in below.items()}
        except NotADirectoryError:
            found[name] = disk.read(inner)
            assert disk.size(inner) == len(found[name] or b"")
    return found


@given(steps)
@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_it_shows_what_a_plain_disk_would_and_changes_nothing_below(
    tmp_path_factory: pytest.TempPathFactory, script: list[Step]
) -> None:
    plain_home, below_home = tmp_path_factory.mktemp("plain"), tmp_path_factory.mktemp("below")
    seeded(plain_home)
    seeded(below_home)
    plain, below = RealDisk(), RealDisk()
    untouched = tree(below, str(below_home))
    overlay = OverlayDisk(below)
    for step in script:
        assert take(overlay, str(below_home), step) == take(plain, str(plain_home), step), step
        assert tree(overlay, str(below_home)) == tree(plain, str(plain_home))
    assert tree(RealDisk(), str(below_home)) == untouched


def test_an_unchanged_file_is_sent_from_the_disk_below(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"0123456789")
    file = OverlayDisk(RealDisk()).open(str(tmp_path / "f"))
    assert file.pin() is not None
    file.unpin()
    file.append(b"!")
    assert file.pin() is None
    assert file.read_at(8, 10) == b"89!"


def test_memory_is_bounded_like_a_disk(tmp_path: Path) -> None:
    disk = OverlayDisk(RealDisk(), memory_bytes_max=10)
    file = disk.open(str(tmp_path / "f"), create=True)
    file.append(b"12345678")
    with pytest.raises(OSError, match="limit") as full:
        file.append(b"123")
    assert full.value.errno == errno.ENOSPC
    assert (file.size, disk.space(str(tmp_path)).usable) == (8, 2)
    disk.unlink(str(tmp_path / "f"))
    assert disk.space(str(tmp_path)).usable == 10


def test_a_log_that_was_torn_recovers_in_memory(seed: int) -> None:
    # The overlay shows a log that ends with its last valid batch. The torn bytes stay on the disk below.
    below = new_disk(seed)
    log = new_log(below)
    fill(log, [b"value %d" % number for number in range(20)])
    whole = records(log)
    log.abandon()
    name = f"{DIRECTORY}/00000000000000000000.log"
    torn = below.size(name) - Random(seed).randrange(1, 60)
    file = below.open(name)
    file.truncate(torn)
    opened = open_log(OverlayDisk(below))  # type: ignore[arg-type]
    assert records(opened) == whole[:-1]
    opened.close()
    assert below.size(name) == torn
    assert not [name for name in below.list(DIRECTORY) if name.endswith(".index")]
