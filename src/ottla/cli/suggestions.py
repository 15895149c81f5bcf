"""Did you mean ...? The nearest of the names that exist, for a name that does not."""

from collections.abc import Iterable

NEAR = 0.67
"""How similar two names must be, from 0 to 1: `rename` and `create` are not (0.667), `lst` and `list` are (0.86)."""


def suggest(name: str, names: Iterable[str]) -> str:
    """`; did you mean 'orders'?`, or nothing if no name is near."""
    from difflib import get_close_matches  # only a command that fails needs it

    known = {each.lower(): each for each in names}
    found = get_close_matches(name.lower(), list(known), n=1, cutoff=NEAR)
    return f"; did you mean {known[found[0]]!r}?" if found else ""
