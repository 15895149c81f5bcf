"""Scripts: what is done stands on the left of a bar, what happens then on the right.

    a joins          | a: MEMBER_ID_REQUIRED
    3000 ms pass     | [CompletingRebalance];
                     | a: generation 1, leads a

A line without an action goes on with the events of the one before.
"""

from collections.abc import Callable, Sequence


def play(script: str, act: Callable[[str], None], told: Callable[[], Sequence[str]]) -> None:
    """Do one action after the other; `told` is what has happened since it was asked the last time."""
    lines = _lines(script)
    width = max(len(action) for action, _ in lines)
    actual = []
    for action, _ in lines:
        act(action)
        actual.append(f"{action:<{width}} | {'; '.join(told())}")
    expected = [f"{action:<{width}} | {events}" for action, events in lines]
    assert actual == expected, "what happened:\n" + "\n".join(actual)


def _lines(script: str) -> list[tuple[str, str]]:
    lines: list[tuple[str, str]] = []
    for line in script.strip().splitlines():
        action, _, events = (part.strip() for part in line.partition("|"))
        if action:
            lines.append((action, events))
        elif events:
            action, before = lines.pop()
            lines.append((action, f"{before} {events}"))
    return lines
