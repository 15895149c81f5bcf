"""Bytes in: frames cut out of what arrives. A frame is a 4-byte big-endian size, then that many bytes.

All connections of a server receive into one area, because a loop fills and reports a buffer in one go: an idle
connection costs no buffer. Whole frames are copied out of the area; the rest of an unfinished one is received straight
into a buffer of its own, which grows with the bytes that came, not with the size that was announced. Every frame is
writable memory that belongs to its request for as long as anyone looks at it.
"""

from struct import Struct

AREA_BYTES = 64 * 1024
CROWDED_AREA_BYTES = 4 * 1024  # for a small request, or the first bytes of a large one that then has to wait
FIRST_BYTES = 64 * 1024  # up to here buffers are not worth keeping
POOLED_BYTES = 16 * 1024 * 1024  # memory that all idle buffers may keep
POOLED_BUFFERS = 32

SIZE = Struct(">i")
NO_BYTES = memoryview(b"")


class BufferPool:
    """Large buffers to be used again: fresh memory costs as much as receiving into it.

    A buffer is given back when its frame has been handed out, while views of it may still be alive. It is taken again
    only once they are gone: a bytearray refuses to change its length as long as there is a view.
    """

    def __init__(self) -> None:
        self._buffers: list[bytearray] = []
        self._bytes = 0

    def take(self, size: int, arrived: int) -> bytearray:
        """A free buffer that holds `size`, or a new one with room for as much again as has arrived."""
        if size > FIRST_BYTES:
            for index, buffer in enumerate(self._buffers):
                if size <= len(buffer) <= 4 * size and _free(buffer):
                    del self._buffers[index]
                    self._bytes -= len(buffer)
                    return buffer
        return bytearray(min(size, max(2 * arrived, CROWDED_AREA_BYTES)))

    def give(self, buffer: bytearray) -> None:
        if not FIRST_BYTES < len(buffer) <= POOLED_BYTES:
            return
        self._buffers.append(buffer)
        self._bytes += len(buffer)
        while self._bytes > POOLED_BYTES or len(self._buffers) > POOLED_BUFFERS:
            self._bytes -= len(self._buffers.pop(0))


def _free(buffer: bytearray) -> bool:
    try:
        buffer.pop()
    except BufferError:
        return False
    buffer.append(0)
    return True


class UnfinishedFrame:
    """One frame on its way in."""

    __slots__ = ("_buffer", "_pool", "_view", "filled", "memory", "size", "started_at")

    def __init__(self, pool: BufferPool, size: int, start: memoryview, now: float) -> None:
        self.size = size
        self.filled = len(start)
        self.started_at = now
        self._pool = pool
        self._buffer = pool.take(size, self.filled)
        self._view = memoryview(self._buffer)
        self._view[: self.filled] = start
        self.memory = len(self._buffer)
        """What it holds, or will hold with the next bytes."""

    @property
    def complete(self) -> bool:
        return self.filled == self.size

    def room(self) -> memoryview:
        """Where the next bytes go."""
        if len(self._buffer) < self.memory:
            self._grow()
        return self._view[self.filled : self.size]

    def received(self, count: int) -> int:
        """`count` more bytes are there; returns by how much the memory has to grow to make room for the next."""
        self.filled += count
        if self.filled < self.memory or self.complete:
            return 0
        growth = min(self.size - self.memory, self.memory)
        self.memory += growth
        return growth

    def _grow(self) -> None:
        """In place. Large memory is moved by the system then, not copied, and never there twice."""
        self._view.release()
        self._buffer += bytes(self.memory - len(self._buffer))
        self._view = memoryview(self._buffer)

    def take(self) -> bytearray | memoryview:
        """The complete frame; its buffer is free again when nobody looks at it any more."""
        buffer, frame = self._buffer, self._view[: self.size]
        self._view = NO_BYTES
        if len(buffer) > POOLED_BYTES:
            return buffer if len(buffer) == self.size else frame  # nobody else will use it
        self._pool.give(buffer)
        return frame
