"""The benchmark of what a request costs without its connection."""

import asyncio

from benchmarks.dispatch import measure
from benchmarks.loads.small_requests import KINDS


def test_every_kind_of_small_request_is_measured() -> None:
    # A broker starts, answers each kind, and stops; each kind takes some time.
    found = asyncio.run(measure(seconds=0.01))
    assert list(found) == [*KINDS, "heartbeat", "offset commit", "offset fetch"]
    assert all(microseconds > 0 for microseconds in found.values())
