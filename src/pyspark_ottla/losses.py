"""Records that are gone before they were read: an error, or a warning with failOnDataLoss=false."""

import logging

logger = logging.getLogger("ottla.spark")


class DataLossError(Exception):
    """Records that the query had to read do not exist any more."""


def report_loss(what: str, fail: bool) -> None:
    """Raises DataLossError if `fail`, otherwise logs a warning."""
    if fail:
        raise DataLossError(
            f"{what}. Retention may have deleted them, or the topic was deleted or created again. "
            "To continue with the records that exist, set failOnDataLoss to false"
        )
    logger.warning("%s; continuing with the records that exist, because failOnDataLoss is false", what)
