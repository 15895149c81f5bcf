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
    """Have memory of large buffers given back as soon as they are free.

    glibc learns from each large one that is freed to keep more of the next, in every thread: a few batches that unpack
    to megabytes would stay as a hundred megabytes. Where there is no glibc, nothing happens.
    """
    import ctypes  # only brokers need it, and they have started by then

    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, LARGE_BYTES)
