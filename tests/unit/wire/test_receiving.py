"""Frames cut out of what arrives: how the memory of a large one grows."""

import pytest

from ottla.wire.receiving import POOLED_BYTES, BufferPool, UnfinishedFrame


def received(frame: UnfinishedFrame, data: bytes) -> int:
    """Let `data` arrive as a loop does it, which keeps its hold of the room until it has told of the bytes in it."""
    growth = 0
    while data:
        room = frame.room()
        count = min(len(room), len(data))
        room[:count] = data[:count]
        growth += frame.received(count)
        del room
        data = data[count:]
    return growth


@pytest.mark.parametrize("size", [10_000, 1_000_000, POOLED_BYTES + 1])
def test_a_frame_is_what_arrived(size: int) -> None:
    # Proves: however often its memory grew, every byte is in its place, and what it holds was told on the way.
    data = bytes(range(256)) * (size // 256 + 1)
    frame = UnfinishedFrame(BufferPool(), size, memoryview(data)[:100], 0.0)
    began_with = frame.memory
    assert began_with + received(frame, data[100:size]) == frame.memory == size
    assert frame.complete
    assert bytes(frame.take()) == data[:size]


def test_memory_grows_with_what_arrives() -> None:
    # Proves: a client that only announces a large frame gets no memory for it.
    frame = UnfinishedFrame(BufferPool(), 100_000_000, memoryview(b"x" * 1000), 0.0)
    received(frame, b"x" * 99_000)
    assert not frame.complete
    assert 100_000 < frame.memory < 300_000


def test_a_large_frame_is_in_memory_once() -> None:
    # Proves: memory grows in place, the old is never there beside the new; and nobody has to copy a frame to read it.
    frame = UnfinishedFrame(BufferPool(), 2 * POOLED_BYTES, memoryview(bytes(POOLED_BYTES // 2)), 0.0)
    memory = frame.room().obj
    received(frame, bytes(POOLED_BYTES))
    assert frame.room().obj is memory
    received(frame, bytes(POOLED_BYTES // 2))
    assert frame.take() is memory
