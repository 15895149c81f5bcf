"""Scripts: each line has an action, a bar, and the events that follow it.

    a joins          | a: MEMBER_ID_REQUIRED
    3000 ms pass     | [CompletingRebalance];
                     | a: generation 1, leads a

A line without an action continues the events of the line before.
"""

from collections.abc import Callable, Sequence


def play(script: str, act: Callable[[str], None], told: Callable[[], Sequence[str]]) -> None:
    """Run the actions one by one, and compare. `told` returns the events since its last call."""
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
