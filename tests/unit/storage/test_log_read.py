"""How much of a log one fetch returns."""

from ottla.records import batch
from tests.unit.storage.logs import append, batch_of, new_disk, new_log


def test_a_large_answer_ends_with_a_whole_batch() -> None:
    # A partial batch is of no use to a client, and is left out if there is a whole one before it. Every offset can
    # still be reached.
    log = new_log(new_disk())
    for _ in range(8):
        append(log, batch_of(bytes(30_000)))
    offset = 0
    for whole in (3, 3, 2):
        read = log.read(offset, 100_000, up_to=8, at_least_one=True)
        assert read is not None and read.base_offset == offset
        sizes = [header.size for _, header in batch.headers(read.slice.read())]
        assert len(sizes) == whole and sum(sizes) == read.slice.length
        offset += whole


def test_a_large_answer_of_small_batches_loses_no_more_than_an_index_interval() -> None:
    # A batch is only known to begin where the index has an entry, so the answer ends there, near the limit.
    log = new_log(new_disk())
    for _ in range(300):
        append(log, batch_of(bytes(1_000)))
    read = log.read(0, 100_000, up_to=300, at_least_one=True)
    assert read is not None and 100_000 - 6_000 < read.slice.length <= 100_000
    sizes = [header.size for _, header in batch.headers(read.slice.read())]
    assert sum(sizes) == read.slice.length


def test_a_first_batch_above_the_limit_comes_whole() -> None:
    # Otherwise a client could never get past a batch that is larger than its limit.
    log = new_log(new_disk())
    append(log, batch_of(bytes(200_000)))
    append(log, batch_of(bytes(200_000)))
    read = log.read(0, 70_000, up_to=2, at_least_one=True)
    assert read is not None and [header.base_offset for _, header in batch.headers(read.slice.read())] == [0]
    assert log.read(0, 70_000, up_to=2, at_least_one=False) is None
