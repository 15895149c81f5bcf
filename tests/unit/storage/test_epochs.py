"""Leader epochs: which leader wrote which records, and where two histories diverge."""

import pytest

from ottla.storage.epochs import LeaderEpochs
from tests.unit.storage.logs import new_disk

PATH = "/leader-epoch-checkpoint"


def epochs(*entries: tuple[int, int]) -> LeaderEpochs:
    found = LeaderEpochs(new_disk(), PATH)
    for epoch, start in entries:
        found.assign(epoch, start)
    return found


def test_the_file_has_the_format_of_kafka() -> None:
    disk = new_disk()
    written = LeaderEpochs(disk, PATH)
    written.assign(0, 0)
    written.assign(4, 17)
    written.save()
    assert disk.read(PATH) == b"0\n2\n0 0\n4 17\n"
    read = LeaderEpochs.load(disk, PATH)
    assert read.entries == [(0, 0), (4, 17)] and read.latest == 4 and not read.is_dirty


def test_nothing_is_written_without_a_change() -> None:
    disk = new_disk()
    found = LeaderEpochs(disk, PATH)
    found.assign(1, 5)
    found.save()
    operations = disk.operations
    found.assign(1, 9)
    found.save()
    assert disk.operations == operations and found.entries == [(1, 5)]


def test_an_entry_that_contradicts_older_ones_replaces_them() -> None:
    # An epoch without records is replaced by the next, and epochs of a truncated tail are removed.
    assert epochs((1, 0), (2, 10), (3, 10)).entries == [(1, 0), (3, 10)]
    assert epochs((1, 0), (2, 10), (3, 20), (4, 5)).entries == [(1, 0), (4, 5)]
    assert epochs((1, 0), (5, 10), (3, 20)).entries == [(1, 0), (3, 20)]
    with pytest.raises(ValueError):
        epochs((-1, 0))


def test_an_epoch_goes_on_after_one_without_records() -> None:
    # A leader of epoch 5 that wrote nothing copies further records of epoch 4 from the next leader.
    assert epochs((3, 0), (4, 1), (5, 5), (4, 5)).entries == [(3, 0), (4, 1)]
    assert epochs((3, 0), (4, 1), (5, 5), (6, 5), (4, 5), (6, 7)).entries == [(3, 0), (4, 1), (6, 7)]


@pytest.mark.parametrize(
    ("asked", "answer"),
    [(-1, (-1, -1)), (1, (1, 10)), (2, (2, 20)), (3, (2, 20)), (4, (2, 20)), (5, (5, 33)), (6, (-1, -1))],
)
def test_where_an_epoch_ends(asked: int, answer: tuple[int, int]) -> None:
    # As OffsetForLeaderEpoch answers: epoch 2 starts at 10, epoch 5 at 20, and the log ends at 33.
    assert epochs((2, 10), (5, 20)).end_offset_for(asked, 33) == answer


def test_a_log_without_epochs_cannot_tell() -> None:
    assert epochs().end_offset_for(0, 33) == (-1, -1)
    assert epochs().epoch_at(3) == -1


def test_the_epoch_of_an_offset() -> None:
    found = epochs((2, 10), (5, 20))
    assert [found.epoch_at(offset) for offset in (9, 10, 19, 20, 100)] == [-1, 2, 2, 5, 5]


def test_truncation_at_both_ends() -> None:
    found = epochs((1, 0), (2, 10), (5, 20))
    found.truncate_from_end(20)
    assert found.entries == [(1, 0), (2, 10)] and found.latest == 2
    found = epochs((1, 0), (2, 10), (5, 20))
    found.truncate_from_start(0)
    assert found.entries == [(1, 0), (2, 10), (5, 20)]
    found.truncate_from_start(15)
    assert found.entries == [(2, 15), (5, 20)]
    found.truncate_from_start(20)
    assert found.entries == [(5, 20)]
    found.clear()
    assert found.entries == [] and found.latest == -1
