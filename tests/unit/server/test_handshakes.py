"""TLS handshakes: how many there are, when one begins, and whose turn it is."""

import asyncio
import gc
import socket
import ssl
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from ottla.config import BrokerConfig
from ottla.security.listener import ListenerSecurity
from ottla.server import Server
from ottla.server.connection import Connection
from ottla.server.entrance import Entrance
from ottla.server.handshakes import Handshakes, TlsListener
from ottla.server.hellos import (
    FORGIVEN_PER_S,
    HELLO_BYTES_MAX,
    UNUSED_MAX,
    Pace,
    Turns,
    Unused,
    is_whole,
    wait_for_hello,
)
from ottla.server.traffic import ServerSettings, Traffic
from tests.clients.secured import Certificates
from tests.patience import PATIENCE_S
from tests.unit.server.serving import offload, on_both_loops
from tests.unit.server.serving import run as run_on


def make_hello() -> bytes:
    outgoing = ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    with suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="broker").do_handshake()
    return outgoing.read()


def test_a_hello_is_whole_when_its_last_byte_is_there() -> None:
    # In one record or in many, as a client may send it to make the broker begin early.
    hello = make_hello()
    content = hello[5:]
    pieces = [content[start : start + 50] for start in range(0, len(content), 50)]
    spread = b"".join(b"\x16\x03\x01" + len(piece).to_bytes(2, "big") + piece for piece in pieces)
    for whole in (hello, spread):
        assert not any(is_whole(whole[:size]) for size in range(len(whole)))
        assert is_whole(whole)
        assert is_whole(whole + b"more")
    assert is_whole(b"GET / HTTP/1.1")  # whoever does not speak TLS is refused at once
    assert is_whole(b"\x16\x03\x01\x40\x00\x01\xff\xff\xff" + bytes(HELLO_BYTES_MAX))


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


def test_more_handshakes_than_the_limit_are_given_up_at_once() -> None:
    # Also if they all come within one iteration of the loop, in which no task can end.
    async def main() -> None:
        handshakes = Handshakes(Traffic(ServerSettings()), offload, limit=10)
        other = asyncio.create_task(asyncio.sleep(1000))
        handshakes.add("10.0.0.2", other)
        tasks = [asyncio.create_task(asyncio.sleep(1000)) for _ in range(64)]
        for task in tasks:
            handshakes.add("10.0.0.1", task)
            assert len(handshakes) <= 10
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert [task.cancelled() for task in tasks] == [True] * 55 + [False] * 9
        assert not other.cancelled()
        for task in (*tasks, other):
            task.cancel()
        await asyncio.gather(*tasks, other, return_exceptions=True)
        assert len(handshakes) == 0

    run(main())


def test_a_handshake_waits_for_its_hello() -> None:
    async def main() -> None:
        loop, (ours, theirs) = asyncio.get_running_loop(), socket.socketpair()
        ours.setblocking(False)
        waiting = asyncio.create_task(wait_for_hello(loop, ours, Pace(loop)))
        hello = make_hello()
        for size in (0, 3, 100):
            theirs.sendall(hello[:size])
            hello = hello[size:]
            for _ in range(5):
                await asyncio.sleep(0)
            assert not waiting.done()
        theirs.sendall(hello)
        await waiting
        assert ours.recv(3) == b"\x16\x03\x01"  # it was only looked at
        gone = asyncio.create_task(wait_for_hello(loop, theirs, Pace(loop)))
        ours.close()
        with suppress(ConnectionError):
            await gone
            raise AssertionError("the client has left")
        theirs.close()

    run(main())


def make_config(certificates: Certificates, client_auth: str = "none") -> BrokerConfig:
    settings = {"listeners": "SSL://127.0.0.1:0", "ssl.keystore.type": "PEM", "ssl.truststore.type": "PEM"}
    settings |= {"ssl.client.auth": client_auth, "ssl.truststore.location": str(certificates.ca)}
    return BrokerConfig.of({**settings, "ssl.keystore.location": str(certificates.broker())})


def find_connections() -> list[Connection]:
    return [each for each in gc.get_objects() if type(each) is Connection]  # isinstance would ask dead proxies


@on_both_loops
def test_connections_with_tls_are_freed_without_the_garbage_collector(loop: str, tmp_path: Path) -> None:
    # A broker collects garbage so rarely that a flood of handshakes would take hundreds of megabytes.
    certificates = Certificates(tmp_path)
    config = make_config(certificates)
    trusting = ssl.create_default_context(cafile=certificates.ca)

    def shake_hands(port: int) -> None:
        with (
            socket.create_connection(("127.0.0.1", port), PATIENCE_S) as plain,
            trusting.wrap_socket(plain, server_hostname="127.0.0.1") as client,
        ):
            client.sendall(b"\0\0\0\x01x")
            assert client.recv(100)
            client.unwrap().close()

    def say_hello_only(port: int) -> None:
        with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as plain:
            plain.sendall(make_hello())
            assert plain.recv(100)

    async def main() -> None:
        server = Server(lambda client, frame: [b"answer"], ServerSettings(), offload)
        server.secure("SSL", Entrance(ListenerSecurity(config.endpoints.bound[0], config, None)))
        port = await server.start("127.0.0.1", 0, "SSL")
        for _ in range(5):
            await asyncio.get_running_loop().run_in_executor(None, shake_hands, port)
            await asyncio.get_running_loop().run_in_executor(None, say_hello_only, port)
        while server.connections or len(server._handshakes or ()):
            await asyncio.sleep(0.001)
        await server.stop(PATIENCE_S)

    gc.collect()
    gc.disable()
    try:
        others = find_connections()  # of brokers that other tests share
        run_on(loop, main())
        left = [each for each in find_connections() if each not in others]
        assert len(left) <= 1  # a loop may have kept its last call
    finally:
        gc.enable()


@on_both_loops
def test_a_connection_that_arrives_just_before_the_end_is_closed(loop: str, tmp_path: Path) -> None:
    # Its handshake has not taken its first step, so there is nothing yet that would close the connection.
    config = make_config(Certificates(tmp_path))

    async def main() -> None:
        handshakes = Handshakes(Traffic(ServerSettings()), offload)
        bound = socket.create_server(("127.0.0.1", 0))
        listener = TlsListener(
            bound, asyncio.Protocol, ListenerSecurity(config.endpoints.bound[0], config, None), handshakes, 10
        )
        with socket.create_connection(bound.getsockname(), PATIENCE_S) as client:
            await listener.start_serving()
            listener._accept()
            assert len(handshakes) == 1
            listener.close()
            while len(handshakes):
                await asyncio.sleep(0)
            assert client.recv(1) == b""

    run_on(loop, main())


def test_addresses_take_turns_and_one_handshake_begins_at_a_time() -> None:
    # One that comes after a flood of another address has the next turn but one. Between two turns the loop goes on.
    async def main() -> None:
        turns, order, ours = Turns(asyncio.get_running_loop()), [], socket.socketpair()
        turn_of_loop = 0

        async def begin(address: str) -> None:
            await turns.wait(address, ours[0])
            order.append((address, turn_of_loop))
            turns.end()

        tasks = [asyncio.create_task(begin("flood")) for _ in range(20)] + [asyncio.create_task(begin("other"))]
        while not all(task.done() for task in tasks):
            await asyncio.sleep(0)
            turn_of_loop += 1
        assert [address for address, _ in order].index("other") <= 2
        assert len({turn for _, turn in order}) == len(order)
        for each in ours:
            each.close()

    run(main())


def test_who_has_left_takes_no_turn() -> None:
    async def main() -> None:
        turns = Turns(asyncio.get_running_loop())
        (here, peer), (closed, other), (left, client) = (socket.socketpair() for _ in range(3))
        client.sendall(make_hello())

        async def begin(accepted: socket.socket) -> None:
            await turns.wait("a", accepted)
            turns.end()

        first = asyncio.create_task(begin(here))
        waiting = [asyncio.create_task(begin(each)) for each in (closed, left, here)]
        await asyncio.sleep(0)
        closed.close()
        client.close()
        found = await asyncio.gather(first, *waiting, return_exceptions=True)
        assert [type(each) for each in found] == [type(None), *[ConnectionResetError] * 2, type(None)]
        for each in (here, peer, other, left):
            each.close()

    run(main())


def test_a_handshake_that_is_given_up_with_its_turn_ends_it() -> None:
    # Otherwise nobody would come in any more.
    async def main() -> None:
        turns, (here, peer) = Turns(asyncio.get_running_loop()), socket.socketpair()
        await turns.wait("a", here)
        given_up = asyncio.create_task(turns.wait("a", here))
        await asyncio.sleep(0)
        turns.end()
        await asyncio.sleep(0)  # it has the turn now, and has not noticed
        given_up.cancel()
        await asyncio.gather(given_up, return_exceptions=True)
        assert given_up.cancelled()
        await asyncio.wait_for(turns.wait("a", here), PATIENCE_S)
        for each in (here, peer):
            each.close()

    run(main())


def test_a_crowd_that_leaves_at_once_is_dealt_with_one_by_one() -> None:
    # Each costs the loop 50 us and more, and a crowd of hundreds would keep everybody else waiting.
    async def main() -> None:
        loop = asyncio.get_running_loop()
        pace, order, turn_of_loop = Pace(loop), [], 0
        pairs = [socket.socketpair() for _ in range(10)]
        for ours, _ in pairs:
            ours.setblocking(False)

        async def wait(ours: socket.socket) -> None:
            with suppress(ConnectionResetError):
                await wait_for_hello(loop, ours, pace)
            order.append(turn_of_loop)

        tasks = [asyncio.create_task(wait(ours)) for ours, _ in pairs]
        await asyncio.sleep(0)
        for _, theirs in pairs:
            theirs.close()
        while not all(task.done() for task in tasks):
            await asyncio.sleep(0)
            turn_of_loop += 1
        assert len(set(order)) == len(pairs)
        for ours, _ in pairs:
            ours.close()

    run(main())


def test_who_does_not_use_handshakes_has_few_turns() -> None:
    # A handshake costs the broker a signature. Use gives its turn back; others are forgiven with time.
    async def main() -> None:
        turns, (here, peer) = Turns(asyncio.get_running_loop()), socket.socketpair()
        begun: list[str] = []

        async def begin(address: str) -> None:
            await turns.wait(address, here)
            begun.append(address)
            turns.end()

        async def let_all_begin() -> None:
            for _ in range(5 * UNUSED_MAX):
                await asyncio.sleep(0)

        now = asyncio.get_running_loop().time()
        turns.unused.change("flood", UNUSED_MAX + FORGIVEN_PER_S * round(PATIENCE_S), now)
        flood = [asyncio.create_task(begin("flood")) for _ in range(5)]
        others = [asyncio.create_task(begin(address)) for address in ("a", "b", "a")]
        await let_all_begin()
        assert begun == ["a", "b", "a"]
        turns.unused.change("flood", -FORGIVEN_PER_S * round(PATIENCE_S) - 3, now)
        turns.note_use("flood")
        await let_all_begin()
        assert begun.count("flood") >= 4
        await asyncio.gather(*flood, *others)  # the last is forgiven without any word of a client
        for each in (here, peer):
            each.close()

    run(main())


def test_unused_handshakes_are_forgiven_and_forgotten() -> None:
    unused = Unused()
    for number in range(1000):
        unused.change(f"address {number}", 1, 100.0)
    assert len(unused) == 1000
    unused.change("flood", UNUSED_MAX, 100.0)
    assert unused.find("flood", 101.0) == UNUSED_MAX - FORGIVEN_PER_S
    unused.change("flood", -1, 101.0)
    assert unused.find("flood", 101.0) == UNUSED_MAX - FORGIVEN_PER_S - 1
    assert len(unused) == 1  # the others have been forgiven all they had
    unused.change("flood", -1, 200.0)
    assert len(unused) == 0


def test_of_an_address_near_its_limit_the_newest_client_is_next() -> None:
    # Those that have waited for long are about to be given up: in order, everybody would wait until then.
    async def main() -> None:
        loop, (here, peer) = asyncio.get_running_loop(), socket.socketpair()
        for unused, expected in ((0, [1, 2, 3, 4, 5]), (UNUSED_MAX - 5, [5, 4, 3, 2, 1])):
            turns, begun = Turns(loop), list[int]()

            async def begin(number: int, turns: Turns = turns, begun: list[int] = begun) -> None:
                await turns.wait("a", here)
                begun.append(number)
                turns.end()

            turns._is_busy = True  # until all wait
            tasks = [asyncio.create_task(begin(number)) for number in (1, 2, 3, 4, 5)]
            await asyncio.sleep(0)
            turns.unused.change("a", unused, loop.time())
            turns.end()
            while len(begun) < len(expected):
                await asyncio.sleep(0.001)
            assert begun == expected
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        for each in (here, peer):
            each.close()

    run(main())


class StepCounter:
    """An offload that notes in which thread each step runs."""

    def __init__(self) -> None:
        self.threads: list[threading.Thread] = []

    async def __call__(self, step: Callable[..., Any], *arguments: Any) -> Any:
        def run_step() -> Any:
            self.threads.append(threading.current_thread())
            return step(*arguments)

        return await asyncio.to_thread(run_step)


@on_both_loops
@pytest.mark.parametrize("client_auth", ["none", "required"])
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_the_costly_steps_of_a_handshake_run_in_a_thread(
    loop: str, client_auth: str, version: ssl.TLSVersion, tmp_path: Path
) -> None:
    # The answer to the first message, and the check of a certificate. Whatever else the client sends meanwhile waits.
    certificates = Certificates(tmp_path)
    config = make_config(certificates, client_auth)
    trusting = ssl.create_default_context(cafile=certificates.ca)
    trusting.load_cert_chain(certificates.write("alice.pem", certificates.issue("alice").pem))
    trusting.maximum_version = version
    counter = StepCounter()

    def shake_hands(port: int) -> None:
        with (
            socket.create_connection(("127.0.0.1", port), PATIENCE_S) as plain,
            trusting.wrap_socket(plain, server_hostname="127.0.0.1") as client,
        ):
            client.sendall(b"\0\0\0\x01x")
            assert client.recv(100) == b"\0\0\0\x06answer"

    async def main() -> None:
        server = Server(lambda client, frame: [b"answer"], ServerSettings(), counter)
        server.secure("SSL", Entrance(ListenerSecurity(config.endpoints.bound[0], config, None)))
        port = await server.start("127.0.0.1", 0, "SSL")
        await asyncio.to_thread(shake_hands, port)
        await server.stop(PATIENCE_S)

    run_on(loop, main())
    assert len(counter.threads) == (2 if client_auth == "required" else 1)
    assert threading.main_thread() not in counter.threads


@on_both_loops
@pytest.mark.parametrize("slow_step", [1, 2])
def test_nothing_is_read_while_a_step_runs(loop: str, slow_step: int, tmp_path: Path) -> None:
    # OpenSSL in the thread and the loop would otherwise use the same buffer at the same time.
    certificates = Certificates(tmp_path)
    config = make_config(certificates, "required")
    trusting = ssl.create_default_context(cafile=certificates.ca)
    trusting.load_cert_chain(certificates.write("alice.pem", certificates.issue("alice").pem))
    received, sent = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = trusting.wrap_bio(received, sent, server_hostname="127.0.0.1")
    steps, go_on = 0, threading.Event()

    async def offload_slowly(step: Callable[..., Any], *arguments: Any) -> Any:
        nonlocal steps
        steps += 1
        if steps == slow_step:
            await asyncio.to_thread(go_on.wait, PATIENCE_S)
        return await asyncio.to_thread(step, *arguments)

    def do_handshake() -> bool:
        try:
            client.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    async def shake_hands(intruder: socket.socket) -> None:
        while not do_handshake():
            intruder.sendall(sent.read())
            if slow_step == 1:
                break
            received.write(await asyncio.to_thread(intruder.recv, 10_000))
        intruder.sendall(sent.read())
        while steps < slow_step:
            await asyncio.sleep(0.001)

    async def main() -> None:
        server = Server(lambda client, frame: [b"answer"], ServerSettings(), offload_slowly)
        server.secure("SSL", Entrance(ListenerSecurity(config.endpoints.bound[0], config, None)))
        port = await server.start("127.0.0.1", 0, "SSL")
        with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as intruder:
            await shake_hands(intruder)
            intruder.sendall(bytes(1000))
            for _ in range(100):
                await asyncio.sleep(0.001)
            assert steps == slow_step
            go_on.set()
            with suppress(ConnectionError):
                while await asyncio.to_thread(intruder.recv, 10_000):
                    pass
        await server.stop(PATIENCE_S)

    run_on(loop, main())
