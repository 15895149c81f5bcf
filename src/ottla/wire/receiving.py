"""Frames that arrive. A frame is a 4-byte big-endian size, then that many bytes.

All connections of a server receive into one shared area: the event loop fills a buffer and reports it without a pause,
so an idle connection needs no buffer. Whole frames are copied out of the area. The rest of an unfinished frame is
received straight into a buffer of its own, which grows with the bytes that arrived, not with the size that the client
announced. A frame is writable memory that belongs to its request for as long as it is referenced.
"""

from struct import Struct

AREA_BYTES = 64 * 1024
CROWDED_AREA_BYTES = 4 * 1024  # above the memory limit: a small request, or the first bytes of a large one
FIRST_BYTES = 64 * 1024  # smaller buffers are not kept
POOLED_BYTES = 16 * 1024 * 1024  # of all idle buffers together
POOLED_BUFFERS = 32

SIZE = Struct(">i")
NO_BYTES = memoryview(b"")


class BufferPool:
    """Large buffers that are used again: fresh memory costs as much as receiving into it.

    A buffer is given back as soon as its frame is dispatched, while the request may still have views of it. It is taken
    again only when the views are gone, which is seen by changing its length: a bytearray with views refuses that.
    """

    def __init__(self) -> None:
        self._buffers: list[bytearray] = []
        self._bytes = 0

    def take(self, size: int, arrived: int) -> bytearray:
        """A free buffer of at least `size`, or a new one that has room for as much again as has arrived."""
        if size > FIRST_BYTES:
            for index, buffer in enumerate(self._buffers):
                if size <= len(buffer) <= 4 * size and _is_free(buffer):
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


def _is_free(buffer: bytearray) -> bool:
    try:
        buffer.pop()
    except BufferError:
        return False
    buffer.append(0)
    return True


class UnfinishedFrame:
    """A frame of which not all bytes have arrived."""

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
        """Size of the buffer, including the growth that `room` will do."""

    @property
    def complete(self) -> bool:
        return self.filled == self.size

    def room(self) -> memoryview:
        """The memory for the next bytes."""
        if len(self._buffer) < self.memory:
            self._grow()
        return self._view[self.filled : self.size]

    def received(self, count: int) -> int:
        """Count bytes that arrived in `room`. Returns by how much the buffer will grow to make room for the next."""
        self.filled += count
        if self.filled < self.memory or self.complete:
            return 0
        growth = min(self.size - self.memory, self.memory)
        self.memory += growth
        return growth

    def _grow(self) -> None:
        """Grow in place: the system moves large memory without copying it, so it never exists twice."""
        self._view.release()
        self._buffer += bytes(self.memory - len(self._buffer))
        self._view = memoryview(self._buffer)

    def take(self) -> bytearray | memoryview:
        """The complete frame. Its buffer can be used again when no view of it is left."""
        buffer, frame = self._buffer, self._view[: self.size]
        self._view = NO_BYTES
        if len(buffer) > POOLED_BYTES:
            return buffer if len(buffer) == self.size else frame  # too large for the pool
        self._pool.give(buffer)
        return frame
