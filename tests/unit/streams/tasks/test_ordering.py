"""Rows of several sources in one batch."""

import numpy as np

from ottla.streams.tasks.ordering import hold_back


def test_rows_wait_that_are_later_than_a_source_of_which_a_part_was_read() -> None:
    """The earliest of the sources with more to come decides, and is itself never held back."""
    table = (np.array([5, 9, 7]), np.array([10, 11, 12]))
    stream = (np.array([8, 9, 10, 3]), np.array([20, 22, 23, 24]))
    nothing = (np.array([], np.int64), np.array([], np.int64))
    assert hold_back([table, stream, nothing], [True, False, False]) == [None, 23, None]
    assert hold_back([table, stream, nothing], [True, True, True]) == [None, 23, None]
    assert hold_back([table, stream, nothing], [False, False, True]) == [None, None, None]
