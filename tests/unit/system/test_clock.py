"""The clock of retention: setting the wall clock must not make everything old at once."""

import pytest

from ottla.system.clock import SteadyClock

HOUR_MS = 3_600_000
YEAR_MS = 365 * 24 * HOUR_MS


class Machine:
    """A machine with a wall clock that can be set, and a monotonic clock."""

    def __init__(self) -> None:
        self.wall_ms = 1_700_000_000_000
        self.passed_s = 5.0

    def now_ms(self) -> int:
        return self.wall_ms

    def wait(self, seconds: float) -> None:
        self.wall_ms += int(seconds * 1000)
        self.passed_s += seconds


def test_it_follows_the_wall_clock_as_long_as_nobody_sets_it() -> None:
    machine = Machine()
    clock = SteadyClock(machine, lambda: machine.passed_s)
    for seconds in (0, 0.0004, 1, 300, 8 * 86_400):
        machine.wait(seconds)
        assert clock.now_ms() == machine.wall_ms


def test_a_jump_of_ten_years_deletes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    # In the hour after the jump at most two hours pass for retention, and this is logged once. When the clock is right
    # again, nothing has been deleted.
    machine = Machine()
    clock = SteadyClock(machine, lambda: machine.passed_s)
    before = clock.now_ms()
    machine.wall_ms += 10 * YEAR_MS
    for _ in range(12):
        machine.wait(300)
        clock.now_ms()
    assert clock.now_ms() == before + 2 * HOUR_MS
    assert [record.message for record in caplog.records] == [
        "the clock was set forward by 315359700 s: retention follows it at twice real time"
    ]
    machine.wall_ms -= 10 * YEAR_MS
    assert clock.now_ms() == before + HOUR_MS


def test_a_clock_that_goes_back_is_followed() -> None:
    # This is harmless, because records seem younger.
    machine = Machine()
    clock = SteadyClock(machine, lambda: machine.passed_s)
    machine.wall_ms -= HOUR_MS
    assert clock.now_ms() == machine.wall_ms


def test_a_machine_that_slept_catches_up() -> None:
    # The wall clock jumped because time did pass. After the same time again the two clocks agree.
    machine = Machine()
    clock = SteadyClock(machine, lambda: machine.passed_s)
    machine.wall_ms += 8 * HOUR_MS
    for _ in range(8):
        assert clock.now_ms() < machine.wall_ms
        machine.wait(3600)
    assert clock.now_ms() == machine.wall_ms
