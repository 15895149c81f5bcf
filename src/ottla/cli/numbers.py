"""Numbers in arguments, checked while they are parsed: one out of range is a usage error that names its option."""

from argparse import ArgumentTypeError
from collections.abc import Callable

INT16_MAX = (1 << 15) - 1
INT32_MAX = (1 << 31) - 1
INT64_MAX = (1 << 63) - 1
PORT_MAX = 65535
SECONDS_MAX = 31_536_000.0
"""A year."""


def int_between(least: int, most: int) -> Callable[[str], int]:
    """An argparse type: a whole number within these bounds."""

    def parse_int(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            raise ArgumentTypeError(f"{text!r} is not a whole number") from None
        if not least <= number <= most:
            raise ArgumentTypeError(f"{number} is not between {least} and {most}")
        return number

    return parse_int


def parse_seconds(text: str) -> float:
    """An argparse type: a number of seconds above 0."""
    try:
        seconds = float(text)
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is not a number of seconds") from None
    if not 0 < seconds <= SECONDS_MAX:  # also excludes nan
        raise ArgumentTypeError(f"{text} is not between 0 and {SECONDS_MAX:.0f} seconds")
    return seconds


parse_partition = int_between(0, INT32_MAX)
parse_broker_id = int_between(0, INT32_MAX)
parse_partition_count = int_between(1, INT32_MAX)
parse_offset = int_between(0, INT64_MAX)
parse_count = int_between(0, INT64_MAX)
parse_port = int_between(0, PORT_MAX)
