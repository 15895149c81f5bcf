"""Truncations in one step, as tests need them. A broker runs the part that waits for the disk in a thread."""

from ottla.storage.log import Log


def truncate_to(log: Log, offset: int) -> None:
    """Remove the batch that contains `offset` and all later ones."""
    if offset < log.end_offset:
        truncation = log.start_truncation(offset)
        truncation.run()
        log.finish_truncation(truncation)


def truncate_fully(log: Log, offset: int) -> None:
    """Remove all records. The next one gets `offset`."""
    truncation = log.start_new(offset)
    truncation.run()
    log.finish_truncation(truncation)
