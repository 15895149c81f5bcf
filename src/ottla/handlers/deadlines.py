"""How long an admin request may wait for changes of the metadata, which nobody can make while the store is away."""

import asyncio

from ottla.broker.node import Node


class Deadline:
    """The end of the time that a request has for all of its changes together."""

    def __init__(self, node: Node, timeout_ms: int = 0) -> None:
        """`timeout_ms`: what the client asks for. Without it, the broker's own request time-out counts."""
        self._loop = asyncio.get_running_loop()
        self._at = self._loop.time() + (timeout_ms if timeout_ms > 0 else node.config.request_timeout_ms) / 1000

    def left_s(self) -> float:
        """Seconds that are left; never 0, so that a change that can be made at once is made."""
        return max(self._at - self._loop.time(), 0.01)
