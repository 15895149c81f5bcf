"""What happened in a simulation, in order: a running hash that two runs of a seed can compare, and the last lines."""

from collections import deque
from hashlib import blake2b

LINES_KEPT = 2000


class Trace:
    def __init__(self, lines_kept: int | None = LINES_KEPT) -> None:
        self.count = 0
        self.lines: deque[str] = deque(maxlen=lines_kept)
        self._hash = blake2b(digest_size=16)

    def note(self, time: float, host: str, event: str) -> None:
        line = f"{time:.9f} {host} {event}"
        self.count += 1
        self.lines.append(line)
        self._hash.update(line.encode() + b"\n")

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()
