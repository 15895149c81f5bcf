"""What a broker with a metrics port has beside the others: the page, the watch of the event loop, clients' metrics."""

import asyncio
from collections.abc import Callable, Sequence
from random import Random

from ottla.broker.node import Node
from ottla.cluster.changes import Change
from ottla.cluster.image import Image
from ottla.config import BrokerConfig
from ottla.config.listeners import address_of
from ottla.observability.endpoint import PageServer
from ottla.observability.loop_watch import LoopWatch
from ottla.observability.pages import build_pages
from ottla.server import Server
from ottla.system.background import Job
from ottla.system.clock import thread_seconds
from ottla.telemetry.telemetry import Telemetry


class Monitoring:
    def __init__(self, config: BrokerConfig, image: Image, random: Random) -> None:
        clock = asyncio.get_running_loop().time
        self.telemetry = Telemetry(image, config.telemetry_max_bytes, clock, random)
        self._config = config
        self._watch: LoopWatch | None = None
        self._pages: PageServer | None = None

    def apply(self, before: Image, after: Image, changes: Sequence[Change]) -> None:
        self.telemetry.follow(before, after)

    async def open(self, node: Node, server: Server, listener_port: int, is_stopping: Callable[[], bool]) -> int:
        """Serve the page on the host of the first listener, which has the port `listener_port`. Returns its own."""
        listener = self._config.endpoints.bound[0]
        address = address_of(listener, listener_port)
        self._watch = LoopWatch(asyncio.get_running_loop().time, thread_seconds)
        self._pages = PageServer(build_pages(node, server, self._watch, address, is_stopping))
        assert self._config.metrics_port is not None
        return await self._pages.start(listener.host, self._config.metrics_port)

    def jobs(self) -> list[Job]:
        watching = [] if self._watch is None else [self._watch.job()]
        return [*watching, Job("expiry of client metrics", 10.0, self.telemetry.expire)]

    def close(self) -> None:
        if self._pages is not None:
            self._pages.close()
