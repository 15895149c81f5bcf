"""Buffers are reused: never while anybody can see them, and never more of them are kept than allowed."""

import numpy as np
import pytest

from ottla.client import buffers
from ottla.client.buffers import allocate_array, allocate_bytes


@pytest.fixture(autouse=True)
def no_shelves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffers, "_idle", {})
    monkeypatch.setattr(buffers, "_idle_bytes", 0)


def test_memory_is_reused_when_its_last_view_is_gone() -> None:
    first = allocate_bytes(100_000)
    at = np.frombuffer(first, np.uint8).ctypes.data
    part = first[10:20]
    del first
    other = allocate_array(np.uint8, 100_000)
    assert other.ctypes.data != at
    del part
    again = allocate_array(np.int64, 12_300)  # about the same size, with another type
    assert again.ctypes.data == at
    assert len(again) == 12_300


def test_kept_memory_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffers, "IDLE_BYTES_MAX", 1_000_000)
    held = [allocate_array(np.uint8, 300_000) for _ in range(10)]
    del held
    assert 600_000 < buffers._idle_bytes <= 1_000_000
    assert len(allocate_array(np.int32, 0)) == 0
