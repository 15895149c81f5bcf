"""Throttled replication: which replicas are listed, and how long they wait."""

import pytest

from ottla.replication.throttles import UNLIMITED, WAIT_MAX_S, ReplicationThrottle, is_throttled


@pytest.mark.parametrize(
    ("listed", "expected"),
    [((), False), (("*",), True), (("3:2",), True), (("1:2", "3:2"), True), (("3:1",), False), (("2:3",), False)],
)
def test_replicas_are_listed_by_partition_and_broker(listed: tuple[str, ...], expected: bool) -> None:
    assert is_throttled(listed, 3, 2) is expected


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_bytes_beyond_the_rate_are_waited_for() -> None:
    clock = Clock()
    throttle = ReplicationThrottle(lambda: 1000, clock)
    assert throttle.wait_s() == 0
    throttle.record(5000)
    assert throttle.wait_s() == WAIT_MAX_S
    clock.now += 4.5
    assert throttle.wait_s() == pytest.approx(0.5, abs=0.01)
    clock.now += throttle.wait_s()
    assert throttle.wait_s() == 0 and throttle.bytes == 5000


def test_only_a_second_is_saved_up() -> None:
    clock = Clock()
    throttle = ReplicationThrottle(lambda: 1000, clock)
    clock.now += 3600
    throttle.record(1500)
    assert throttle.wait_s() == pytest.approx(0.5, abs=0.01)


def test_without_a_rate_nothing_waits() -> None:
    rate = [1000]
    throttle = ReplicationThrottle(lambda: rate[0], Clock())
    throttle.record(10_000)
    rate[0] = UNLIMITED
    assert throttle.is_unlimited and throttle.wait_s() == 0
    rate[0] = 1000
    assert throttle.wait_s() == 0  # the debt is forgotten
