"""Files of dropped segments wait under names of their own, however often a segment is replaced."""

from pathlib import Path

from ottla.storage import names
from ottla.storage.files import RealDisk
from ottla.storage.removal import Doomed, Removal, doom_file


def test_a_segment_that_is_compacted_again_and_again_gets_names_that_a_disk_takes(tmp_path: Path) -> None:
    # A name has 255 bytes at most. An ending for each time was too long after 28 compactions.
    disk = RealDisk()
    path = tmp_path / "00000000000000000000.timeindex"
    doomed: list[Doomed] = []
    for _ in range(50):
        path.touch()
        doom_file(disk, str(path), None, doomed)
    waiting = sorted(each.name for each in tmp_path.iterdir())
    assert len(waiting) == 50
    assert all(name.endswith(names.DELETED) for name in waiting)
    Removal(disk, doomed).run()
    assert not list(tmp_path.iterdir())
