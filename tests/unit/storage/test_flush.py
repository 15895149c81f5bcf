"""After a failed fsync in one process: a later fsync proves nothing, unless the bytes are written again first."""

import errno
from random import Random

import pytest

from ottla.storage.flush import write_again
from tests.simulation.disk import SimulatedDisk

CONTENT = b"old and durable, " + b"new and doubtful" * 10


def after_a_power_cut(seed: int, *, again: bool) -> bytes:
    """A file after a power cut. One process could not sync its end, the next one synced it without an error."""
    disk = SimulatedDisk(Random(seed))
    disk.make_directory("/d")
    file = disk.open("/d/f", create=True)
    file.append(CONTENT[:17])
    file.fsync()
    disk.fsync_directory("/d")
    file.append(CONTENT[17:])
    disk.fail("fsync", errno.EIO)
    with pytest.raises(OSError):
        file.fsync()
    disk.crash(lose_unsynced=False)
    found = disk.open("/d/f")
    if again:
        write_again(found, 0)
    found.fsync()
    disk.crash(lose_unsynced=True)
    return disk.read("/d/f")


def test_bytes_that_were_written_again_are_durable_after_the_next_fsync() -> None:
    assert {after_a_power_cut(seed, again=True) for seed in range(30)} == {CONTENT}


def test_without_writing_again_a_successful_fsync_is_no_proof() -> None:
    # Otherwise the test above would show nothing.
    assert {after_a_power_cut(seed, again=False) for seed in range(30)} != {CONTENT}
