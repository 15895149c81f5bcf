"""Matches topic names with patterns, with the syntax and engine of RE2, as Kafka does: matching takes linear time.

The engine is imported with the first pattern, because most groups use none.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Final

from ottla.errors import ErrorCode, KafkaError

MEMORY_MAX: Final = 1 << 20
"""Bytes that one compiled pattern may take. A pattern that needs more is refused."""


@lru_cache(maxsize=256)
def _compile(pattern: str) -> Any:
    import re2

    options = re2.Options()
    options.log_errors = False
    options.max_mem = MEMORY_MAX
    return re2.compile(pattern, options)


def check_pattern(pattern: str) -> None:
    """INVALID_REGULAR_EXPRESSION if RE2 refuses the pattern."""
    import re2

    try:
        _compile(pattern)
    except re2.error as error:
        reason = error.args[0]
        text = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        message = f"the regular expression {pattern!r} is not valid: {text}"
        raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, message) from None


def match_patterns(patterns: Iterable[str], names: Iterable[str]) -> Mapping[str, frozenset[str]]:
    """The names that each pattern matches completely. An invalid pattern matches nothing."""
    names = list(names)
    return {pattern: frozenset(_matches(pattern, names)) for pattern in patterns}


def _matches(pattern: str, names: list[str]) -> list[str]:
    import re2

    try:
        matches = _compile(pattern).fullmatch
    except re2.error:  # stored by a release with another version of RE2
        return []
    return [name for name in names if matches(name)]
