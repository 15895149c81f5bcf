"""What a start says while it recovers logs: little, and only if it takes a while."""

import logging

import pytest

from ottla.replication.recovery_progress import RecoveryProgress
from ottla.storage.log import LogSettings
from ottla.storage.opening import open_log
from ottla.storage.recovery import PROGRESS_BYTES
from tests.unit.storage.logs import DIRECTORY, NOW, append, batch_of, new_disk, new_log

BATCHES = 20_000


class SteppingClock:
    """Moves on with every look at it."""

    def __init__(self, step_ms: int) -> None:
        self.ms, self.step_ms = NOW, step_ms

    def now_ms(self) -> int:
        self.ms += self.step_ms
        return self.ms


def lines_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if record.message.startswith("recovering")]


def test_a_log_of_many_small_batches_is_recovered_with_few_reports() -> None:
    # A report per batch took longer than reading the batches again.
    disk = new_disk()
    log = new_log(disk)
    for _ in range(BATCHES):
        append(log, batch_of(b"x"))
    size = log.size
    disk.crash(lose_unsynced=False)
    reports: list[tuple[int, int]] = []
    open_log(
        disk,
        DIRECTORY,
        LogSettings(),
        clean=False,
        recovery_point=0,
        log_start_offset=0,
        now_ms=NOW,
        progress=lambda done, total: reports.append((done, total)),
    )
    assert 1 <= len(reports) <= size // PROGRESS_BYTES + 1
    assert reports[-1] == (size, size)


def test_there_is_a_line_a_second_at_most(caplog: pytest.LogCaptureFixture) -> None:
    # However many logs there are, and however often each of them reports.
    caplog.set_level(logging.INFO)
    progress = RecoveryProgress(SteppingClock(step_ms=10))
    for number in range(1000):
        progress.show(f"/data/orders-{number}", 1_500_000, 3_000_000)
    lines = lines_of(caplog)
    assert len(lines) == 10
    assert lines[0] == "recovering /data/orders-99: 1.5 of 3.0 MB"


def test_a_quick_recovery_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    progress = RecoveryProgress(SteppingClock(step_ms=10))
    for _ in range(99):
        progress.show("/data/orders-0", 1, 2)
    assert lines_of(caplog) == []


def test_a_clock_that_is_set_back_does_not_silence_it(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    clock = SteppingClock(step_ms=600)
    progress = RecoveryProgress(clock)
    clock.ms -= 3_600_000
    for _ in range(3):
        progress.show("/data/orders-0", 1, 2)
    assert len(lines_of(caplog)) == 1
