"""ListConfigResources: which brokers of a cluster are listed."""

from dataclasses import replace
from types import SimpleNamespace
from typing import cast

from ottla.broker.call import Call, Client
from ottla.broker.node import Node
from ottla.cluster.changes import ConfigResource, Endpoint
from ottla.cluster.configs import BROKER_LOGGER
from ottla.cluster.entities import BrokerImage
from ottla.cluster.image import EMPTY
from ottla.handlers import list_config_resources
from ottla.wire.messages.list_config_resources import ListConfigResourcesRequest


def test_fenced_brokers_are_listed_and_those_of_another_listener_are_not() -> None:
    """As in Kafka, a broker that is away has its settings, and a client sees the brokers of its listener."""
    brokers = EMPTY.brokers
    for number, listener, fenced in ((1, "PLAINTEXT", False), (2, "PLAINTEXT", True), (3, "INTERNAL", False)):
        address = (Endpoint(listener, f"host-{number}", 9092, "PLAINTEXT"),)
        brokers = brokers.set(number, BrokerImage(number, 7, address, None, fenced=fenced, clean=True))
    node = cast(Node, SimpleNamespace(image=replace(EMPTY, brokers=brokers)))

    def list_brokers(listener: str) -> list[tuple[int, str]]:
        request = ListConfigResourcesRequest(resource_types=[ConfigResource.BROKER, BROKER_LOGGER])
        client = Client(1, listener, ("client", 1), ("here", 9092))
        answer = list_config_resources.handle(node, Call(74, 1, 1, None, request, client))
        return [(each.resource_type, each.resource_name) for each in answer.config_resources]

    both = (ConfigResource.BROKER, BROKER_LOGGER)
    assert list_brokers("PLAINTEXT") == [(kind, name) for kind in both for name in ("1", "2")]
    assert list_brokers("INTERNAL") == [(kind, "3") for kind in both]
