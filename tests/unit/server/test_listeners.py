"""The server as a whole: its limits, and how it stops. Clients are real; where time matters it is virtual."""

import asyncio
import errno
import socket
import struct
import subprocess
import sys
from collections.abc import Coroutine
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from ottla.broker.call import Answer, Client, Frame
from ottla.server import Server, ServerSettings
from tests.patience import PATIENCE_S
from tests.simulation.frame_client import FrameClient
from tests.simulation.loop import simulate
from tests.simulation.network import SimulatedNetwork
from tests.unit.server.serving import connected, offload, on_both_loops, run, serving, until


def echo(client: Client, frame: Frame) -> Answer:
    return [bytes(frame)]


# Many connections


@on_both_loops
def test_hundreds_of_idle_connections_cost_little_and_the_server_answers(loop: str) -> None:
    # A connection that has sent nothing, or half a size, has no buffer.
    async def main() -> None:
        async with serving(echo) as (server, port):
            idle = [await connected(port) for _ in range(300)]
            for client in idle[::2]:
                client.write(b"\0\0")
            await until(lambda: server.connections == 300 and server.traffic.bytes_in == 300)
            assert server.traffic.queued == 0
            active = await connected(port)
            active.write_frame(b"hello")
            assert await active.read_frame() == b"hello"
            for client in idle[::2]:
                client.write(b"\0\1x")
            assert [await client.read_frame() for client in idle[::2]] == [b"x"] * 150

    run(loop, main())


@on_both_loops
def test_connections_above_the_limits_are_refused_until_others_end(loop: str, caplog: pytest.LogCaptureFixture) -> None:
    # max.connections and max.connections.per.ip; a flood of refusals is one line in the log.
    async def main(settings: ServerSettings) -> None:
        async with serving(echo, settings) as (server, port):
            first, second = await connected(port), await connected(port)
            for _ in range(5):
                await (await connected(port)).wait_closed()
            assert server.traffic.refused == 5
            first.close()
            await until(lambda: server.connections == 1)
            third = await connected(port)
            for client in second, third:
                client.write_frame(b"in")
                assert await client.read_frame() == b"in"

    run(loop, main(ServerSettings(max_connections=2)))
    run(loop, main(ServerSettings(max_connections_per_ip=2)))
    assert ["max.connections" in caplog.messages[0], "max.connections.per.ip" in caplog.messages[1]] == [True, True]
    assert len(caplog.messages) == 2


EXHAUSTED = """
import asyncio, resource, socket, sys
import uvloop
from tests.unit.server.serving import connected, open_descriptors, serving, until
from tests.unit.server.test_listeners import echo

async def main() -> None:
    async with serving(echo) as (server, port):
        first = await connected(port)
        await until(lambda: server.connections == 1)
        crowd = [socket.socket() for _ in range(30)]
        limit = open_descriptors() + 10
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
        for client in crowd:
            client.connect(("127.0.0.1", port))
        await until(lambda: server.connections > 8)
        first.write_frame(b"alive")
        assert await first.read_frame() == b"alive"
        assert server.connections < 15
        for client in crowd:
            client.close()
        await until(lambda: server.connections == 1)
        again = await connected(port)
        again.write_frame(b"again")
        assert await again.read_frame() == b"again"
        print("survived")

factory = uvloop.new_event_loop if sys.argv[1] == "uvloop" else None
asyncio.Runner(loop_factory=factory).run(asyncio.wait_for(main(), 40))
"""


@on_both_loops
def test_accepting_goes_on_after_descriptors_ran_out(loop: str) -> None:
    # Existing connections are served meanwhile, and new ones when there are descriptors again.
    child = subprocess.run(
        [sys.executable, "-c", EXHAUSTED, loop],
        env={"PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert child.stdout == "survived\n", child.stderr


# Memory


@on_both_loops
def test_a_client_that_never_reads_holds_a_bounded_amount_and_disturbs_nobody(loop: str) -> None:
    # The client asks for far more than it reads. Its frames are no longer handled, and other clients are served.
    answer = bytes(100_000)
    settings = ServerSettings(unsent_bytes_max=1_000_000)

    def dispatch(client: Client, frame: Frame) -> Answer:
        return [answer] if len(frame) > 1 else [b"ok"]

    async def main() -> None:
        async with serving(dispatch, settings) as (server, port):
            greedy, other = await connected(port), await connected(port)
            greedy.transport.pause_reading()
            greedy.write_frame(*[b"more"] * 2000)  # 200 MB of answers
            handled = -1
            while handled != server.traffic.requests:
                handled = server.traffic.requests
                for _ in range(20):
                    other.write_frame(b"?")
                    assert await other.read_frame() == b"ok"
                    handled += 1
                assert server.traffic.unsent_memory <= 1_000_000 + len(answer) + 100
            assert server.traffic.requests < 1000
            greedy.transport.resume_reading()
            assert all([await greedy.read_frame() == answer for _ in range(2000)])
            await until(lambda: server.traffic.unsent_memory == 0)

    run(loop, main())


@on_both_loops
def test_the_sum_of_unread_answers_is_bounded_too(loop: str) -> None:
    # There are many clients that do not read. Each may have one answer more than the limit. A client that reads is
    # served.
    answer = bytes(1_000_000)
    settings = ServerSettings(unsent_bytes_max=50_000_000, unsent_memory_bytes_max=5_000_000)

    async def main() -> None:
        async with serving(lambda client, frame: [answer], settings) as (server, port):
            greedy = [await connected(port) for _ in range(4)]
            for client in greedy:
                client.transport.pause_reading()
                client.write_frame(*[b"more"] * 40)
            reader = await connected(port)
            for _ in range(5):
                reader.write_frame(b"one")
                assert await reader.read_frame() == answer
            assert server.traffic.unsent_memory <= 5_000_000 + 5 * (len(answer) + 4)
            for client in greedy:
                client.transport.resume_reading()
            for client in greedy:
                for _ in range(40):
                    assert len(await client.read_frame()) == len(answer)

    run(loop, main())


@on_both_loops
def test_large_requests_pause_while_too_many_request_bytes_are_queued(loop: str) -> None:
    # One request in progress and another that is arriving exceed the limit. The second is not read on until the first
    # is answered, and a third stops after its first bytes. Small requests of others are answered all the time.
    gates: list[asyncio.Future[Answer]] = []

    def dispatch(client: Client, frame: Frame) -> Answer | asyncio.Future[Answer]:
        if len(frame) < 10:
            return [bytes(frame)]
        gates.append(asyncio.get_running_loop().create_future())
        return gates[-1]

    async def main() -> None:
        async with serving(dispatch, ServerSettings(queued_max_request_bytes=150_000)) as (server, port):
            clients = [await connected(port) for _ in range(3)]
            clients[0].write_frame(bytes(100_000))
            await until(lambda: gates)
            assert server.traffic.queued == 100_000
            clients[1].write_frame(bytes(100_000))
            await until(lambda: server.traffic.queued > 150_000)
            clients[2].write_frame(b"small")
            assert await clients[2].read_frame() == b"small"
            clients[2].write_frame(bytes(1_000_000))
            await until(lambda: server.traffic.queued > 200_000)
            before = server.traffic.bytes_in
            for _ in range(50):
                await asyncio.sleep(0)
            assert server.traffic.bytes_in == before and server.traffic.queued < 300_000 and len(gates) == 1
            gates[0].set_result([b"done"])
            assert await clients[0].read_frame() == b"done"
            for number in (1, 2):
                while len(gates) <= number:
                    await asyncio.sleep(0.001)
                gates[number].set_result([b"done"])
                assert await clients[number].read_frame() == b"done"
            assert server.traffic.queued == 0

    run(loop, main())


@pytest.mark.parametrize("seed", range(5))
def test_frames_that_together_exceed_the_queue_arrive_one_after_the_other(seed: int) -> None:
    # Ten clients send a frame each, all at once; the sum is far above the limit, yet every frame is handled.
    async def main() -> None:
        settings = ServerSettings(queued_max_request_bytes=300_000)
        server = Server(lambda client, frame: [bytes(frame[:4])], settings, offload)
        network = SimulatedNetwork(Random(seed))
        network.listen("broker", 1, server.protocol_factory("PLAINTEXT"))
        clients = [await network.open_client(f"client-{number}", "broker", 1) for number in range(10)]
        most = 0

        async def watch() -> None:
            nonlocal most
            while True:
                most = max(most, server.traffic.queued)
                await asyncio.sleep(0.0001)

        watching = asyncio.create_task(watch())
        for number, client in enumerate(clients):
            client.write_frame(struct.pack(">i", number) + bytes(250_000))
        answers = [await client.read_frame() for client in clients]
        watching.cancel()
        assert answers == [struct.pack(">i", number) for number in range(10)]
        assert most <= 300_000 + 262_144 + len(clients) * 65_536
        await server.stop(1)

    simulate(main())


# Time, which is virtual here


class Simulation:
    """A server and a client in memory."""

    def __init__(self, settings: ServerSettings) -> None:
        self.network = SimulatedNetwork(Random(1))
        self.gate = asyncio.Event()
        self.server = Server(self.dispatch, settings, offload)
        self.network.listen("broker", 1, self.server.protocol_factory("PLAINTEXT"))

    def dispatch(self, client: Client, frame: Frame) -> Answer | Coroutine[Any, Any, Answer]:
        return self.slowly() if bytes(frame[:4]) == b"slow" else [bytes(frame)]

    async def slowly(self) -> Answer:
        await self.gate.wait()
        return [b"at last"]

    async def client(self) -> FrameClient:
        return await self.network.open_client("client", "broker", 1)


def test_a_silent_connection_is_closed_and_a_busy_one_is_not() -> None:
    # connections.max.idle.ms counts from the last byte; an answer that is being computed is not silence.
    async def main() -> None:
        simulation = Simulation(ServerSettings(connections_max_idle_ms=10_000))
        loop = asyncio.get_running_loop()
        silent, busy, waiting = [await simulation.client() for _ in range(3)]
        waiting.write_frame(b"slow")
        started = loop.time()
        for _ in range(4):
            await asyncio.sleep(4)
            busy.write_frame(b"ping")
            assert await busy.read_frame() == b"ping"
        await silent.wait_closed()
        assert [busy.closed, waiting.closed] == [False, False]
        await asyncio.sleep(100)
        assert [busy.closed, waiting.closed] == [True, False]
        simulation.gate.set()
        assert await waiting.read_frame() == b"at last"
        await waiting.wait_closed()
        assert loop.time() - started < 140

    simulate(main())


def test_a_frame_that_arrives_too_slowly_is_closed_and_a_steady_one_is_not() -> None:
    # One byte a second never finishes; 20 KB a second takes two minutes and may.
    async def main() -> None:
        simulation = Simulation(ServerSettings(frame_timeout_ms=30_000, frame_bytes_per_second_min=16_384))
        loop = asyncio.get_running_loop()
        dripping, steady = await simulation.client(), await simulation.client()
        dripping.write(struct.pack(">i", 1_000_000))
        steady.write(struct.pack(">i", 2_400_000))
        for second in range(120):
            steady.write(bytes(20_000))
            if not dripping.closed:
                dripping.write(b"x")
                assert second < 45
            await asyncio.sleep(1)
        assert dripping.closed
        assert len(await steady.read_frame()) == 2_400_000
        assert loop.time() < 130
        await simulation.server.stop(1)

    simulate(main())


def test_a_client_that_reads_no_answers_is_closed_after_a_while() -> None:
    # Its answers are dropped, and their memory is freed.
    async def main() -> None:
        simulation = Simulation(ServerSettings(connections_max_idle_ms=10_000, unsent_bytes_max=100_000))
        client = await simulation.client()
        client.transport.pause_reading()
        client.write_frame(*[bytes(50_000)] * 40)
        await asyncio.sleep(5)
        assert simulation.server.traffic.unsent_memory > 50_000
        await asyncio.sleep(20)
        assert simulation.server.connections == 0
        assert simulation.server.traffic.unsent_memory == 0

    simulate(main())


def test_a_pause_of_reading_does_not_count_against_a_frame() -> None:
    # Reading was paused for minutes in the middle of a frame, because the queue was full. Afterwards the frame has its
    # full time.
    async def main() -> None:
        settings = ServerSettings(frame_timeout_ms=30_000)
        simulation = Simulation(settings)
        client, other = await simulation.client(), await simulation.client()
        client.write(struct.pack(">i", 80_000) + bytes(40_000))
        await asyncio.sleep(1)
        traffic = simulation.server.traffic
        traffic.settings = replace(settings, queued_max_request_bytes=traffic.queued + 10)
        other.write_frame(b"slow" + bytes(20))
        await asyncio.sleep(300)
        assert simulation.server.traffic.requests == 1
        simulation.gate.set()
        assert await other.read_frame() == b"at last"
        await asyncio.sleep(25)
        client.write(bytes(40_000))
        assert len(await client.read_frame()) == 80_000
        await simulation.server.stop(1)

    simulate(main())


def test_a_frame_that_stops_does_not_delay_others() -> None:
    # A client that stops in the middle of its frame has time as long as there is space. When a second one has filled
    # the queue and a third waits for memory, connections that send nothing are closed within seconds.
    async def main() -> None:
        simulation = Simulation(ServerSettings(queued_max_request_bytes=150_000))
        first, second, late = [await simulation.client() for _ in range(3)]
        first.write(struct.pack(">i", 90_000) + bytes(80_000))
        await asyncio.sleep(60)
        assert simulation.server.connections == 3
        second.write(struct.pack(">i", 90_000) + bytes(80_000))
        late.write_frame(bytes(100_000))
        assert len(await late.read_frame()) == 100_000
        assert simulation.server.connections < 3
        await simulation.server.stop(1)

    simulate(main())


# Ending


def test_stopping_does_not_wait_for_idle_clients() -> None:
    # An idle client that does not even notice the end does not delay the stop.
    async def main() -> None:
        simulation = Simulation(ServerSettings(linger_ms=5000))
        client = await simulation.client()
        client.transport.pause_reading()
        started = asyncio.get_running_loop().time()
        await simulation.server.stop(10)
        assert asyncio.get_running_loop().time() - started < 1

    simulate(main())


def test_stopping_waits_briefly_for_a_client_that_does_not_read() -> None:
    # The end is sent after the answer. The connection is closed when the linger time is over.
    async def main() -> None:
        simulation = Simulation(ServerSettings(linger_ms=5000))
        client = await simulation.client()
        client.write_frame(b"slow")
        await asyncio.sleep(1)
        client.transport.pause_reading()
        started = asyncio.get_running_loop().time()
        stopping = asyncio.create_task(simulation.server.stop(60))
        simulation.gate.set()
        await stopping
        assert 4 < asyncio.get_running_loop().time() - started < 6
        client.transport.resume_reading()
        assert await client.read_frame() == b"at last"

    simulate(main())


@on_both_loops
def test_stopping_answers_what_is_in_progress_and_handles_nothing_new(loop: str) -> None:
    # An idle client sees the end at once; a busy one gets its answer, complete, and then the end.
    handled: list[bytes] = []
    gate = asyncio.Event()
    large = bytes(3_000_000)

    async def slowly() -> Answer:
        await gate.wait()
        return [large]

    def dispatch(client: Client, frame: Frame) -> Coroutine[Any, Any, Answer]:
        handled.append(bytes(frame))
        return slowly()

    async def main() -> None:
        async with serving(dispatch) as (server, port):
            idle, busy = await connected(port), await connected(port)
            busy.write_frame(b"first", b"second")
            await until(lambda: handled)
            stopping = asyncio.create_task(server.stop(10))
            await idle.wait_closed()
            with pytest.raises(OSError):
                await connected(port)
            busy.write_frame(b"third")
            assert not stopping.done()
            gate.set()
            assert await busy.read_frame() == large
            await busy.wait_closed()
            assert busy.error is None
            busy.close()
            await stopping
            assert handled == [b"first"]

    run(loop, main())


@on_both_loops
def test_a_connection_during_a_stop_does_not_delay_it(loop: str) -> None:
    # The connection was accepted before and is ready only now, as after a slow TLS handshake. Nobody would close it.
    gate = asyncio.Event()

    async def slowly() -> Answer:
        await gate.wait()
        return [b"done"]

    async def main() -> None:
        async with serving(lambda client, frame: slowly()) as (server, port):
            busy = await connected(port)
            busy.write_frame(b"first")
            await until(lambda: server.traffic.tasks)
            stopping = asyncio.create_task(server.stop(60))
            await until(lambda: server.traffic.emptied is not None)
            late, ours = socket.socketpair()
            late.setblocking(False)
            await asyncio.get_running_loop().connect_accepted_socket(server.protocol_factory("late"), ours)
            assert await asyncio.get_running_loop().sock_recv(late, 1) == b""
            late.close()
            gate.set()
            assert await busy.read_frame() == b"done"
            await busy.wait_closed()
            busy.close()
            async with asyncio.timeout(PATIENCE_S):
                await stopping

    run(loop, main())


@on_both_loops
def test_at_the_deadline_requests_are_cancelled_and_connections_closed(loop: str) -> None:
    # A request that never ends does not keep the server alive, but may clean up.
    events: list[str] = []

    async def never() -> Answer:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            events.append("cleaned up")
        return None

    async def main() -> None:
        async with serving(lambda client, frame: never()) as (server, port):
            client = await connected(port)
            client.write_frame(b"x")
            await until(lambda: server.traffic.requests)
            await server.stop(0.05)
            assert events == ["cleaned up"]
            assert not server.connections
            await client.wait_closed()

    run(loop, main())


@on_both_loops
def test_stopping_under_load_loses_no_answer_to_a_handled_request(loop: str) -> None:
    # Clients send without pause while the server stops: every handled request is answered.
    handled: dict[int, int] = {}
    answered: dict[int, int] = {}

    def dispatch(client: Client, frame: Frame) -> asyncio.Future[Answer]:
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        number = frame[0]
        handled[number] = handled.get(number, 0) + 1
        answer: Answer = [bytes(frame)]
        asyncio.get_running_loop().call_later(0.001, future.set_result, answer)
        return future

    async def load(number: int, client: FrameClient) -> None:
        client.write_frame(*[bytes([number])] * 10)
        try:
            while True:
                await client.read_frame()
                answered[number] = answered.get(number, 0) + 1
                client.write_frame(bytes([number]))
        except EOFError:
            client.close()

    async def main() -> None:
        async with serving(dispatch) as (server, port):
            loads = [asyncio.create_task(load(number, await connected(port))) for number in range(10)]
            await until(lambda: server.traffic.requests > 500)
            await server.stop(5)
            await asyncio.gather(*loads)
            assert answered == handled

    run(loop, main())


@on_both_loops
def test_several_listeners_share_the_server_and_a_taken_port_is_an_error(loop: str) -> None:
    # Each connection knows its listener's name.
    def dispatch(client: Client, frame: Frame) -> Answer:
        return [client.listener.encode()]

    async def main() -> None:
        async with serving(dispatch) as (server, port):
            other_port = await server.start("127.0.0.1", 0, "INTERNAL")
            with pytest.raises(OSError):
                await server.start("127.0.0.1", port, "TAKEN")
            for wanted, name in (port, b"PLAINTEXT"), (other_port, b"INTERNAL"):
                client = await connected(wanted)
                client.write_frame(b"?")
                assert await client.read_frame() == name

    run(loop, main())


@on_both_loops
@pytest.mark.parametrize("lacking", [None, socket.AF_INET6])
def test_every_interface_means_each_family_that_the_machine_has(
    loop: str, lacking: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    # One port for all families; a family that is missing is no error as long as another is there.
    plain = socket.socket

    def limited(family: int = -1, *arguments: Any, **options: Any) -> socket.socket:
        if lacking is not None and family == lacking:
            raise OSError(errno.EAFNOSUPPORT, "not supported")
        return plain(family, *arguments, **options)

    async def main() -> None:
        async with serving(echo) as (server, _):
            monkeypatch.setattr("ottla.server.listeners.socket.socket", limited)
            port = await server.start("", 0, "EVERYWHERE")
            monkeypatch.undo()
            client = await connected(port)
            client.write_frame(b"hello")
            assert await client.read_frame() == b"hello"

    run(loop, main())


@on_both_loops
def test_the_settings_of_sockets_are_applied(loop: str) -> None:
    # To the listening socket, from which accepted ones have their buffers. Linux doubles them for its own needs. Unset,
    # they are the system's, which adapts them to the network.
    def read_options(handle: Any) -> tuple[int, ...]:
        return tuple(handle.getsockopt(socket.SOL_SOCKET, option) for option in (socket.SO_RCVBUF, socket.SO_SNDBUF))

    async def main() -> None:
        plain = socket.create_server(("127.0.0.1", 0))
        async with serving(echo) as (server, _):
            listener: Any = server._listeners[0]
            assert read_options(listener.sockets[0]) == read_options(plain)
        plain.close()
        settings = ServerSettings(
            socket_listen_backlog_size=7, socket_receive_buffer_bytes=50_000, socket_send_buffer_bytes=60_000
        )
        async with serving(echo, settings) as (server, port):
            listener = server._listeners[0]
            # In the TCP_INFO of a listening socket, this field has the limit of its queue.
            info = listener.sockets[0].getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
            assert struct.unpack_from("=I", info, 28) == (7,)
            await connected(port)
            await until(lambda: server.connections)
            (connection,) = server._open_connections()
            accepted = connection._transport.get_extra_info("socket")
            assert read_options(listener.sockets[0]) == read_options(accepted) == (100_000, 120_000)

    run(loop, main())


@on_both_loops
def test_an_address_of_another_machine_is_an_error(loop: str) -> None:
    # That there is nothing to listen on is reported, not ignored.
    async def main() -> None:
        async with serving(echo) as (server, _):
            with pytest.raises(OSError, match="assign requested address"):
                await server.start("192.0.2.1", 0, "ELSEWHERE")

    run(loop, main())
