"""Did you mean ...? The nearest of the names that exist, for a name that does not."""

from collections.abc import Iterable, Iterator

NEAR = 0.67
"""How similar two names must be, from 0 to 1: `rename` and `create` are not (0.667), `lst` and `list` are (0.86)."""

CORRECTED_LENGTH_MAX = 100
"""How long a name may be whose slips are looked up: their number grows with its length."""


def suggest(name: str, names: Iterable[str]) -> str:
    """`; did you mean 'orders'?`, or nothing if no name is near."""
    from difflib import get_close_matches  # only a command that fails needs it

    known = {each.lower(): each for each in names}
    wrong = name.lower()
    # Looking up every name that one slip of the finger could have meant is over twenty times faster than comparing with
    # each of 10,000 topics, which is left for the rest.
    letters = "".join(dict.fromkeys("".join(known)))
    near = known.keys() & _undo_slips(wrong, letters) if len(wrong) <= CORRECTED_LENGTH_MAX else ()
    found = get_close_matches(wrong, sorted(near), 1, NEAR) or get_close_matches(wrong, list(known), 1, NEAR)
    return f"; did you mean {known[found[0]]!r}?" if found else ""


def _undo_slips(wrong: str, letters: str) -> Iterator[str]:
    """Every text that becomes `wrong` if one letter is left out, added, replaced or swapped with the next."""
    for place in range(len(wrong) + 1):
        before, after = wrong[:place], wrong[place:]
        yield before + after[1:]
        yield before + after[1:2] + after[:1] + after[2:]
        for letter in letters:
            yield before + letter + after
            yield before + letter + after[1:]
