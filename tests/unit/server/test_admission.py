"""Limits on connections: in total, for one address with its exceptions, and per second."""

import asyncio
import resource

import pytest

from ottla.cli import process
from ottla.server import ServerSettings
from ottla.server.admission import Admission
from tests.unit.server.serving import connected, on_both_loops, run, serving
from tests.unit.server.test_listeners import echo

HERE = "127.0.0.1"


def test_an_exception_may_be_wider_or_narrower_than_the_rule() -> None:
    # An exception names an address, or a host that has the address. All others have the general limit.
    limits = ServerSettings(max_connections_per_ip=2, max_connections_per_ip_overrides={"10.0.0.1": 3, "build": 0})
    admission = Admission()
    admission.host_names["10.0.0.2"] = "build"
    for _ in range(2):
        for address in (HERE, "10.0.0.1"):
            assert admission.find_refusal(address, 0, 0.0, limits) is None
            admission.enter(address, 0.0, limits)
    assert admission.find_refusal("10.0.0.1", 0, 0.0, limits) is None
    assert admission.find_refusal(HERE, 0, 0.0, limits) == "it has 2 (max.connections.per.ip)"
    assert admission.find_refusal("10.0.0.2", 0, 0.0, limits) == "it has 0 (max.connections.per.ip)"
    admission.leave(HERE)
    assert admission.find_refusal(HERE, 0, 0.0, limits) is None


def test_the_rate_is_limited_after_a_burst_of_one_second() -> None:
    # With ten per second, ten at once are accepted, and later ones come a tenth of a second apart. A pause is not saved
    # up.
    limits = ServerSettings(max_connection_creation_rate=10)
    admission = Admission()
    delays = [admission.enter(HERE, 100.0, limits) for _ in range(13)]
    assert delays == pytest.approx([0.0] * 10 + [0.1, 0.2, 0.3])
    delays = [admission.enter(HERE, 200.0, limits) for _ in range(12)]
    assert delays == pytest.approx([0.0] * 10 + [0.1, 0.2])


def test_a_connection_that_would_wait_too_long_is_refused() -> None:
    # A connection that would wait for more than ten seconds is refused. A rate of 0 refuses all.
    limits = ServerSettings(max_connection_creation_rate=10)
    admission = Admission()
    for _ in range(10 + 100):
        assert admission.find_refusal(HERE, 0, 5.0, limits) is None
        admission.enter(HERE, 5.0, limits)
    admission.enter(HERE, 5.0, limits)
    assert admission.find_refusal(HERE, 0, 5.0, limits) == "too many wait already (max.connection.creation.rate)"
    assert admission.find_refusal(HERE, 0, 6.0, limits) is None
    assert Admission().find_refusal(HERE, 0, 0.0, ServerSettings(max_connection_creation_rate=0)) is not None


def test_descriptors_are_a_limit_of_their_own() -> None:
    # The reported reason is not max.connections.
    limits = ServerSettings(descriptors_for_connections=5)
    assert "ulimit" in (Admission().find_refusal(HERE, 5, 0.0, limits) or "")
    assert Admission().find_refusal(HERE, 4, 0.0, limits) is None


@on_both_loops
def test_connections_that_come_too_fast_wait_and_are_served(loop: str) -> None:
    # With twenty per second, the last of 24 waits for a fifth of a second and is answered like the others. One that
    # ends while it waits leaves nothing behind.
    async def main() -> None:
        async with serving(echo, ServerSettings(max_connection_creation_rate=20)) as (server, port):
            began = asyncio.get_running_loop().time()
            clients = [await connected(port) for _ in range(24)]
            impatient = await connected(port)
            impatient.close()
            for client in clients:
                client.write_frame(b"hello")
            for client in clients:
                assert await client.read_frame() == b"hello"
            assert asyncio.get_running_loop().time() - began > 0.15
            assert server.traffic.refused == 0

    run(loop, main())


@on_both_loops
def test_a_host_is_known_by_its_name(loop: str) -> None:
    # The name is looked up when the listener opens. An unknown name is ignored.
    overrides = {"localhost": 1, "no-such-host.invalid": 5}

    async def main() -> None:
        async with serving(echo, ServerSettings(max_connections_per_ip_overrides=overrides)) as (_, port):
            first, second = await connected(port), await connected(port)
            first.write_frame(b"in")
            assert await first.read_frame() == b"in"
            await second.wait_closed()

    run(loop, main())


@pytest.mark.parametrize(
    ("soft", "hard", "allowed"),
    [(1024, 1024, 352), (256, 1024, 352), (10, 10, 1), (resource.RLIM_INFINITY, resource.RLIM_INFINITY, (1 << 31) - 1)],
)
def test_connections_are_fewer_than_descriptors(
    soft: int, hard: int, allowed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # There are as many as the process may open, with two descriptors for each, after the limit was raised and the logs
    # have had their share.
    raised: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda which: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda which, limits: raised.append(limits))
    assert process.connections_allowed() == allowed
    assert raised == ([(hard, hard)] if soft != hard else [])


def test_an_arrival_is_counted_once() -> None:
    # A connection with TLS is counted before its handshake, and not again when it is admitted.
    class Rates:
        is_active = True
        counted = 0

        def admit(self, address: str) -> bool:
            self.counted += 1
            return self.counted < 3

    async def scenario() -> None:
        rates = Rates()
        async with serving(echo) as (server, port):
            traffic = server.traffic
            traffic.admission.address_rates = rates
            client = await connected(port)
            client.write_frame(b"hello")
            await client.read_frame()
            assert rates.counted == 1
            (flow,) = traffic.flows
            traffic.release(flow)
            assert traffic.admit(flow, is_counted=True) == 0
            assert rates.counted == 1
            assert traffic.admission.count_arrival(HERE) is None
            refusal = traffic.admission.count_arrival(HERE)
            assert refusal is not None and "connection_creation_rate" in refusal
            client.close()

    run("asyncio", scenario())
