"""Which part of a log may be compacted, and when that is worth it."""

import pytest

from ottla.storage.cleaner.choice import CompactionRules, Dirt, measure_dirt
from ottla.storage.log import Log
from ottla.storage.scan import Damage
from tests.unit.storage.cleaner.compactions import SETTINGS, compact, put
from tests.unit.storage.logs import NOW, new_disk, new_log
from tests.unit.storage.truncating import truncate_to

HOUR = 3_600_000


def three_segments() -> Log:
    """Offsets 0 to 2 are each alone in a sealed segment, an hour younger than the one before. Offset 3 is in the active
    one."""
    log = new_log(new_disk(), SETTINGS)
    for number in range(4):
        put(log, ("k", str(number)), timestamp=NOW + number * HOUR)
        if number < 3:
            log.roll(NOW)
    log.flush()
    return log


def dirt(log: Log, now_ms: int = NOW + 3 * HOUR, stable: int | None = None, **rules: float) -> Dirt:
    return measure_dirt(log, log.end_offset if stable is None else stable, CompactionRules(**rules), now_ms)  # type: ignore[arg-type]


def test_the_active_segment_is_never_compacted() -> None:
    found = dirt(three_segments())
    assert (found.dirty_from, found.up_to, len(found.segments)) == (0, 3, 3)
    assert found.ratio == 1.0 and [source.end_offset for source in found.sources()] == [1, 2, 3]


@pytest.mark.parametrize("stable", range(4))
def test_nothing_at_or_after_the_last_stable_offset_is_compacted(stable: int) -> None:
    # Records that a follower has not seen, or that a transaction may still abort, are not touched.
    assert dirt(three_segments(), stable=stable).up_to == stable


def test_unflushed_records_have_to_wait() -> None:
    log = three_segments()
    log.recovery_point = 2
    assert dirt(log).up_to == 2


def test_young_records_have_to_wait() -> None:
    # min.compaction.lag.ms: from the first segment with a young record on.
    log = three_segments()
    assert dirt(log, min_lag_ms=2 * HOUR).up_to == 2
    assert dirt(log, min_lag_ms=10 * HOUR).up_to == 0
    assert not dirt(log, min_lag_ms=10 * HOUR).is_worth_it(CompactionRules())


def test_old_records_do_not_wait_for_more_dirt() -> None:
    # max.compaction.lag.ms: counted from the oldest dirty record.
    log = three_segments()
    log.first_dirty_offset = 2
    rules = CompactionRules(0.9, max_lag_ms=2 * HOUR)
    assert dirt(log).ratio == pytest.approx(1 / 3)
    assert not dirt(log, now_ms=NOW + 4 * HOUR, max_lag_ms=2 * HOUR).is_worth_it(rules)
    late = dirt(log, now_ms=NOW + 5 * HOUR, max_lag_ms=2 * HOUR)
    assert late.overdue_ms == HOUR and late.is_worth_it(rules)


@pytest.mark.parametrize("is_known", [False, True])
def test_a_damaged_segment_is_never_overdue(is_known: bool) -> None:
    # Its first timestamp is not readable. That of the others counts.
    log = three_segments()
    first = log.segments[0]
    first.file.write_at(16, b"\x07")  # the magic byte of the only batch
    first = log.segments[0] = first.open_again(log.files.disk, log.files.cache)
    if is_known:
        first.damage = (Damage(0, 1, 0, first.size),)
    assert dirt(log, now_ms=NOW + 4 * HOUR, max_lag_ms=2 * HOUR).overdue_ms == HOUR


def test_only_dirt_above_the_ratio_is_worth_it() -> None:
    log = three_segments()
    log.first_dirty_offset = 2
    assert dirt(log).is_worth_it(CompactionRules(0.3)) and not dirt(log).is_worth_it(CompactionRules(0.5))
    log.first_dirty_offset = 3
    assert not dirt(log).is_worth_it(CompactionRules(0.0)), "a clean log is never worth it"


def test_an_impossible_checkpoint_is_ignored(caplog: pytest.LogCaptureFixture) -> None:
    log = three_segments()
    log.first_dirty_offset = 100
    assert dirt(log).dirty_from == 0 and "after its end" in caplog.text
    log.advance_log_start(2)
    assert dirt(log).dirty_from == 2


def test_a_cut_log_is_dirty_from_the_cut_on() -> None:
    disk = new_disk()
    log = new_log(disk, SETTINGS)
    for number in range(10):
        put(log, (f"k{number}", "v"))
    compact(disk, log)
    assert log.first_dirty_offset == 10
    truncate_to(log, 6)
    assert log.first_dirty_offset == 6
