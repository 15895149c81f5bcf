"""The network in memory: order, random splitting, flow control and faults, as real programs meet them."""

import asyncio
from random import Random

import pytest

from tests.simulation.frame_client import FrameClient
from tests.simulation.loop import simulate
from tests.simulation.network import Conditions, SimulatedNetwork


class Recorder(asyncio.Protocol):
    """A protocol that records its callbacks, and sends back what it receives if `echo` is set."""

    def __init__(self, *, echo: bool = False) -> None:
        self.echo = echo
        self.events: list[tuple[float, str, object]] = []
        self.received = bytearray()
        self.transport: asyncio.Transport

    def note(self, name: str, detail: object = None) -> None:
        self.events.append((asyncio.get_running_loop().time(), name, detail))

    def names(self) -> list[str]:
        return [name for _, name, _ in self.events]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.note("made")

    def data_received(self, data: bytes) -> None:
        self.received += data
        self.note("data", len(data))
        if self.echo:
            self.transport.write(data)

    def eof_received(self) -> bool:
        self.note("end")
        return False

    def pause_writing(self) -> None:
        self.note("pause")

    def resume_writing(self) -> None:
        self.note("resume")

    def connection_lost(self, error: Exception | None) -> None:
        self.note("lost", type(error).__name__)


def echo_history(seed: int) -> list[tuple[float, str, object]]:
    async def main() -> list[tuple[float, str, object]]:
        network = SimulatedNetwork(Random(seed))
        network.listen("server", 9092, lambda: Recorder(echo=True))
        sent = Random(1).randbytes(200_000)
        transport, recorder = await network.connect("client", "server", 9092, Recorder)
        transport.write(sent)
        while len(recorder.received) < len(sent):
            await asyncio.sleep(0.01)
        assert recorder.received == sent
        return recorder.events

    return simulate(main())


def test_bytes_arrive_complete_and_in_order_however_they_are_split() -> None:
    # Large and small pieces occur, and the echo equals what was sent.
    sizes = [detail for _, name, detail in echo_history(7) if name == "data"]
    assert len(set(sizes)) > 5


def test_the_same_seed_gives_the_same_history_and_another_seed_another() -> None:
    # Every event has the same time and size again.
    assert echo_history(3) == echo_history(3)
    assert echo_history(3) != echo_history(4)


def test_a_reader_that_pauses_stops_the_writer() -> None:
    # At most the window and the high-water mark are in flight; after resuming everything arrives.
    async def main() -> None:
        network = SimulatedNetwork(Random(1), Conditions(window_bytes=1000))
        server = Recorder()
        network.listen("server", 1, lambda: server)
        transport, client = await network.connect("client", "server", 1, Recorder)
        server.transport.pause_reading()
        transport.set_write_buffer_limits(high=5000, low=100)
        transport.write(bytes(20_000))
        await asyncio.sleep(60)
        assert client.names() == ["made", "pause"]
        assert transport.get_write_buffer_size() == 19_000
        assert not server.received
        server.transport.resume_reading()
        await asyncio.sleep(60)
        assert len(server.received) == 20_000
        assert client.names() == ["made", "pause", "resume"]

    simulate(main())


def test_closing_sends_unsent_bytes_first() -> None:
    # The other side gets every byte, then the end; both ends close without an error.
    async def main() -> None:
        network = SimulatedNetwork(Random(1))
        server = Recorder()
        network.listen("server", 1, lambda: server)
        transport, client = await network.connect("client", "server", 1, Recorder)
        transport.write(bytes(300_000))
        transport.close()
        await asyncio.sleep(60)
        assert len(server.received) == 300_000
        assert server.names()[-2:] == ["end", "lost"]
        assert server.events[-1][2] == client.events[-1][2] == "NoneType"

    simulate(main())


def test_half_closing_leaves_the_other_direction_open() -> None:
    # After write_eof the answer still comes.
    class Answering(Recorder):
        def eof_received(self) -> bool:
            self.transport.write(b"late answer")
            self.transport.close()
            return True

    async def main() -> None:
        network = SimulatedNetwork(Random(1))
        network.listen("server", 1, Answering)
        transport, client = await network.connect("client", "server", 1, Recorder)
        transport.write(b"question")
        transport.write_eof()
        await asyncio.sleep(60)
        assert client.received == b"late answer"
        assert "lost" in client.names()

    simulate(main())


def test_a_reset_is_an_error_at_the_other_end() -> None:
    # abort drops what is unsent and resets; no side is told twice.
    async def main() -> None:
        network = SimulatedNetwork(Random(1))
        server = Recorder()
        network.listen("server", 1, lambda: server)
        transport, client = await network.connect("client", "server", 1, Recorder)
        transport.abort()
        await asyncio.sleep(60)
        assert server.names() == ["made", "lost"]
        assert server.events[-1][2] == "ConnectionResetError"
        assert client.names() == ["made", "lost"]
        assert not network.transports("server") and not network.transports("client")

    simulate(main())


def test_a_partition_delays_bytes_and_the_end_until_it_is_healed() -> None:
    # Nothing gets through meanwhile, and nothing is lost or reordered afterwards.
    async def main() -> None:
        network = SimulatedNetwork(Random(5))
        server = Recorder()
        network.listen("server", 1, lambda: server)
        transport, _ = await network.connect("client", "server", 1, Recorder)
        network.partition("client", "server")
        sent = bytes(range(256)) * 100
        transport.write(sent)
        transport.close()
        await asyncio.sleep(3600)
        assert server.names() == ["made"]
        network.heal("server", "client")
        await asyncio.sleep(60)
        assert server.received == sent
        assert server.names()[-2:] == ["end", "lost"]

    simulate(main())


@pytest.mark.parametrize("cut", [("client", "server"), ("server", "client")])
def test_a_cut_holds_back_one_direction_only(cut: tuple[str, str]) -> None:
    # The echo arrives when the direction is healed, whichever it was; the bytes of the open direction arrive before.
    async def main() -> None:
        network = SimulatedNetwork(Random(3))
        servers: list[Recorder] = []

        def accept() -> Recorder:
            servers.append(Recorder(echo=True))
            return servers[0]

        network.listen("server", 9092, accept)
        transport, recorder = await network.connect("client", "server", 9092, Recorder)
        network.cut(*cut)
        transport.write(b"x" * 100)
        await asyncio.sleep(10)
        assert bytes(recorder.received) == b""
        assert len(servers[0].received) == (0 if cut == ("client", "server") else 100)
        network.heal("client", "server")
        await asyncio.sleep(1)
        assert bytes(recorder.received) == b"x" * 100

    simulate(main())


def test_connecting_across_a_partition_waits_and_then_times_out() -> None:
    # The connection succeeds if the partition heals in time; otherwise it is a TimeoutError.
    async def main() -> None:
        network = SimulatedNetwork(Random(5))
        network.listen("server", 1, Recorder)
        network.partition("client", "server")
        asyncio.get_running_loop().call_later(10, network.heal_all)
        await network.connect("client", "server", 1, Recorder)
        network.partition("client", "server")
        with pytest.raises(TimeoutError):
            await network.connect("client", "server", 1, Recorder)
        with pytest.raises(ConnectionRefusedError):
            await network.connect("other", "server", 2, Recorder)

    simulate(main())


def test_a_connection_that_is_reset_while_it_is_made_is_an_error() -> None:
    # The connecting side gets an error instead of a dead connection.
    async def main() -> None:
        network = SimulatedNetwork(Random(5))

        def resetting() -> Recorder:
            asyncio.get_running_loop().call_soon(network.reset_connections, "client")
            return Recorder()

        network.listen("server", 1, resetting)
        with pytest.raises(ConnectionResetError):
            await network.connect("client", "server", 1, Recorder)

    simulate(main())


@pytest.mark.parametrize("silent", [False, True])
def test_a_crashed_host_gets_no_callback_and_its_peer_at_most_a_reset(silent: bool) -> None:
    # The dead program gets no callback, and its port refuses connections. Its peer sees a reset, unless the machine
    # lost its power.
    async def main() -> None:
        network = SimulatedNetwork(Random(5))
        server = Recorder()
        network.listen("server", 1, lambda: server)
        transport, client = await network.connect("client", "server", 1, Recorder)
        network.crash("server", silent=silent)
        transport.write(b"anybody there?")
        await asyncio.sleep(60)
        assert server.names() == ["made"]
        assert client.names() == (["made"] if silent else ["made", "lost"])
        with pytest.raises(ConnectionRefusedError):
            await network.connect("client", "server", 1, Recorder)

    simulate(main())


def test_frames_travel_both_ways() -> None:
    # The frame client reads back the frames it wrote, and reports the end of the connection.
    async def main() -> None:
        network = SimulatedNetwork(Random(5))
        server = Recorder(echo=True)
        network.listen("server", 1, lambda: server)
        client: FrameClient = await network.open_client("client", "server", 1)
        client.write_frame(b"", b"one", bytes(100_000))
        assert [await client.read_frame() for _ in range(3)] == [b"", b"one", bytes(100_000)]
        server.transport.close()
        await client.wait_closed()
        with pytest.raises(EOFError):
            await client.read_frame()

    simulate(main())
