"""What a check of `ottla doctor` has found."""

from typing import NamedTuple

OK, NOTE, PROBLEM = "ok", "note", "problem"


class Finding(NamedTuple):
    level: str
    """ok; note: worth knowing, and nothing is wrong; problem."""
    subject: str
    """What was looked at, in a word or two."""
    message: str
    fix: str = ""
    """How to mend it, in one line."""
