"""Truncations in one step, as tests need them. A broker runs the part that waits for the disk in a thread."""

from ottla.storage.log import Log
from ottla.storage.truncation import finish_truncation, start_anew, start_truncation


def truncate_to(log: Log, offset: int) -> None:
    """Remove the batch that contains `offset` and all later ones."""
    if offset < log.end_offset:
        truncation = start_truncation(log, offset)
        truncation.run()
        finish_truncation(log, truncation)


def truncate_fully(log: Log, offset: int) -> None:
    """Remove all records. The next one gets `offset`."""
    truncation = start_anew(log, offset)
    truncation.run()
    finish_truncation(log, truncation)
