"""Tasks that fail in a row: when each of them may be tried again, and when the app has to end.

A task is tried again until task.timeout.ms has passed without success, as in Kafka Streams. A restore that goes on is
no failure, however long it takes: the time begins anew with every attempt that has seen it come further.
"""

from dataclasses import dataclass
from typing import Final

from ottla.streams.errors import StreamsError
from ottla.streams.running.work import STILL_RESTORING, Failure

RETRY_PAUSES_S: Final = (0.05, 0.2, 1.0, 3.0)
WHOLE: Final = -1
"""Stands for all partitions, where failures of the subtopology itself are noted."""


@dataclass
class _Trouble:
    """Failures in a row of one task."""

    since_s: float
    attempts: int = 0
    retry_at_s: float = 0.0


class Troubles:
    """The troubles of one subtopology. Times are seconds of a clock that never goes back."""

    def __init__(self, subtopology: str, limit_s: float) -> None:
        self._subtopology = subtopology
        self._limit_s = limit_s
        self._troubles: dict[int, _Trouble] = {}

    def __bool__(self) -> bool:
        return bool(self._troubles)

    def note(self, partition: int, failure: Failure, now_s: float) -> None:
        """A task has failed. Raises StreamsError if it has failed for too long."""
        trouble = self._troubles.setdefault(partition, _Trouble(now_s))
        if failure.kind == STILL_RESTORING:
            trouble.since_s = now_s
        if now_s - trouble.since_s > self._limit_s:
            where = self._subtopology if partition == WHOLE else f"{self._subtopology}, partition {partition}"
            raise StreamsError(f"{where}: no success within {self._limit_s:.0f} s: {failure.message}")
        trouble.retry_at_s = now_s + RETRY_PAUSES_S[min(trouble.attempts, len(RETRY_PAUSES_S) - 1)]
        trouble.attempts += 1

    def end(self, partition: int) -> bool:
        """The task has succeeded. Whether that has ended the last trouble."""
        return self._troubles.pop(partition, None) is not None and not self._troubles

    def pause_s(self, partition: int, now_s: float) -> float:
        """How long the task has to wait until it is tried again; 0 if it may be tried at once."""
        trouble = self._troubles.get(partition)
        return 0.0 if trouble is None else max(trouble.retry_at_s - now_s, 0.0)
