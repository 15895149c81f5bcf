"""Received bytes are cut into frames: how the memory of a large frame grows."""

import pytest

from ottla.wire.receiving import POOLED_BYTES, BufferPool, UnfinishedFrame


def received(frame: UnfinishedFrame, data: bytes) -> int:
    """Let `data` arrive as from a loop, which holds the buffer until it has reported the bytes in it."""
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
    # Proves: however often its memory grew, every byte is in its place, and the bytes that it holds were reported.
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
    # Proves: memory grows in place, with no copy of the old beside the new, and a frame is read without a copy.
    frame = UnfinishedFrame(BufferPool(), 2 * POOLED_BYTES, memoryview(bytes(POOLED_BYTES // 2)), 0.0)
    memory = frame.room().obj
    received(frame, bytes(POOLED_BYTES))
    assert frame.room().obj is memory
    received(frame, bytes(POOLED_BYTES // 2))
    assert frame.take() is memory


def test_a_buffer_is_not_used_again_while_somebody_has_it() -> None:
    # Proves: a request whose records wait to be written never sees the bytes of the next one (CVE-2026-35554 was such a
    # mistake of a client). When nobody has it any more, the buffer is used again.
    pool, size = BufferPool(), 200_000
    frames = []
    for byte in (b"a", b"b"):
        frame = UnfinishedFrame(pool, size, memoryview(byte * 100), 0.0)
        received(frame, byte * (size - 100))
        frames.append(memoryview(frame.take())[10:])
    assert [bytes(frame[:3]) for frame in frames] == [b"aaa", b"bbb"]
    first = frames[0].obj
    frames.clear()
    del frame
    again = UnfinishedFrame(pool, size, memoryview(b"c"), 0.0)
    assert again.room().obj is first
