"""A connection between brokers: pipelined answers, time-outs, limits, and everything a broken other end can send."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from random import Random
from struct import pack

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.system.network import connect_to_socket
from ottla.wire import fetch, frames
from ottla.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.wire.messages.metadata import MetadataRequest, MetadataResponse
from ottla.wire.peer import IN_FLIGHT_MAX, PeerConnection, PeerUnavailable, open_peer
from tests.simulation.loop import simulate
from tests.simulation.network import SimulatedNetwork
from tests.unit.wire.scripted_broker import Answer, ScriptedBroker, encode, frame

LIMIT = 1_000_000


def answer_with_key(broker: ScriptedBroker, header: frames.RequestHeader, request: bytes) -> None:
    broker.transport.write(encode(header, MetadataResponse(controller_id=header.correlation_id)))


def run(
    answer: Answer, use: Callable[[PeerConnection, ScriptedBroker], Awaitable[None]], *, greets: bool = True
) -> None:
    """Open a connection to a broker that answers so, and use it; a few seeds, because bytes arrive in any pieces."""

    async def main(seed: int) -> None:
        network = SimulatedNetwork(Random(seed))
        brokers: list[ScriptedBroker] = []

        def accept() -> ScriptedBroker:
            brokers.append(ScriptedBroker(answer, greets=greets))
            return brokers[-1]

        network.listen("b", 9092, accept)
        connection = await open_peer(
            network.connector("a"), "b", 9092, client_id="broker-1", timeout_s=5, answer_bytes_max=LIMIT
        )
        await use(connection, brokers[-1])
        connection.close()

    for seed in range(5):
        simulate(main(seed))


def test_pipelined_requests_get_their_own_answers() -> None:
    async def use(connection: PeerConnection, broker: ScriptedBroker) -> None:
        answers = await asyncio.gather(*(connection.request(MetadataRequest(), timeout_s=5) for _ in range(50)))
        assert [answer.controller_id for answer in answers] == list(range(2, 52))
        assert len({header.client_id for header in broker.requests} - {"broker-1"}) == 0

    run(answer_with_key, use)


def test_a_large_fetch_answer_arrives_whole_and_its_records_are_views() -> None:
    records = Random(3).randbytes(400_000)

    def answer(broker: ScriptedBroker, header: frames.RequestHeader, request: bytes) -> None:
        result = fetch.PartitionResult(0, records=records)
        response = fetch.FetchResponse(topics=[fetch.TopicResult(topic_id=b"i" * 16, partitions=[result])])
        start = frames.response_header(frames.api(1), header.api_version, header.correlation_id)
        parts = fetch.write_response(header.api_version, response, start)
        broker.transport.write(frame(b"".join(bytes(part) for part in parts)))  # type: ignore[arg-type]

    async def use(connection: PeerConnection, broker: ScriptedBroker) -> None:
        for _ in range(3):
            answer = await connection.request(fetch.FetchRequest(), timeout_s=60)
            found = answer.topics[0].partitions[0].records
            assert isinstance(found, memoryview) and found == records
            del answer, found

    run(answer, use)


def test_a_request_that_the_other_broker_does_not_know_is_refused() -> None:
    def answer(broker: ScriptedBroker, header: frames.RequestHeader, request: bytes) -> None:
        only = ApiVersionsResponse(api_keys=[ApiVersion(api_key=3, min_version=0, max_version=1000)])
        broker.transport.write(encode(header, only))

    async def use(connection: PeerConnection, broker: ScriptedBroker) -> None:
        with pytest.raises(KafkaError) as caught:
            await connection.request(FindCoordinatorRequest(), timeout_s=5)
        assert caught.value.code == ErrorCode.UNSUPPORTED_VERSION

    run(answer, use, greets=False)


def break_with(broken: bytes) -> Answer:
    return lambda broker, header, request: broker.transport.write(broken)


BROKEN = {
    "garbage": b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "a negative size": pack(">i", -1),
    "an empty answer": pack(">i", 0),
    "a giant answer": pack(">ii", 2**31 - 1, 2),
    "an answer just above the limit": pack(">ii", LIMIT + 1, 2),
    "an unknown correlation id": frame(pack(">i", 77)),
    "a body that ends early": frame(pack(">ixi", 2, 5)),
}


@pytest.mark.parametrize("name", BROKEN)
def test_bytes_that_are_no_answer_fail_everything_in_flight(name: str) -> None:
    async def use(connection: PeerConnection, broker: ScriptedBroker) -> None:
        reasons: list[str] = []
        connection.on_lost = reasons.append
        requests = [asyncio.ensure_future(connection.request(MetadataRequest(), timeout_s=5)) for _ in range(3)]
        await asyncio.wait(requests)
        assert all(isinstance(request.exception(), PeerUnavailable) for request in requests)
        assert not connection.is_ready and len(reasons) == 1
        with pytest.raises(PeerUnavailable):
            await connection.request(MetadataRequest(), timeout_s=5)

    run(break_with(BROKEN[name]), use)


@pytest.mark.parametrize("end", ["reset", "close"])
def test_a_connection_that_ends_fails_everything_in_flight(end: str) -> None:
    def answer(broker: ScriptedBroker, header: frames.RequestHeader, request: bytes) -> None:
        broker.transport.abort() if end == "reset" else broker.transport.close()

    async def use(connection: PeerConnection, broker: ScriptedBroker) -> None:
        with pytest.raises(PeerUnavailable):
            await connection.request(MetadataRequest(), timeout_s=5)
        assert not connection.is_ready

    run(answer, use)


def test_a_silent_broker_loses_the_connection_when_a_request_times_out() -> None:
    async def use(connection: PeerConnection, broker: ScriptedBroker) -> None:
        started = asyncio.get_running_loop().time()
        other = asyncio.ensure_future(connection.request(FindCoordinatorRequest(), timeout_s=60))
        with pytest.raises(PeerUnavailable, match="no answer to Metadata within 2 s"):
            await connection.request(MetadataRequest(), timeout_s=2)
        assert asyncio.get_running_loop().time() - started < 2.1
        await asyncio.wait([other])
        assert isinstance(other.exception(), PeerUnavailable) and not connection.is_ready

    run(lambda broker, header, request: None, use)


def test_a_slow_answer_is_dropped_while_others_arrive() -> None:
    def answer(broker: ScriptedBroker, header: frames.RequestHeader, request: bytes) -> None:
        delay_s = 3.0 if header.api_key == 10 else 1.0
        response = FindCoordinatorResponse() if header.api_key == 10 else MetadataResponse(controller_id=9)
        asyncio.get_running_loop().call_later(delay_s, broker.transport.write, encode(header, response))

    async def use(connection: PeerConnection, broker: ScriptedBroker) -> None:
        slow = asyncio.ensure_future(connection.request(FindCoordinatorRequest(), timeout_s=2))
        assert (await connection.request(MetadataRequest(), timeout_s=5)).controller_id == 9
        await asyncio.wait([slow])
        assert isinstance(slow.exception(), PeerUnavailable)
        await asyncio.sleep(3)  # the late answer arrives
        assert (await connection.request(MetadataRequest(), timeout_s=5)).controller_id == 9

    run(answer, use)


def test_a_cancelled_request_leaves_the_connection_usable() -> None:
    async def use(connection: PeerConnection, broker: ScriptedBroker) -> None:
        request = asyncio.ensure_future(connection.request(MetadataRequest(), timeout_s=5))
        await asyncio.sleep(0)
        request.cancel()
        assert (await connection.request(MetadataRequest(), timeout_s=5)).controller_id == 3

    run(answer_with_key, use)


def test_more_requests_than_the_limit_are_refused() -> None:
    async def use(connection: PeerConnection, broker: ScriptedBroker) -> None:
        waiting = [connection.send(MetadataRequest(), 5) for _ in range(IN_FLIGHT_MAX)]
        with pytest.raises(PeerUnavailable, match="in flight"):
            await connection.request(MetadataRequest(), timeout_s=5)
        connection.close()
        assert all(isinstance(answer.exception(), PeerUnavailable) for answer in waiting)

    run(lambda broker, header, request: None, use)


def test_a_broker_that_never_answers_api_versions_is_given_up() -> None:
    async def main() -> None:
        network = SimulatedNetwork(Random(1))
        broker = ScriptedBroker(lambda broker, header, request: None, greets=False)
        network.listen("b", 9092, lambda: broker)
        with pytest.raises(PeerUnavailable, match="no answer within 5 s"):
            await open_peer(network.connector("a"), "b", 9092, client_id="x", timeout_s=5)
        await asyncio.sleep(1)
        assert broker.transport.is_closing()

    simulate(main())


def test_a_connection_that_ends_behind_the_last_answer_is_not_handed_out() -> None:
    """The caller asks to be told of the end only when it has the connection, so it would never know."""

    async def main() -> None:
        network = SimulatedNetwork(Random(1))
        broker = ScriptedBroker(answer_with_key)
        network.listen("b", 9092, lambda: broker)

        async def log_in(connection: PeerConnection) -> None:
            await connection.learn_versions()
            connection.eof_received()

        with pytest.raises(PeerUnavailable, match="closed"):
            await open_peer(network.connector("a"), "b", 9092, client_id="x", timeout_s=5, login=log_in)

    simulate(main())


def test_any_error_while_a_connection_is_set_up_means_that_the_broker_is_unavailable() -> None:
    """Whoever keeps a connection tries again then, and would give up for ever on another error."""

    async def main() -> None:
        for host in ("a..b", "x" * 70):
            with pytest.raises(PeerUnavailable, match=r"UnicodeError.*label"):
                await open_peer(connect_to_socket, host, 9092, client_id="x", timeout_s=60)

    asyncio.run(main())


def test_a_refused_connection_is_recognized() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

        async def main() -> None:
            with pytest.raises(PeerUnavailable) as caught:
                await open_peer(connect_to_socket, "127.0.0.1", port, client_id="x", timeout_s=60)
            assert caught.value.is_refused

        asyncio.run(main())
