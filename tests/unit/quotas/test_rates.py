"""Rates over windows, and token buckets: the numbers that Kafka's own measures give."""

import pytest

from ottla.quotas.rates import Rate, TokenBucket, Windows

WINDOWS = Windows(11, 1000)


def test_a_new_client_is_measured_over_ten_windows() -> None:
    # Or the first request of a second would look like an enormous rate. 30,000 bytes are 3,000 a second.
    rate = Rate(WINDOWS)
    rate.record(30_000, 3_000, 5_000.0)
    assert rate.measure_window(5_000.0) == 10_000
    assert rate.measure(5_000.0) == 3_000
    assert rate.find_throttle_ms(3_000, 5_000.0) == 0
    # To bring 3,000 down to 1,000 takes twice the window again: 30,000 bytes over 30 seconds.
    assert rate.find_throttle_ms(1_000, 5_000.0) == 20_000


def test_old_windows_are_forgotten() -> None:
    # The rate of the last 11 seconds at most, whatever happened before.
    rate = Rate(WINDOWS)
    for second in range(20):
        rate.record(100, 1000, second * 1000.0)
    assert rate.measure(19_000.0) == pytest.approx(11 * 100 / 10)
    assert rate.measure(19_999.0) == pytest.approx(11 * 100 / 10.999)
    assert rate.measure(40_000.0) == 0
    assert rate.is_empty


def test_what_is_taken_back_does_not_count() -> None:
    rate = Rate(WINDOWS)
    rate.record(500, 10, 0.0)
    rate.record(-500, 10, 1.0)
    assert rate.measure(1.0) == 0


def test_a_bucket_allows_a_burst_and_may_be_overdrawn_once() -> None:
    # Ten a second, eleven windows of a second: 110 at once, and 15 more are a second and a half of debt.
    bucket = TokenBucket(WINDOWS, 10, 0.0)
    bucket.take(110, 10, 0.0)
    assert bucket.find_throttle_ms(10, 0.0) == 0
    bucket.take(15, 10, 0.0)
    assert bucket.find_throttle_ms(10, 0.0) == 1500
    assert bucket.find_throttle_ms(10, 1000.0) == 500
    assert bucket.find_throttle_ms(10, 1600.0) == 0
    assert bucket.refill(10, 1_000_000.0) == 110
