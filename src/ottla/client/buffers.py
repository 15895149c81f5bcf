"""Memory for answers and columns that is used again, because fresh pages cost more than the work that is done in them.

`allocate_array` hands out ordinary arrays. When the last reference to an array is gone, for example with the Arrow
batch that was built on it, its memory returns to the pool here, and the next request for about as many bytes gets it.
The content is not cleared. In a process that has not loaded numpy, which only columns need, `allocate_bytes` hands out
plain bytes: a command that asks one question would take longer to import numpy than to do anything else.
"""

import sys
import weakref
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[Any]]

IDLE_BYTES_MAX = 128 * 1024 * 1024
"""How much unused memory the pool keeps. Above this limit, memory that is returned goes back to the system."""

_STEP = 64

_idle: dict[int, list["Array"]] = {}
"""The unused memory, by its size in bytes."""
_idle_bytes = 0


def allocate_array(kind: type, count: int) -> "Array":
    """An array of `count` items, not cleared."""
    import numpy as np

    global _idle_bytes
    used = count * np.dtype(kind).itemsize
    size = _round_up(used)
    same_size = _idle.get(size)
    if same_size:
        base = same_size.pop()
        _idle_bytes -= size
    else:
        base = np.empty(size, np.uint8)
    seen: Array = base[:used].view(kind)
    if size:
        weakref.finalize(seen, _put_back, base).atexit = False
    return seen


def allocate_bytes(size: int) -> memoryview:
    """Writable bytes, not cleared."""
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return memoryview(bytearray(size))
    return allocate_array(numpy.uint8, size).data


def _round_up(size: int) -> int:
    """So that nearly equal sizes share memory; wastes an eighth at most."""
    step = max(_STEP, 1 << max(size.bit_length() - 4, 0))
    return (size + step - 1) // step * step


def _put_back(base: "Array") -> None:
    global _idle_bytes
    if _idle_bytes + base.nbytes <= IDLE_BYTES_MAX:
        _idle.setdefault(base.nbytes, []).append(base)
        _idle_bytes += base.nbytes
