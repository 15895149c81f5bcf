"""The watch of the event loop, with clocks that the test moves."""

import pytest

from ottla.observability.loop_watch import SAMPLES, LoopWatch


class Clocks:
    now_s = 100.0
    busy_s = 5.0

    def tick(self, passed_s: float, busy_s: float) -> None:
        self.now_s += passed_s
        self.busy_s += busy_s


def test_idle_is_what_is_left_of_the_last_minute() -> None:
    clocks = Clocks()
    watch = LoopWatch(lambda: clocks.now_s, lambda: clocks.busy_s)
    assert watch.idle_share == 1
    for _ in range(SAMPLES):
        clocks.tick(1, 0.25)
        watch.take_sample()
    assert watch.idle_share == pytest.approx(0.75)
    for _ in range(SAMPLES):
        clocks.tick(1, 1)
        watch.take_sample()
    assert watch.idle_share == pytest.approx(0)


def test_a_late_sample_is_a_delay() -> None:
    clocks = Clocks()
    watch = LoopWatch(lambda: clocks.now_s, lambda: clocks.busy_s)
    for passed_s in (1, 1.3, 0.999):
        clocks.tick(passed_s, 0)
        watch.take_sample()
    assert sum(watch.delays.counts) == 3
    assert watch.delays.durations().sum == pytest.approx(300)
