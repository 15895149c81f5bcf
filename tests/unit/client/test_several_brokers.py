"""The client and a cluster of several brokers: whom it asks after a wrong answer, or when a broker is gone."""

from typing import Any

import pytest

from ottla.client.client import Client
from ottla.client.connection import Unreachable
from ottla.errors import ErrorCode
from ottla.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from ottla.wire.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseBroker


class Brokers(Client):
    """A client whose brokers are played by the test. Each names the coordinator that it believes in."""

    def __init__(self, *alive: int, bootstrap: str = "nowhere:1") -> None:
        super().__init__({"bootstrap.servers": bootstrap, "retry.backoff.ms": "1", "default.api.timeout.ms": "2000"})
        self.alive = list(alive)
        self.believes = dict.fromkeys(alive, alive[0])
        """Who is the coordinator, as each broker sees it."""
        self.coordinator = alive[0]
        self.listed: dict[int, list[ListGroupsResponse]] = {}
        self.asked: list[tuple[int, str]] = []

    def connect(self, node: int) -> Any:
        brokers = self

        class Played:
            def ask(self, request: Any, version_max: int | None = None) -> Any:
                number = brokers.alive[-1 - node] if node < 0 else node
                brokers.asked.append((number, type(request).__name__))
                if number not in brokers.alive:
                    raise Unreachable(f"broker {number}")
                return brokers.answer(number, request)

            def close(self) -> None: ...

        self._connections.setdefault(node, Played())  # type: ignore[arg-type]
        return self._connections[node]

    def answer(self, node: int, request: Any) -> Any:
        if isinstance(request, MetadataRequest):
            brokers = [MetadataResponseBroker(node_id=each, host="h", port=each) for each in self.alive]
            return MetadataResponse(brokers=brokers)
        if isinstance(request, FindCoordinatorRequest):
            return FindCoordinatorResponse(coordinators=[Coordinator(key="g", node_id=self.believes[node], host="h")])
        if isinstance(request, HeartbeatRequest):
            return HeartbeatResponse(error_code=0 if node == self.coordinator else ErrorCode.NOT_COORDINATOR)
        assert isinstance(request, ListGroupsRequest)
        return self.listed[node].pop(0)


def test_a_broker_that_names_a_wrong_coordinator_is_not_the_only_one_asked() -> None:
    """It may be cut off from the others, and would name the old coordinator again and again."""
    client = Brokers(1, 2, 3)
    client.list_brokers()
    client.coordinator = client.believes[2] = client.believes[3] = 2  # broker 1 has not heard of it
    assert client.ask_coordinator("group", "g", HeartbeatRequest(group_id="g")).error_code == 0
    assert (1, "FindCoordinatorRequest") in client.asked, "broker 1 is asked first"


def test_a_client_that_knows_one_broker_also_asks_its_other_bootstrap_servers() -> None:
    client = Brokers(1, 2, 3, bootstrap="nowhere:1,nowhere:2")
    client.coordinator = client.believes[2] = client.believes[3] = 2
    assert client.ask_coordinator("group", "g", HeartbeatRequest(group_id="g")).error_code == 0


def test_a_coordinator_that_is_gone_is_looked_up_again() -> None:
    client = Brokers(1, 2, 3)
    client.list_brokers()
    client.believes = dict.fromkeys((1, 2, 3), 3)
    client.coordinator = 3
    assert client.ask_coordinator("group", "g", HeartbeatRequest(group_id="g")).error_code == 0
    client.alive = [1, 2]
    client.believes = dict.fromkeys((1, 2), 2)
    client.coordinator = 2
    assert client.ask_coordinator("group", "g", HeartbeatRequest(group_id="g")).error_code == 0


def groups(*names: str, code: int = 0) -> ListGroupsResponse:
    return ListGroupsResponse(error_code=code, groups=[ListedGroup(group_id=name) for name in names])


def test_every_broker_is_asked_again_when_one_is_gone() -> None:
    """What broker 3 kept is with broker 1 by then."""
    client = Brokers(1, 2, 3)
    client.listed = {1: [groups("a"), groups("a", "c")], 2: [groups("b"), groups("b")]}

    def answer(node: int, request: Any) -> Any:
        if node == 3:
            client.alive = [1, 2]
            raise Unreachable("broker 3")
        return Brokers.answer(client, node, request)

    client.answer = answer  # type: ignore[method-assign]
    answers = client.ask_each(ListGroupsRequest())
    assert {node: [group.group_id for group in found.groups] for node, found in answers.items()} == {
        1: ["a", "c"],
        2: ["b"],
    }


def test_every_broker_is_asked_again_while_one_is_loading() -> None:
    client = Brokers(1, 2)
    loading = groups(code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    client.listed = {1: [groups("a"), groups()], 2: [loading, groups("a")]}
    answers = client.ask_each(ListGroupsRequest())
    assert [len(answers[node].groups) for node in (1, 2)] == [0, 1]


def test_a_broker_that_stays_away_is_an_error() -> None:
    client = Brokers(1, 2)

    def answer(node: int, request: Any) -> Any:
        if node == 2:
            raise Unreachable("broker 2")
        client.listed = {1: [groups()]}
        return Brokers.answer(client, node, request)

    client.answer = answer  # type: ignore[method-assign]
    with pytest.raises(Unreachable):
        client.ask_each(ListGroupsRequest())
