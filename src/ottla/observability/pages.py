"""The pages of the monitoring endpoint: /metrics and /health."""

from collections.abc import Callable

from ottla.broker.node import Node
from ottla.observability.collectors import write_metrics
from ottla.observability.endpoint import SERVICE_UNAVAILABLE, Page, Pages
from ottla.observability.loop_watch import LoopWatch
from ottla.observability.metrics import CONTENT_TYPE
from ottla.server import Server


def build_pages(node: Node, server: Server, watch: LoopWatch, address: str, stopping: Callable[[], bool]) -> Pages:
    """The pages that the endpoint of a broker serves, by path. `address`: where the broker listens."""

    def health() -> Page:
        if stopping():
            return Page(iter(["stopping\n"]), SERVICE_UNAVAILABLE)
        return Page(iter(["running\n"]))

    def metrics() -> Page:
        return Page(write_metrics(node, server, watch, address, stopping=stopping()), content_type=CONTENT_TYPE)

    return {"/health": health, "/metrics": metrics}
