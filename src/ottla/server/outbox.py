"""What a connection still has to send: answers in order, each a 4-byte big-endian size followed by its parts.

Parts are bytes in memory or ranges of files. A file in the outbox is pinned, so that it can be deleted meanwhile.
"""

import os
from collections import deque
from struct import Struct

from ottla.broker.call import Part
from ottla.storage.files import Bytes, File, FileSlice

RUN_BYTES = 256 * 1024  # what leaves in one call
RUN_PARTS = 512  # parts of one call; the kernel takes 1,024
COLD_BYTES = 1024 * 1024  # how much of a cold range is brought into the page cache at once
JOINED_BYTES = 16 * 1024  # an answer up to this size is copied behind its size, to be one part
PROBE_STRIDE = 128 * 1024  # a range counts as cached if one byte in each stride is; readahead comes in such clusters

_SIZE = Struct(">i")
_PROBE = [bytearray(1)]  # what a probe reads, and nobody looks at


class TruncatedFile(Exception):
    """A file ended before the range that an answer had promised."""


class Range:
    """The part of a pinned file that has not been sent yet."""

    __slots__ = ("_cached_until", "descriptor", "file", "length", "position")

    def __init__(self, part: FileSlice) -> None:
        self.file: File = part.file
        self.position = part.position
        self.length = part.length
        self.descriptor = part.file.pin()
        self._cached_until = 0

    def cached(self, length: int) -> bool:
        """Whether the next `length` bytes can be read without waiting for a disk."""
        descriptor, start = self.descriptor, self.position
        end = start + length
        if descriptor is None or end <= self._cached_until:
            return True
        if not all(_in_page_cache(descriptor, at) for at in (*range(start, end, PROBE_STRIDE), end - 1)):
            return False
        self._cached_until = end
        return True

    def read_cached(self, length: int) -> bytes | bytearray | None:
        """The next `length` bytes if they can be had without waiting for a disk."""
        descriptor = self.descriptor
        if descriptor is None or self.position + length <= self._cached_until:
            return self._read(length)
        data = bytearray(length)
        try:
            count = os.preadv(descriptor, [data], self.position, os.RWF_NOWAIT)
        except BlockingIOError:
            return None
        except OSError:  # this file system cannot say: it lives in memory, or there is no better way than to ask it
            return self._read(length)
        return data if count == length else None

    def warm(self) -> None:
        """Bring the start of the range into the page cache; waits for the disk, so run it in a thread."""
        length = min(self.length, COLD_BYTES)
        self._read(length)
        self._cached_until = self.position + length

    def _read(self, length: int) -> bytes:
        if self.descriptor is None:
            data = self.file.read_at(self.position, length)
        else:
            data = os.pread(self.descriptor, length, self.position)
        if len(data) < length:
            raise TruncatedFile(self.file.path)
        return data


def _in_page_cache(descriptor: int, position: int) -> bool:
    try:
        return os.preadv(descriptor, _PROBE, position, os.RWF_NOWAIT) == 1
    except BlockingIOError:
        return False
    except OSError:  # as in Range.read_cached
        return True


class Outbox:
    """Parts of answers that have not left, in order."""

    __slots__ = ("_copied_bytes", "memory", "parts", "unsent")

    def __init__(self, copied_bytes: int) -> None:
        """`copied_bytes`: a file range up to this size is read and sent with its neighbours."""
        self.parts: deque[Bytes | Range] = deque()
        self.unsent = 0  # all bytes
        self.memory = 0  # those that are not in files
        self._copied_bytes = copied_bytes

    def put(self, answer: list[Part]) -> None:
        """Queue one answer behind its size."""
        if len(answer) == 1 and isinstance(first := answer[0], (bytes, bytearray)) and len(first) <= JOINED_BYTES:
            size = len(first) + _SIZE.size
            self.parts.append(_SIZE.pack(size - _SIZE.size) + first)
            self.unsent += size
            self.memory += size
            return
        total = memory = 0
        for part in answer:
            if isinstance(part, FileSlice):
                total += part.length
            else:
                memory += len(part)
        total += memory
        self.parts.append(_SIZE.pack(total))
        self.unsent += total + _SIZE.size
        self.memory += memory + _SIZE.size
        for part in answer:
            if isinstance(part, FileSlice):
                if part.length:
                    self.parts.append(Range(part))
            elif len(part):
                self.parts.append(part)

    def put_back(self, rest: Bytes) -> None:
        """What is left of an answer, or all of it with its size, that could not leave before those in here."""
        self.parts.appendleft(rest)
        self.unsent += len(rest)
        self.memory += len(rest)

    def run(self) -> list[Bytes]:
        """The parts at the front that can leave together from memory; empty if a file range must be sent or warmed."""
        run: list[Bytes] = []
        size = 0
        for index in range(min(len(self.parts), RUN_PARTS)):
            part = self.parts[index]
            if isinstance(part, Range):
                data = self._copied(index, part, RUN_BYTES - size)
                if data is None:
                    break
                run.append(data)
                size += len(data)
            else:
                run.append(part)
                size += len(part)
            if size >= RUN_BYTES:
                break
        return run

    def _copied(self, index: int, part: Range, limit: int) -> Bytes | None:
        """Take bytes of a range into memory, in its place; None if it is too large for that or not cached."""
        if part.descriptor is not None and part.length > self._copied_bytes:
            return None
        length = min(part.length, limit)
        data = part.read_cached(length)
        if data is None:
            return None
        self.memory += length
        part.position += length
        part.length -= length
        if part.length:
            self.parts.insert(index, data)
        else:
            self.parts[index] = data
            part.file.unpin()
        return data

    def sent(self, count: int) -> None:
        """`count` bytes from the front, all of them in memory, have left."""
        self.unsent -= count
        self.memory -= count
        parts = self.parts
        while count:
            part = parts[0]
            assert not isinstance(part, Range)
            if len(part) > count:
                parts[0] = memoryview(part)[count:]
                return
            count -= len(part)
            parts.popleft()

    def sent_range(self, part: Range, count: int) -> None:
        """`count` bytes of the range at the front have left."""
        self.unsent -= count
        part.position += count
        part.length -= count
        if not part.length:
            self.parts.popleft()
            part.file.unpin()

    def file_follows(self, run: list[Bytes]) -> bool:
        """Whether the parts after `run` begin with a file range."""
        return len(self.parts) > len(run) and isinstance(self.parts[len(run)], Range)

    def clear(self) -> None:
        for part in self.parts:
            if isinstance(part, Range):
                part.file.unpin()
        self.parts.clear()
        self.unsent = self.memory = 0
