"""Hostile clients at a real broker, `ottla up` in a process of its own: it keeps working, and needs little memory.

The unit tests of the server go through each limit. Here the whole broker is tested, with its memory as the operating
system reports it.
"""

import resource
import socket
import struct
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random
from time import monotonic

import pytest

from ottla.broker.handler_table import HandlerTable
from ottla.records.batch import encode
from ottla.wire import produce
from ottla.wire.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.api_versions import ApiVersionsRequest
from ottla.wire.messages.metadata import MetadataRequest
from tests.clients.child import HOST, OttlaUp, ottla_up
from tests.patience import PATIENCE_S
from tests.raw_client import RawClient
from tests.scenarios.client_calls import append, create_topic, decode_values
from tests.scenarios.memory import read_peak_kilobytes

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits and peaks of a process as Linux has them")

TOPIC = "orders"
INT_MAX = 2**31 - 1


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OttlaUp]:
    with ottla_up(tmp_path_factory.mktemp("hostile") / "data", "queued.max.request.bytes=50000000") as running:
        with connect(running) as client:
            assert create_topic(client, TOPIC).error_code == 0
            append(client, TOPIC, b"x" * 500_000)
        yield running
        assert "Traceback" not in running.log.read_text()


def connect(broker: OttlaUp, timeout_s: float = PATIENCE_S / 2) -> RawClient:
    return RawClient(HOST, broker.port, timeout_s=timeout_s)


def check_working(broker: OttlaUp, grown_from: int, by: int = 60_000) -> None:
    """Check that the broker answers, and that its peak memory has grown by at most `by` kilobytes."""
    assert broker.process.poll() is None
    with connect(broker) as client:
        assert append(client, TOPIC, b"still here") > 0
        assert decode_values(client.fetch(TOPIC, 0, 0))
    assert read_peak_kilobytes(broker.process.pid) - grown_from < by


@pytest.mark.parametrize("size", (-1, -(2**31), INT_MAX, 200_000_000, 0, 1, 7))
def test_an_impossible_request_size_closes_the_connection(size: int, broker: OttlaUp) -> None:
    # The size is negative, above socket.request.max.bytes, or too short for any request.
    peak = read_peak_kilobytes(broker.process.pid)
    with connect(broker) as stranger:
        stranger.send(struct.pack(">i", size) + bytes(20))
        assert stranger.is_closed_by_peer()
    check_working(broker, peak, 10_000)


def test_request_sizes_that_are_announced_and_never_sent_cost_no_memory(broker: OttlaUp) -> None:
    # A hundred connections each announce 100 MB, send a little of it, and then are silent.
    peak = read_peak_kilobytes(broker.process.pid)
    strangers = [connect(broker) for _ in range(100)]
    for stranger in strangers:
        stranger.send(struct.pack(">ihhih", 100_000_000, 0, 9, 1, -1) + bytes(1000))
    check_working(broker, peak)
    for stranger in strangers:
        stranger.close()


HOSTILE_BODIES = {
    "count 2^31-1": struct.pack(">i", INT_MAX) + bytes(20),
    "count negative": struct.pack(">i", -5) + bytes(20),
    "compact count 2^32-1": b"\xff\xff\xff\xff\x0f" + bytes(20),
    "overlong varint": b"\x80" * 10 + b"\x01" + bytes(20),
    "varint of ten bytes": b"\xff" * 10 + bytes(20),
    "tags without end": b"\x00" * 3 + b"\xff\xff\xff\xff\x0f" * 10,
    "nothing": b"",
    "one byte": b"\x01",
}


@pytest.mark.parametrize("name", HOSTILE_BODIES)
def test_malformed_requests_of_every_api(name: str, broker: OttlaUp) -> None:
    # Every version of every API gives an answer or a closed connection, quickly, without much memory or a traceback.
    peak = read_peak_kilobytes(broker.process.pid)
    for handler in HandlerTable().values():
        for version in handler.versions:
            header = struct.pack(">hhih", handler.api.key, version, 1, -1)
            if version >= handler.api.flexible_from:
                header += b"\0"
            with connect(broker) as stranger:
                stranger.send_frame(header + HOSTILE_BODIES[name])
                with suppress(ConnectionError):
                    # makes the broker close the connection, if the first request did not
                    stranger.send_frame(struct.pack(">hhih", 999, 0, 2, -1))
                assert stranger.is_closed_by_peer()
    check_working(broker, peak, 20_000)


def test_random_bytes(broker: OttlaUp, seed: int) -> None:
    # Random bytes behind a valid request header, and random bytes from the first one on.
    random = Random(seed)
    peak = read_peak_kilobytes(broker.process.pid)
    apis = [(handler.api.key, version) for handler in HandlerTable().values() for version in handler.versions]
    for _ in range(300):
        key, version = random.choice(apis)
        with connect(broker) as stranger, suppress(ConnectionError):
            body = random.randbytes(random.randrange(200))
            if random.random() < 0.8:
                stranger.send_frame(struct.pack(">hhih", key, version, 1, -1) + body)
            else:
                stranger.send(body)
    check_working(broker, peak, 20_000)


def test_a_thousand_idle_connections(broker: OttlaUp) -> None:
    # The clients connect, send nothing, and close.
    peak = read_peak_kilobytes(broker.process.pid)
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    idle = [socket.create_connection((HOST, broker.port), 10) for _ in range(min(1000, soft - 200))]
    check_working(broker, peak, 40_000)
    for connection in idle:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()
    check_working(broker, peak, 40_000)


def test_a_crowd_of_large_requests_stays_within_the_queue(broker: OttlaUp) -> None:
    # 200 connections each send nine tenths of a batch of a megabyte, 180 MB in all, and then the rest. No more than
    # queued.max.request.bytes is in memory, small requests are answered meanwhile, and in the end every batch is.
    peak = read_peak_kilobytes(broker.process.pid)
    with connect(broker) as client:
        assert create_topic(client, "crowd").error_code == 0
    request = build_produce_frame("crowd", bytes(900_000))
    crowd = [socket.create_connection((HOST, broker.port), 60) for _ in range(200)]
    for connection in crowd:
        connection.setblocking(False)
    sent = dict.fromkeys(crowd, 0)

    def push(limit: int) -> None:
        for connection in crowd:
            with suppress(BlockingIOError):
                sent[connection] += connection.send(request[sent[connection] : limit])

    push(800_000)
    check_working(broker, peak, 110_000)
    while min(sent.values()) < len(request):
        push(len(request))
    for connection in crowd:
        connection.settimeout(PATIENCE_S)
        (size,) = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))
        answer = produce.read_response(9, connection.recv(size, socket.MSG_WAITALL), 5)
        assert answer.topics[0].partitions[0].error_code == 0
        connection.close()
    check_working(broker, peak, 110_000)


def build_produce_frame(topic: str, value: bytes) -> bytes:
    """The bytes of a produce request with one record."""
    batch = memoryview(encode([(None, value, (), 1)]))
    data = produce.TopicData(topic, partitions=[produce.PartitionData(0, batch)])
    body = produce.write_request(9, produce.ProduceRequest(None, 1, 30_000, [data]), struct.pack(">hhihx", 0, 9, 1, -1))
    return struct.pack(">i", len(body)) + body


def test_a_consumer_that_never_reads_its_answers(broker: OttlaUp) -> None:
    # The consumer asks 200 times for half a megabyte and reads nothing. Only a bounded part of that is in memory, and
    # other clients are served meanwhile.
    peak = read_peak_kilobytes(broker.process.pid)
    wanted = FetchRequest(topics=[FetchTopic(TOPIC, partitions=[FetchPartition(0, max_bytes=INT_MAX)])])
    with connect(broker) as stranger:
        for _ in range(200):
            stranger.send_fetch(wanted, 12)
        check_working(broker, peak, 40_000)
        for _ in range(200):
            assert stranger.read_fetch(12).topics[0].partitions[0].error_code == 0


def test_ten_thousand_pipelined_requests(broker: OttlaUp) -> None:
    # The client sends all of them before it reads. All are answered, in order.
    peak = read_peak_kilobytes(broker.process.pid)
    kinds = ((ApiVersionsRequest(), 0), (MetadataRequest(topics=[]), 12))
    with connect(broker) as client:
        for number in range(10_000):
            client.send_request(*kinds[number % 2])
        for number in range(10_000):
            client.read_response(*kinds[number % 2])
    check_working(broker, peak, 40_000)


def test_running_out_of_descriptors(tmp_path: Path) -> None:
    # There are more connections than the process has descriptors for. Some wait or are closed; when others end, the
    # rest are served. Appends to the log continue.
    with ottla_up(tmp_path / "data") as broker:
        with connect(broker) as client:
            assert create_topic(client, TOPIC).error_code == 0
            append(client, TOPIC, b"before")
            resource.prlimit(broker.process.pid, resource.RLIMIT_NOFILE, (100, 100))
            crowd = [socket.create_connection((HOST, broker.port), 10) for _ in range(150)]
            assert append(client, TOPIC, b"meanwhile") == 1
            for connection in crowd:
                connection.close()
        deadline = monotonic() + PATIENCE_S
        while not is_served(broker):
            assert monotonic() < deadline, broker.log.read_text()[-2000:]
        assert "Traceback" not in broker.log.read_text()


def is_served(broker: OttlaUp) -> bool:
    """Whether a new connection is answered. It may be closed at first, until the broker has closed the others."""
    try:
        with connect(broker) as client:
            return append(client, TOPIC, b"after") >= 2
    except (ConnectionError, TimeoutError):
        return False
