"""Offsets that were to be read and are gone: an error, or a line in the log if the user said failOnDataLoss=false."""

import logging

logger = logging.getLogger("ottla.spark")


class DataLossError(Exception):
    """Records are missing that the query was to read."""


def report_loss(what: str, fail: bool) -> None:
    """DataLossError if `fail`."""
    if fail:
        raise DataLossError(
            f"{what}. They may have been deleted by retention, or the topic was deleted or made anew. "
            "To go on with what is there, set failOnDataLoss to false"
        )
    logger.warning("%s; going on with what is there, as failOnDataLoss is false", what)
