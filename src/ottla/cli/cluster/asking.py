"""Questions that only each broker can answer for itself."""

from collections.abc import Iterable
from contextlib import closing
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.client.client import Client
    from ottla.client.connection import Request

ANSWER_MS = 3000
"""How long one broker may take to answer. One that is paused counts as alive for some seconds more, and must not hold
up a command that shows what is wrong."""


def ask_each_soon(own: "Client", brokers: Iterable[int], request: "Request") -> dict[int, Any]:
    """The answers by broker, without those that do not answer soon or do not know the request."""
    from ottla.client.client import Client
    from ottla.client.connection import Unreachable
    from ottla.errors import KafkaError

    limits = ("request.timeout.ms", "socket.connection.setup.timeout.ms", "default.api.timeout.ms")
    found = {}
    with closing(Client({**own.raw_settings, **dict.fromkeys(limits, str(ANSWER_MS))})) as client:
        client.list_brokers()
        for broker in brokers:
            try:
                found[broker] = client.connect(broker).ask(request)
            except (Unreachable, KafkaError):
                client.disconnect(broker)
    return found
