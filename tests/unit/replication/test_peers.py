"""Connections to the other brokers: which are kept, how a lost one comes back, and when a process counts as gone."""

import asyncio
import logging
from collections.abc import Coroutine
from random import Random
from typing import Any

import pytest

from ottla.cluster.changes import Endpoint
from ottla.cluster.image import EMPTY, Image
from ottla.replication.peers import Peers, PeerUnavailable
from ottla.wire import frames
from ottla.wire.messages.metadata import MetadataRequest, MetadataResponse
from ottla.wire.peer import PeerConnection
from tests.simulation.loop import simulate
from tests.simulation.network import SimulatedNetwork
from tests.unit.wire.scripted_broker import ScriptedBroker, encode

LISTENER = "INTERNAL"
REQUEST_S = 5.0


class FakeBroker:
    """As much of a BrokerImage as Peers looks at."""

    def __init__(self, broker_id: int, epoch: int, host: str, port: int = 9092) -> None:
        self.id = broker_id
        self.epoch = epoch
        self.fenced = False
        self.shutting_down = False
        self.endpoints = (Endpoint("CLIENTS", "elsewhere", 1, "PLAINTEXT"), Endpoint(LISTENER, host, port, "PLAINTEXT"))

    def endpoint(self, name: str) -> Endpoint | None:
        return next((endpoint for endpoint in self.endpoints if endpoint.name == name), None)


class FakeImage:
    def __init__(self, *brokers: FakeBroker) -> None:
        self._brokers = {broker.id: broker for broker in brokers}

    def alive_brokers(self) -> tuple[FakeBroker, ...]:
        return tuple(self._brokers.values())

    def broker(self, broker_id: int) -> FakeBroker | None:
        return self._brokers.get(broker_id)


class Cluster:
    """Broker 1, whose peers are tested, and others that answer Metadata with their id."""

    def __init__(self, seed: int = 1, login: Any = None) -> None:
        self.network = SimulatedNetwork(Random(seed))
        self.connections: list[int] = []
        self.gone: list[tuple[int, int]] = []
        self._image: Any = EMPTY
        self.peers = Peers(1, lambda: self._image, self.network.connector("b1"), LISTENER, Random(seed), login)
        self.peers.on_gone = lambda broker_id, epoch: self.gone.append((broker_id, epoch))

    def start(self, broker_id: int) -> None:
        def answer(broker: ScriptedBroker, header: frames.RequestHeader, request: bytes) -> None:
            broker.transport.write(encode(header, MetadataResponse(controller_id=broker_id)))

        def accept() -> ScriptedBroker:
            self.connections.append(broker_id)
            return ScriptedBroker(answer)

        self.network.listen(f"b{broker_id}", 9092, accept)

    def apply(self, **epochs: int) -> None:
        """Metadata with these brokers: b2=5 is broker 2 with epoch 5."""
        brokers = [FakeBroker(int(name[1:]), epoch, name) for name, epoch in epochs.items()]
        self._image = FakeImage(*brokers)
        self.peers.apply(self._image)

    def set_image(self, image: Image | FakeImage) -> None:
        self._image = image
        self.peers.apply(self._image)

    async def ask(self, broker_id: int, timeout_s: float = REQUEST_S) -> int:
        answer = await self.peers.request(broker_id, MetadataRequest(), timeout_s=timeout_s)
        found: int = answer.controller_id
        return found


def run(main: Coroutine[Any, Any, None]) -> None:
    simulate(main)


def test_requests_reach_the_broker_on_the_inter_broker_listener() -> None:
    async def main() -> None:
        cluster = Cluster()
        cluster.start(2)
        cluster.start(3)
        cluster.apply(b1=1, b2=5, b3=6)
        assert await asyncio.gather(*map(cluster.ask, (2, 3, 2))) == [2, 3, 2]
        assert sorted(cluster.connections) == [2, 3]  # one connection to each, none to itself
        cluster.peers.close()

    run(main())


def test_unknown_brokers_and_missing_addresses_are_unavailable() -> None:
    async def main() -> None:
        cluster = Cluster()
        cluster.set_image(FakeImage(FakeBroker(2, 5, "")))
        for broker_id, reason in ((2, "no address"), (7, "not registered")):
            with pytest.raises(PeerUnavailable, match=reason):
                await cluster.ask(broker_id)
        cluster.peers.close()
        with pytest.raises(PeerUnavailable, match="stopping"):
            await cluster.ask(2)

    run(main())


@pytest.mark.parametrize("stops", [False, True])
def test_a_process_that_ends_is_gone_at_once(stops: bool, caplog: pytest.LogCaptureFixture) -> None:
    # It is a warning, unless the broker has announced that it stops.
    async def main() -> None:
        cluster = Cluster()
        cluster.start(2)
        broker = FakeBroker(2, 5, "b2")
        cluster.set_image(FakeImage(FakeBroker(1, 1, "b1"), broker))
        assert await cluster.ask(2) == 2
        broker.shutting_down = stops
        cluster.network.crash("b2")
        await asyncio.sleep(0.02)
        assert cluster.gone == [(2, 5)]
        warnings = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
        assert warnings == ([] if stops else ["the process of broker 2 is gone: it refuses connections"])
        await asyncio.sleep(2)  # it is reported again until the metadata says that it is gone
        assert len(cluster.gone) > 2 and set(cluster.gone) == {(2, 5)}
        cluster.apply(b1=1)
        cluster.gone.clear()
        await asyncio.sleep(5)
        assert cluster.gone == []
        cluster.peers.close()

    run(main())


def test_a_connection_is_kept_without_requests() -> None:
    async def main() -> None:
        cluster = Cluster()
        cluster.start(2)
        cluster.apply(b2=5)
        await asyncio.sleep(1)
        assert cluster.connections == [2]
        cluster.network.crash("b2")
        await asyncio.sleep(0.02)
        assert cluster.gone == [(2, 5)]
        cluster.peers.close()

    run(main())


def test_a_reset_alone_is_no_death() -> None:
    async def main() -> None:
        cluster = Cluster()
        cluster.start(2)
        cluster.apply(b2=5)
        assert await cluster.ask(2) == 2
        cluster.network.reset_connections("b2")
        await asyncio.sleep(1)
        assert await cluster.ask(2) == 2
        assert cluster.gone == [] and cluster.connections == [2, 2]
        cluster.peers.close()

    run(main())


def test_a_broker_that_never_listened_is_not_gone() -> None:
    async def main() -> None:
        cluster = Cluster()
        cluster.apply(b2=5)
        with pytest.raises(PeerUnavailable, match="refused"):
            await cluster.ask(2)
        await asyncio.sleep(3)
        assert cluster.gone == []
        cluster.start(2)
        await asyncio.sleep(2)
        assert await cluster.ask(2) == 2
        cluster.peers.close()

    run(main())


def test_a_new_registration_is_not_blamed_for_the_end_of_the_old_process() -> None:
    async def main() -> None:
        cluster = Cluster()
        cluster.start(2)
        cluster.apply(b2=5)
        assert await cluster.ask(2) == 2
        cluster.network.crash("b2")
        cluster.apply(b2=9)  # before the reset has arrived
        await asyncio.sleep(3)
        assert (2, 9) not in cluster.gone
        cluster.apply(b2=11)  # while it is being connected to
        await asyncio.sleep(3)
        assert {epoch for _, epoch in cluster.gone} <= {5}
        cluster.start(2)
        await asyncio.sleep(2)
        assert await cluster.ask(2) == 2
        cluster.gone.clear()
        cluster.network.crash("b2")
        await asyncio.sleep(0.02)
        assert cluster.gone == [(2, 11)]
        cluster.peers.close()

    run(main())


def test_a_broker_that_registered_again_without_dying_is_gone_with_its_new_epoch() -> None:
    async def main() -> None:
        cluster = Cluster()
        cluster.start(2)
        cluster.apply(b2=5)
        assert await cluster.ask(2) == 2
        cluster.apply(b2=9)
        assert await cluster.ask(2) == 2
        cluster.network.crash("b2")
        await asyncio.sleep(0.02)
        assert cluster.gone == [(2, 9)]
        cluster.peers.close()

    run(main())


def test_a_cut_is_no_death_and_ends_with_a_time_out() -> None:
    async def main() -> None:
        cluster = Cluster()
        cluster.start(2)
        cluster.apply(b2=5)
        assert await cluster.ask(2) == 2
        cluster.network.partition("b1", "b2")
        with pytest.raises(PeerUnavailable, match="no answer"):
            await cluster.ask(2, 1.0)
        with pytest.raises(PeerUnavailable, match="no connection within 1 s"):
            await cluster.ask(2, 1.0)
        assert cluster.gone == []
        cluster.network.heal_all()
        await asyncio.sleep(2)
        assert await cluster.ask(2) == 2
        cluster.peers.close()

    run(main())


def test_a_broker_at_a_new_address_gets_a_new_connection() -> None:
    async def main() -> None:
        cluster = Cluster()
        cluster.start(2)
        cluster.start(3)
        cluster.apply(b2=5)
        assert await cluster.ask(2) == 2
        cluster.set_image(FakeImage(FakeBroker(2, 6, "b3")))
        assert await cluster.ask(2) == 3
        assert cluster.gone == []
        cluster.peers.close()

    run(main())


def test_requests_in_flight_fail_when_the_broker_leaves_the_metadata() -> None:
    async def main() -> None:
        cluster = Cluster()
        cluster.network.listen("b2", 9092, lambda: ScriptedBroker(lambda broker, header, request: None))
        cluster.apply(b2=5)
        request = asyncio.ensure_future(cluster.ask(2, 60))
        await asyncio.sleep(1)
        cluster.apply(b1=1)
        with pytest.raises(PeerUnavailable, match="not alive"):
            await request
        cluster.peers.close()

    run(main())


class FailingLogin:
    """First the connection ends right behind the last answer, then the login raises an error, then it succeeds."""

    context = None

    def __init__(self) -> None:
        self.failures: list[Exception | None] = [None, ValueError("a token that cannot be read")]

    async def enter(self, connection: PeerConnection) -> None:
        if self.failures:
            failure = self.failures.pop(0)
            if failure is not None:
                raise failure
            connection.eof_received()


def test_an_attempt_that_fails_in_any_way_is_followed_by_another() -> None:
    async def main() -> None:
        cluster = Cluster(login=FailingLogin())
        cluster.start(2)
        cluster.apply(b2=5)
        for reason in ("closed", "ValueError: a token"):
            with pytest.raises(PeerUnavailable, match=reason):
                await cluster.ask(2)
        assert await cluster.ask(2) == 2
        assert cluster.connections == [2, 2, 2] and cluster.gone == []
        cluster.peers.close()

    run(main())
