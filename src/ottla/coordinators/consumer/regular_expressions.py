"""Subscriptions by pattern: RE2's syntax and engine, as in Kafka, so no pattern takes more than linear time.

The engine is loaded with the first pattern: most groups name their topics.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Final

from ottla.errors import ErrorCode, KafkaError

MEMORY_MAX: Final = 1 << 20
"""Of one compiled pattern, in bytes: a pattern that needs more is refused."""


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> Any:
    import re2

    options = re2.Options()
    options.log_errors = False
    options.max_mem = MEMORY_MAX
    return re2.compile(pattern, options)


def check_pattern(pattern: str) -> None:
    """INVALID_REGULAR_EXPRESSION where RE2 does not take it."""
    import re2

    try:
        _compiled(pattern)
    except re2.error as error:
        reason = error.args[0]
        text = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        message = f"the regular expression {pattern!r} is not valid: {text}"
        raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, message) from None


def match_patterns(patterns: Iterable[str], names: Iterable[str]) -> Mapping[str, frozenset[str]]:
    """The names that each pattern matches from end to end. A pattern that is not valid matches nothing."""
    names = list(names)
    return {pattern: frozenset(_matches(pattern, names)) for pattern in patterns}


def _matches(pattern: str, names: list[str]) -> list[str]:
    import re2

    try:
        matches = _compiled(pattern).fullmatch
    except re2.error:  # stored by another release of the engine
        return []
    return [name for name in names if matches(name)]
