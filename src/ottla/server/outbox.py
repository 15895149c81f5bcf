"""Answers that a connection still has to send, in order: each is a 4-byte big-endian size followed by its parts.

Parts are bytes in memory or ranges of files. Files in the outbox are pinned, so that a range stays readable if its file
is deleted meanwhile.
"""

import os
from collections import deque
from struct import Struct

from ottla.broker.call import Part
from ottla.storage.files import Bytes, File, FileSlice

RUN_BYTES = 256 * 1024  # of one system call
RUN_PARTS = 512  # parts of one call; the kernel takes 1,024
COLD_BYTES = 1024 * 1024  # of a range that is not in the page cache: how much is read into it at once
JOINED_BYTES = 16 * 1024  # an answer up to this size is joined with its 4-byte size into one part
PROBE_STRIDE = 128 * 1024  # a range counts as cached if one byte of each stride is: readahead works in such units

_SIZE = Struct(">i")
_PROBE = [bytearray(1)]  # probes read into it; the content does not matter


class TruncatedFile(Exception):
    """A file ended before the range that an answer has announced."""


class Range:
    """The part of a pinned file that has still to be sent."""

    __slots__ = ("_cached_until", "descriptor", "file", "length", "position")

    def __init__(self, part: FileSlice) -> None:
        self.file: File = part.file
        self.position = part.position
        self.length = part.length
        self.descriptor = part.file.pin()
        self._cached_until = 0

    def is_cached(self, length: int) -> bool:
        """Whether the next `length` bytes are in the page cache, so that reading them does not wait for a disk."""
        descriptor, start = self.descriptor, self.position
        end = start + length
        if descriptor is None or end <= self._cached_until:
            return True
        if not all(_in_page_cache(descriptor, at) for at in (*range(start, end, PROBE_STRIDE), end - 1)):
            return False
        self._cached_until = end
        return True

    def read_cached(self, length: int) -> bytes | bytearray | None:
        """The next `length` bytes if they are in the page cache, else None."""
        descriptor = self.descriptor
        if descriptor is None or self.position + length <= self._cached_until:
            return self._read(length)
        data = bytearray(length)
        try:
            count = os.preadv(descriptor, [data], self.position, os.RWF_NOWAIT)
        except BlockingIOError:
            return None
        except OSError:  # the file system does not support the flag, for example because it lives in memory
            return self._read(length)
        return data if count == length else None

    def warm(self) -> None:
        """Read the start of the range into the page cache. Waits for the disk: run it in a thread."""
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
    """Parts of answers that have still to be sent, in order."""

    __slots__ = ("_copied_bytes", "memory", "parts", "unsent")

    def __init__(self, copied_bytes: int) -> None:
        """`copied_bytes`: a file range up to this size is read into memory and sent with its neighbours."""
        self.parts: deque[Bytes | Range] = deque()
        self.unsent = 0  # all bytes
        self.memory = 0  # those that are not in files
        self._copied_bytes = copied_bytes

    def put(self, answer: list[Part]) -> None:
        """Queue one answer, preceded by its size."""
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
        """Put bytes in front of everything else: the rest of an answer that could not be sent, or all of it."""
        self.parts.appendleft(rest)
        self.unsent += len(rest)
        self.memory += len(rest)

    def run(self) -> list[Bytes]:
        """The parts at the front that can be sent together from memory; empty if a file range comes first."""
        run: list[Bytes] = []
        size = 0
        for index in range(min(len(self.parts), RUN_PARTS)):
            part = self.parts[index]
            if isinstance(part, Range):
                data = self._copy_range(index, part, RUN_BYTES - size)
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

    def _copy_range(self, index: int, part: Range, limit: int) -> Bytes | None:
        """Replace the start of a range by its bytes in memory; None if the range is too large or not cached."""
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
        """Remove `count` bytes that were sent from the front, all of them in memory."""
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
        """Remove `count` bytes that were sent from the range at the front."""
        self.unsent -= count
        part.position += count
        part.length -= count
        if not part.length:
            self.parts.popleft()
            part.file.unpin()

    def is_file_next(self, run: list[Bytes]) -> bool:
        """Whether a file range comes after the parts of `run`."""
        return len(self.parts) > len(run) and isinstance(self.parts[len(run)], Range)

    def clear(self) -> None:
        for part in self.parts:
            if isinstance(part, Range):
                part.file.unpin()
        self.parts.clear()
        self.unsent = self.memory = 0
