"""Checks committed offsets. The offsets that a group sends always rise, so a wrong one is easy to recognise.

- LOST: in the end a group has the offset that it was told, or a higher one. Only a power cut may take it, only where
  not each message is flushed, and not if a clean shutdown came before the cut.
- BACKWARDS: a group is not told a lower offset than before, with the same exceptions.
- CHANGED: a group has no offset that it never sent.

A commit without an answer may reach the broker after later ones. Its offset is lower then, and is not a violation.
"""

from collections.abc import Iterator

from tests.simulation.history import Committing, Ended, Ending, History, OffsetKnown

OFFSETS_TOPIC = "__consumer_offsets"
NOTHING = -1


def find_offset_problems(history: History) -> Iterator[tuple[str, str, str]]:
    """Find broken promises about committed offsets: promise, group and message of each."""
    for group in history.final_offsets:
        yield from _GroupCheck(history, group).problems()


class _GroupCheck:
    def __init__(self, history: History, group: str) -> None:
        self._group = group
        self._durable = OFFSETS_TOPIC in history.durable_topics
        self._endings = {event.life: event.ending for event in history.events if isinstance(event, Ended)}
        self._last_life = max(self._endings, default=0) + 1
        self._known = [event for event in history.events if isinstance(event, OffsetKnown) and event.group == group]
        self._known.append(OffsetKnown(group, self._last_life, history.final_offsets[group]))
        committing = (event for event in history.events if isinstance(event, Committing))
        self._sent = {event.offset for event in committing if event.group == group}
        self._late = self._sent - {event.offset for event in self._known[:-1]}

    def problems(self) -> Iterator[tuple[str, str, str]]:
        highest = OffsetKnown(self._group, 1, NOTHING)
        for known in self._known:
            if known.offset != NOTHING and known.offset not in self._sent:
                yield "CHANGED", self._group, f"is told {known.offset}, which it never sent"
            if known.offset >= highest.offset:
                highest = known
            elif known.offset not in self._late and not self._may_be_gone(highest.life, known.life):
                promise = "LOST" if known is self._known[-1] else "BACKWARDS"
                yield promise, self._group, f"had {highest.offset} in life {highest.life}, then {known.offset}"
            else:
                highest = known

    def _may_be_gone(self, since: int, now: int) -> bool:
        """Whether a power cut between these two lives may have taken what was stored in the earlier one."""
        if self._durable:
            return False
        for life in range(since, now):
            if self._endings.get(life) is Ending.SHUTDOWN:
                return False
            if self._endings.get(life) is Ending.POWER_CUT:
                return True
        return False
