"""Decides when the patterns of a consumer group are matched with the topics, and stores the result.

A search among few topics is run within the turn. A search among many is an errand: the group handles requests
meanwhile, and the result comes with another turn. A search is due when a pattern is new, when topics were created or
deleted or ACLs changed since the last search, and from time to time.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from ottla.cluster.image import Image
from ottla.coordinators.consumer.regular_expressions import match_patterns
from ottla.coordinators.consumer.state import GroupChange, Resolution
from ottla.coordinators.machine import Sight, Turn

MATCHES_AT_ONCE: Final = 1000
"""How many topics times patterns are matched within a turn at most. It takes a few milliseconds."""

SEARCH_INTERVAL_MS: Final = 10_000
"""The least time between two searches among many topics, however often topics are created and deleted."""


class TopicSearch(NamedTuple):
    """An errand: find the topics that the patterns of a group match."""

    group_id: str
    patterns: tuple[str, ...]
    image: Image
    wall_ms: int
    sight: Sight | None = None

    @property
    def is_short(self) -> bool:
        return len(self.patterns) * len(self.image.topic_names) <= MATCHES_AT_ONCE

    def run(self) -> Mapping[str, Resolution]:
        """Match the patterns. This is a pure function, which may run in another thread."""
        names = self.image.topics_by_name if self.sight is None else filter(self.sight, self.image.topics_by_name)
        found = match_patterns(self.patterns, names)
        return {pattern: Resolution(topics, self.image.version, self.wall_ms) for pattern, topics in found.items()}


class TopicSearches:
    """When a group has searched, and whether a search is running. This is in memory only."""

    __slots__ = ("_acls", "_is_running", "_names", "_searched_ms")

    def __init__(self) -> None:
        self._searched_ms: int | None = None
        self._names: object = None
        self._acls: object = None
        self._is_running = False

    def find_due(self, change: GroupChange, turn: Turn, sight: Sight | None = None) -> TopicSearch | None:
        """The search that is due now, if any."""
        state = change.state
        if not state.patterns or self._is_running:
            return None
        everything = TopicSearch(state.id, tuple(sorted(state.patterns)), turn.image, turn.wall_ms, sight)
        if self._is_stale(everything, turn):
            return everything
        unresolved = tuple(pattern for pattern in everything.patterns if pattern not in state.resolutions)
        return everything._replace(patterns=unresolved) if unresolved else None

    def _is_stale(self, search: TopicSearch, turn: Turn) -> bool:
        if self._searched_ms is None:
            return True
        age_ms = turn.monotonic_ms - self._searched_ms
        sees_others = search.sight is not None and self._acls is not turn.image.acls
        if self._names is not turn.image.topic_names or sees_others:
            return search.is_short or age_ms >= SEARCH_INTERVAL_MS
        return age_ms >= turn.config.group_consumer_regex_refresh_interval_ms

    def begin(self, search: TopicSearch, turn: Turn) -> None:
        self._searched_ms, self._names = turn.monotonic_ms, search.image.topic_names
        self._acls = search.image.acls
        self._is_running = not search.is_short

    def end(self) -> None:
        self._is_running = False


def store_resolutions(change: GroupChange, found: Mapping[str, Resolution]) -> bool:
    """Store what the patterns match. Returns whether any of them matches other topics than before. Patterns that no
    member uses any more are ignored."""
    news = False
    for pattern in sorted(found):
        if pattern in change.state.patterns:
            before = change.state.resolutions.get(pattern)
            news |= found[pattern].topics != (before.topics if before is not None else frozenset())
            change.store(change.state.resolution_record(pattern, found[pattern]))
    return news
