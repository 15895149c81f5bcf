"""What a broker's process asks of the system before it starts: files, and memory that goes back when it is free."""

import resource
from contextlib import suppress

UNLIMITED = (1 << 31) - 1
OWN_DESCRIPTORS = 64
"""Listeners, locks, checkpoints, the event loop's."""

M_MMAP_THRESHOLD = -3
LARGE_BYTES = 4 << 20


def connections_allowed() -> int:
    """Raise the limit of open files as far as it goes; how many connections that is enough for.

    A quarter is for the files of the logs. A connection that waits for room has a second descriptor.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(OSError, ValueError):  # of a system whose own limit is below the hard one
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
    if soft == resource.RLIM_INFINITY:
        return UNLIMITED
    return max((soft - soft // 4 - OWN_DESCRIPTORS) // 2, 1)


def return_large_buffers() -> None:
    """Makes glibc return the memory of large buffers to the system as soon as they are freed.

    By default glibc raises its threshold with each large buffer that is freed, and then keeps the next ones for reuse,
    in every thread. A few batches that decompress to megabytes would keep a hundred megabytes in use. Without glibc
    this function does nothing.
    """
    import ctypes  # only brokers need it, and they have started by then

    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, LARGE_BYTES)
