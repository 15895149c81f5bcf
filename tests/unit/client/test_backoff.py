"""Retries: pauses double up to a limit, vary a little, and end at the deadline."""

from random import Random

from ottla.client.backoff import Backoff


class Time:
    def __init__(self) -> None:
        self.now = 0.0
        self.pauses: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds


def backoff(time: Time, limit_s: float) -> Backoff:
    return Backoff(limit_s, Random(1), seconds=lambda: time.now, sleep=time.sleep)


def test_pauses_grow_and_end_with_the_deadline() -> None:
    time = Time()
    trying = backoff(time, 5.0)
    while trying.pause():
        pass
    assert time.now == 5.0
    for pause, due in zip(time.pauses[:-1], [0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0], strict=False):
        assert 0.8 * due <= pause <= 1.2 * due
    assert not trying.pause()


def test_a_throttle_time_is_waited_for_within_the_limit() -> None:
    time = Time()
    trying = backoff(time, 3.0)
    trying.throttle(2.0)
    trying.throttle(0.0)
    trying.throttle(2.0)
    assert time.pauses == [2.0, 1.0]
