"""What an error of the disk means: a shortage, which passes, or a failure, which does not.

After a failure nobody knows what the disk holds, so its whole data directory goes out of service until a restart, as in
Kafka. A full disk is another matter, and there Ottla differs from Kafka: what cannot be written is refused, what is
there is read, and writing goes on when there is room.
"""

import errno

_SHORTAGES = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EINTR))


class FailedSync(OSError):
    """An fsync failed: whatever its reason, what it should have written is lost to the system."""


def is_failure(error: OSError) -> bool:
    return isinstance(error, FailedSync) or error.errno not in _SHORTAGES


def describe_error(error: OSError) -> str:
    """One line: what the system says, and of which file."""
    text = error.strerror or str(error)
    return f"{error.filename}: {text}" if error.filename else text
