"""What an error of the disk means: a shortage, which passes, or a failure, which does not.

After a failure it is unknown what the disk holds, so its whole data directory goes offline until a restart, as in
Kafka. A full disk is no failure, and here Ottla differs from Kafka: writes are refused, reads go on, and writes succeed
again when there is room. In a cluster, replicas on other disks take over meanwhile (`replication.full_disks`).
"""

import errno

_SHORTAGES = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EINTR))


class FailedSync(OSError):
    """An fsync failed. Whatever the reason, the system does not try again to write those pages."""


def is_failure(error: OSError) -> bool:
    return isinstance(error, FailedSync) or error.errno not in _SHORTAGES


def is_full(error: OSError) -> bool:
    return error.errno in (errno.ENOSPC, errno.EDQUOT) and not isinstance(error, FailedSync)


def describe_error(error: OSError) -> str:
    """One line: the system's message, with the file if it is known."""
    text = error.strerror or str(error)
    return f"{error.filename}: {text}" if error.filename else text
