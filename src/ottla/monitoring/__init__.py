"""What an operator watches: every metric of a broker, read on request and served over HTTP.

catalogue.py       the table of all metrics             survey.py      the broker's own numbers, read part by part
coordinators.py    those of groups and transactions     process.py     the operating system's numbers
endpoint.py        GET /metrics and GET /health on a port of their own
"""

from collections.abc import Callable

from ottla.metrics import CONTENT_TYPE
from ottla.monitoring.endpoint import SERVICE_UNAVAILABLE, Page, Pages
from ottla.monitoring.survey import exposition
from ottla.node import Node
from ottla.server import Server


def pages_of(node: Node, server: Server, stopping: Callable[[], bool]) -> Pages:
    """What the endpoint of a broker serves."""

    def health() -> Page:
        if stopping():
            return Page(iter(["stopping\n"]), SERVICE_UNAVAILABLE)
        return Page(iter(["running\n"]))

    def metrics() -> Page:
        return Page(exposition(node, server, stopping=stopping()), content_type=CONTENT_TYPE)

    return {"/health": health, "/metrics": metrics}
