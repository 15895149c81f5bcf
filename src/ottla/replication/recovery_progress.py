"""Logs the progress of recovery while a broker starts."""

import logging

from ottla.system.clock import Clock

logger = logging.getLogger(__name__)

INTERVAL_MS = 1000


class RecoveryProgress:
    """Logs at most one line a second, and none if all logs are recovered within a second."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._shown_ms = clock.now_ms()

    def show(self, path: str, done: int, total: int) -> None:
        now_ms = self._clock.now_ms()
        # A wall clock may also be set back; then the second begins again.
        if now_ms < self._shown_ms:
            self._shown_ms = now_ms
        if now_ms - self._shown_ms >= INTERVAL_MS:
            self._shown_ms = now_ms
            logger.info("recovering %s: %.1f of %.1f MB", path, done / 1e6, total / 1e6)
