"""The benchmark of what a request costs without its connection."""

import asyncio

import pytest

from benchmarks.dispatch import measure
from benchmarks.loads.small_requests import KINDS


@pytest.mark.parametrize("authorizer", [False, True])
def test_every_kind_of_small_request_is_measured(authorizer: bool) -> None:
    # A broker starts, answers each kind, and stops; each kind takes some time.
    found = asyncio.run(measure(seconds=0.01, authorizer=authorizer))
    assert list(found) == [*KINDS, "heartbeat", "offset commit", "offset fetch"]
    assert all(microseconds > 0 for microseconds in found.values())
