"""When the patterns of a consumer group are matched with all topics, and what comes of it.

Few topics are matched at once, within the turn. Where there are many it is an errand: the group goes on without, and
the end of the search is another turn. Searches run when a pattern is new, when there are other topics than the last
time, and from time to time.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from ottla.cluster.image import Image
from ottla.coordinators.consumer.regular_expressions import match_patterns
from ottla.coordinators.consumer.state import Change, Resolution
from ottla.coordinators.machine import Turn

MATCHES_AT_ONCE: Final = 1000
"""Topics times patterns that are matched within a turn: a few milliseconds."""

SEARCH_INTERVAL_MS: Final = 10_000
"""The least time between two searches among many topics, however often topics come and go."""


class TopicSearch(NamedTuple):
    """An errand: find the topics that patterns of a group stand for."""

    group_id: str
    patterns: tuple[str, ...]
    image: Image
    wall_ms: int

    @property
    def is_short(self) -> bool:
        return len(self.patterns) * len(self.image.topic_names) <= MATCHES_AT_ONCE

    def run(self) -> Mapping[str, Resolution]:
        """A pure function of the search, wherever it runs."""
        found = match_patterns(self.patterns, self.image.topics_by_name)
        return {pattern: Resolution(topics, self.image.version, self.wall_ms) for pattern, topics in found.items()}


class TopicSearches:
    """What a group remembers of its searches; none of it outlives the coordinator."""

    __slots__ = ("_names", "_running", "_searched_ms")

    def __init__(self) -> None:
        self._searched_ms: int | None = None
        self._names: object = None
        self._running = False

    def find_due(self, change: Change, turn: Turn) -> TopicSearch | None:
        """What should be looked for now."""
        state = change.state
        if not state.patterns or self._running:
            return None
        everything = TopicSearch(state.id, tuple(sorted(state.patterns)), turn.image, turn.wall_ms)
        if self._is_stale(everything, turn):
            return everything
        unresolved = tuple(pattern for pattern in everything.patterns if pattern not in state.resolutions)
        return everything._replace(patterns=unresolved) if unresolved else None

    def _is_stale(self, search: TopicSearch, turn: Turn) -> bool:
        if self._searched_ms is None:
            return True
        age_ms = turn.monotonic_ms - self._searched_ms
        if self._names is not turn.image.topic_names:
            return search.is_short or age_ms >= SEARCH_INTERVAL_MS
        return age_ms >= turn.config.group_consumer_regex_refresh_interval_ms

    def begin(self, search: TopicSearch, turn: Turn) -> None:
        self._searched_ms, self._names = turn.monotonic_ms, search.image.topic_names
        self._running = not search.is_short

    def end(self) -> None:
        self._running = False


def store_resolutions(change: Change, found: Mapping[str, Resolution]) -> bool:
    """Whether a pattern stands for other topics than before. Patterns that nobody uses any more are passed over."""
    news = False
    for pattern in sorted(found):
        if pattern in change.state.patterns:
            before = change.state.resolutions.get(pattern)
            news |= found[pattern].topics != (before.topics if before is not None else frozenset())
            change.store(change.state.resolution_record(pattern, found[pattern]))
    return news
