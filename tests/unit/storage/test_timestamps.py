"""Lookups by time are exact: compared with a list, over segments, codecs, append times, restarts and a moved log
start."""

from random import Random

import pytest

from ottla.records.batch import encode, set_append_time
from ottla.storage.log import Log, LogSettings
from ottla.storage.timestamps import find_time_at
from tests.unit.storage.logs import NOW, append, new_disk, new_log, open_log

SETTINGS = LogSettings(segment_bytes=900, index_interval_bytes=150)
CODECS = range(5)


def filled(log: Log, random: Random) -> list[tuple[int, int]]:
    """Offset and timestamp of each record. Times go up and down, within batches too, and some are equal."""
    times: list[tuple[int, int]] = []
    for number in range(40):
        stamps = [NOW + number * 10 + random.randint(-100, 100) for _ in range(random.randint(1, 4))]
        batch = encode([(None, bytes(30), (), stamp) for stamp in stamps], codec=random.choice(CODECS))
        if random.random() < 0.2:
            moment = NOW + number * 10
            set_append_time(memoryview(batch), moment)
            stamps = [moment] * len(stamps)
        base = append(log, batch).base_offset
        times += [(base + index, stamp) for index, stamp in enumerate(stamps)]
    assert len(log.segments) > 3
    return times


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("end", ["running", "closed", "crashed"])
def test_every_timestamp_is_found_as_in_a_list(seed: int, end: str) -> None:
    # A lookup finds the first record at or after each time. It finds nothing before the log start, which is in the
    # middle of a segment, and nothing that the reader may not see. The first with the largest timestamp is found in
    # all that the segments still hold.
    random, disk = Random(seed), new_disk(seed)
    log = new_log(disk, SETTINGS)
    times = filled(log, random)
    start = random.choice((0, 17, 40))
    log.advance_log_start(start)
    log.drop_segments(start)
    if end == "closed":
        log.close()
    if end != "running":
        log = open_log(disk, SETTINGS, clean=end == "closed", log_start_offset=start)
    for up_to in (log.end_offset, log.end_offset // 2):
        visible = [(offset, stamp) for offset, stamp in times if start <= offset < up_to]
        for wanted in range(NOW - 120, NOW + 520, 7):
            expected = next(((offset, stamp) for offset, stamp in visible if stamp >= wanted), None)
            found = log.find_offset_for_timestamp(wanted, up_to)
            assert (found and (found.offset, found.timestamp)) == expected, f"{wanted} up to {up_to}"
    kept = [pair for pair in times if pair[0] >= log.segments[0].base_offset]
    largest = max(stamp for _, stamp in kept)
    newest = log.find_max_timestamp()
    assert newest is not None
    assert (newest.offset, newest.timestamp) == next(pair for pair in kept if pair[1] == largest)


def test_the_largest_time_may_be_that_of_a_deleted_record() -> None:
    # As in Kafka, records before the log start count as long as their segment is there.
    log = new_log(new_disk(), SETTINGS)
    for stamp in (100, 900, 300, 200, 300):
        append(log, encode([(None, bytes(30), (), stamp), (None, bytes(30), (), stamp - 50)]))
    for start in (0, 3, 4, log.end_offset):
        log.advance_log_start(start)
        assert log.find_max_timestamp() == (2, 900, 0)
        assert found(log, 900) == (2 if start == 0 else None)
    log.roll(NOW)
    log.drop_segments(log.end_offset)
    assert log.find_max_timestamp() is None


def test_a_clock_that_jumped_leaves_the_lookups_exact() -> None:
    # Append times go back an hour and forward ten years. Each is found, and so are the records in between.
    log = new_log(new_disk(), SETTINGS)
    moments = [NOW, NOW - 3_600_000, NOW + 315_360_000_000, NOW + 1]
    for moment in moments:
        for _ in range(10):
            batch = encode([(None, bytes(30), (), 0)])
            set_append_time(memoryview(batch), moment)
            append(log, batch, now_ms=moment)
    assert [found(log, moment) for moment in (0, NOW - 3_600_000, NOW, NOW + 1, moments[2])] == [0, 0, 0, 20, 20]
    assert found(log, moments[2] + 1) is None


def test_when_a_record_was_written_is_read_from_its_batch() -> None:
    # The first timestamp of the batch, or its append time. A reader below the log start begins at it; nothing beyond
    # `up_to` is looked at.
    log = new_log(new_disk(), SETTINGS)
    append(log, encode([(None, bytes(30), (), 500), (None, bytes(30), (), 400)]))
    stamped = encode([(None, bytes(30), (), 1)])
    set_append_time(memoryview(stamped), 700)
    append(log, stamped)
    for stamp in range(900, 920):
        append(log, encode([(None, bytes(30), (), stamp)]))
    assert [find_time_at(log, offset, 100) for offset in (0, 1, 2, 3, 22, 23)] == [500, 500, 700, 900, 919, None]
    assert find_time_at(log, 3, 3) is None and find_time_at(log, 0, 2) == 500
    log.advance_log_start(2)
    assert find_time_at(log, 0, 100) == 700


def found(log: Log, moment: int) -> int | None:
    place = log.find_offset_for_timestamp(moment, log.end_offset)
    return None if place is None else place.offset
