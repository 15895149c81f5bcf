"""Memory that is used again: fresh pages cost more than what is done with them.

A room looks like any array. When the last one who sees it lets it go, an Arrow batch for example, its memory comes back
here, and the next who asks for about as much gets it, as it was left.
"""

import weakref
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

IDLE_BYTES_MAX = 128 * 1024 * 1024
_STEP = 64

_idle: dict[int, list[Array]] = {}
"""By size."""
_idle_bytes = 0


def room(kind: type, count: int) -> Array:
    """An array of `count` items, not cleared."""
    global _idle_bytes
    used = count * np.dtype(kind).itemsize
    size = _rounded(used)
    shelf = _idle.get(size)
    if shelf:
        base = shelf.pop()
        _idle_bytes -= size
    else:
        base = np.empty(size, np.uint8)
    seen: Array = base[:used].view(kind)
    if size:
        weakref.finalize(seen, _put_back, base).atexit = False
    return seen


def bytes_room(size: int) -> memoryview:
    """Bytes to be written, not cleared."""
    return room(np.uint8, size).data


def _rounded(size: int) -> int:
    """So that nearly equal sizes share a shelf: an eighth more at most."""
    step = max(_STEP, 1 << max(size.bit_length() - 4, 0))
    return (size + step - 1) // step * step


def _put_back(base: Array) -> None:
    global _idle_bytes
    if _idle_bytes + base.nbytes <= IDLE_BYTES_MAX:
        _idle.setdefault(base.nbytes, []).append(base)
        _idle_bytes += base.nbytes
