"""The process or the machine ends at every single disk operation of a compaction: no record that counts is lost.

After each crash the log is opened, read, compacted again and read again.
"""

from itertools import pairwise

import pytest

from ottla.storage import names
from ottla.storage.log import Log
from ottla.storage.scan import scan
from tests.samples import choose_sample
from tests.simulation.disk import Crashed, SimulatedDisk
from tests.unit.storage.cleaner.compactions import SETTINGS, compact, contents, end_transaction, pairs, put, stored
from tests.unit.storage.logs import DIRECTORY, NOW, append, new_disk, new_log, open_log, records

KEYS = 5
SEEDS = 3
"""A power cut leaves random parts of unsynced writes, so each one is tried several times."""
UNFINISHED = (names.CLEANED, names.SWAP, names.DELETED)


def filled(disk: SimulatedDisk) -> Log:
    """A log of several segments with duplicates, a deleted key, a committed and an aborted transaction."""
    log = new_log(disk, SETTINGS)
    append(log, pairs(("k1", "aborted"), ("gone", "aborted"), producer_id=7, sequence=0, transactional=True))
    end_transaction(log, 7, commit=False)
    for turn in range(18):
        put(log, (f"k{turn % KEYS}", f"{turn}" + "." * 10))
        if turn % 3 == 0:
            put(log, (f"only {turn}", "stays"))
        if turn == 8:
            put(log, ("deleted", "value"))
            append(log, pairs(("k2", "committed"), producer_id=8, sequence=0, transactional=True))
            end_transaction(log, 8, commit=True)
    put(log, ("deleted", None))
    log.flush()
    log.roll(NOW)
    log.flush()
    return log


def latest(log: Log) -> dict[str, tuple[int, str | None]]:
    """The last value of each key that a read_committed consumer gets from the start."""
    aborted = log.aborted_transactions(0, log.end_offset)
    found: dict[str, tuple[int, str | None]] = {}
    for header, batch_records in stored(log):
        hidden = any(
            entry.producer_id == header.producer_id and entry.first_offset <= header.base_offset < entry.last_offset
            for entry in aborted
        )
        if header.is_control or (header.is_transactional and hidden):
            continue
        for record in batch_records:
            value = None if record.value is None else record.value.decode()
            found[(record.key or b"").decode()] = (record.offset, value)
    return {key: entry for key, entry in found.items() if entry[1] is not None}


def is_in_order(log: Log) -> bool:
    """Whether no segment has offsets of another, and each index leads to the batches of its own segment."""
    headers = [header for header, _ in stored(log)]
    places = [log.segments[0].locate(header.base_offset) for header in headers[:1]]
    for segment in log.segments:
        for position in segment.offset_index.positions:
            places.append(segment.locate(next(scan(segment.file, position, segment.size))[1].base_offset))
    follow = all(before.last_offset < after.base_offset for before, after in pairwise(headers))
    return follow and None not in places


def work(disk: SimulatedDisk, log: Log) -> None:
    """Compact, append, compact again: the second time the same segment is replaced once more."""
    compact(disk, log, delete_retention_ms=0, segment_bytes=1300)
    put(log, ("k0", "later"))
    put(log, ("k0", "later"))
    log.flush()
    compact(disk, log, delete_retention_ms=0, now_ms=NOW + 1, segment_bytes=3000)
    put(log, ("k0", "later"))
    put(log, ("k0", "later"))


def operations() -> range:
    disk = new_disk()
    log = filled(disk)
    first = disk.operations
    work(disk, log)
    return range(first + 1, disk.operations + 1)


@pytest.mark.parametrize("power_cut", [False, True])
def test_a_crash_in_any_operation_leaves_a_whole_log(power_cut: bool) -> None:
    points = operations()
    assert len(points) > 80
    crashes = [(point, seed) for point in points for seed in range(SEEDS if power_cut else 1)]
    for point, seed in choose_sample(crashes, 20):
        disk = new_disk(1000 * seed + point)
        log = filled(disk)
        expected, durable = latest(log), log.recovery_point
        disk.crash_at(point)
        with pytest.raises(Crashed):
            work(disk, log)
        disk.crash(lose_unsynced=power_cut)
        log = open_log(disk, SETTINGS, recovery_point=durable)
        later = latest(log)
        later.pop("k0"), expected.pop("k0")
        assert later == expected, point
        assert not [name for name in disk.list(DIRECTORY) if name.endswith(UNFINISHED)], point
        assert is_in_order(log), point
        assert log.log_start_offset == 0 and log.end_offset >= durable, point
        offsets = [record.offset for record in records(log)]
        assert offsets == sorted(set(offsets)), point
        again = latest(log)
        compact(disk, log, now_ms=NOW + 2)
        assert latest(log) == again, point
        log.close()
        assert latest(open_log(disk, SETTINGS, clean=True)) == again, point


def test_a_crash_during_recovery_leaves_a_whole_log() -> None:
    # The first crash is where files are renamed. Further crashes come later and later in the opening of the log.
    disk = new_disk()
    log = filled(disk)
    first = disk.operations
    work(disk, log)
    renames = [first + 1 + number for number, (name, _) in enumerate(list(disk.trace)[first:]) if name == "rename"]
    for point, seed in choose_sample([(point, seed) for point in renames for seed in range(SEEDS)], 6):
        disk = new_disk(1000 * seed + point)
        log = filled(disk)
        expected, durable = latest(log), log.recovery_point
        disk.crash_at(point)
        with pytest.raises(Crashed):
            work(disk, log)
        disk.crash(lose_unsynced=False)
        for further in range(2, 20):
            disk.crash_at(disk.operations + further)
            try:
                log = open_log(disk, SETTINGS, recovery_point=durable)
                break
            except Crashed:
                disk.crash(lose_unsynced=True)
        disk.heal()
        later = latest(log)
        later.pop("k0"), expected.pop("k0")
        assert later == expected and is_in_order(log), (point, seed)


def test_an_interrupted_swap_is_completed_by_file_names() -> None:
    # A .cleaned file alone is removed, a .swap without .cleaned is finished, and .deleted is removed.
    disk = new_disk()
    log = filled(disk)
    before = contents(log)
    log.close()
    base = f"{DIRECTORY}/{0:020d}"
    disk.replace(f"{base}.log.cleaned", b"half")
    disk.replace(f"{base}.index.swap", b"half of another")
    disk.replace(f"{DIRECTORY}/{3:020d}.log.deleted", b"old")
    log = open_log(disk, SETTINGS, clean=True)
    assert contents(log) == before
    assert not [name for name in disk.list(DIRECTORY) if name.endswith(UNFINISHED)]
