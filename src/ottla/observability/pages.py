"""The pages that a broker serves to those who watch it: /metrics and /health."""

from collections.abc import Callable

from ottla.broker.node import Node
from ottla.observability.endpoint import SERVICE_UNAVAILABLE, Page, Pages
from ottla.observability.metrics import CONTENT_TYPE
from ottla.observability.survey import exposition
from ottla.server import Server


def build_pages(node: Node, server: Server, stopping: Callable[[], bool]) -> Pages:
    """What the endpoint of a broker serves."""

    def health() -> Page:
        if stopping():
            return Page(iter(["stopping\n"]), SERVICE_UNAVAILABLE)
        return Page(iter(["running\n"]))

    def metrics() -> Page:
        return Page(exposition(node, server, stopping=stopping()), content_type=CONTENT_TYPE)

    return {"/health": health, "/metrics": metrics}
