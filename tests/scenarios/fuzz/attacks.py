"""The attacks of the fuzzer. Each gets a random generator, may fail with any error, and leaves nothing running."""

import socket
import struct
import time
from collections.abc import Callable, Mapping
from random import Random
from typing import NamedTuple

from ottla.wire import frames
from ottla.wire.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.message import Message
from ottla.wire.messages import fetch, produce
from ottla.wire.messages.api_versions import ApiVersionsRequest
from ottla.wire.messages.metadata import MetadataRequest
from tests.raw_client import RawClient
from tests.scenarios.every_request import HANDLERS, WITH_A_CODEC_OF_THEIR_OWN, build_request
from tests.scenarios.fuzz.bombs import make_bomb, make_malformed_batch, make_valid_batch
from tests.unit.wire.arbitrary import arbitrary
from tests.unit.wire.mutations import mutants

SIZES = (-1, -(2**31), 2**31 - 1, 104_857_601, 104_857_600, 50_000_000, 0, 1, 7, 8)
KINDS = [(name, version) for name, handler in HANDLERS.items() for version in handler.versions]
PLAIN_KINDS = [(name, version) for name, version in KINDS if name not in WITH_A_CODEC_OF_THEIR_OWN]
RECORD_KINDS = [(name, version) for name, version in KINDS if name in WITH_A_CODEC_OF_THEIR_OWN]
ABORT = struct.pack("ii", 1, 0)
TIMEOUT_S = 5.0
HELD_S = 0.3


class Target(NamedTuple):
    host: str
    port: int
    topic: str
    """A topic that only attacks use."""
    topic_id: bytes
    ports: Mapping[str, int] = {}
    """Listeners with TLS or SASL, if there are any."""

    def connect(self) -> RawClient:
        return RawClient(self.host, self.port, "stranger", TIMEOUT_S)

    def plain(self) -> socket.socket:
        return socket.create_connection((self.host, self.port), TIMEOUT_S)


def garbage(random: Random, target: Target) -> None:
    """Random bytes."""
    with target.plain() as stranger:
        for _ in range(random.randrange(1, 5)):
            stranger.sendall(random.randbytes(random.choice((1, 3, 10, 1000, 100_000))))


def huge_lengths(random: Random, target: Target) -> None:
    """Many connections that announce large requests and never send them."""
    strangers = [target.plain() for _ in range(random.randrange(1, 20))]
    for stranger in strangers:
        head = struct.pack(">ihhi", random.choice(SIZES), random.randrange(80), random.randrange(20), 1)
        stranger.sendall(head + random.randbytes(random.choice((0, 10, 60_000))))
    time.sleep(HELD_S)
    for stranger in strangers:
        stranger.close()


def unknown_apis(random: Random, target: Target) -> None:
    """API keys and versions that do not exist, or that this broker does not have."""
    with target.connect() as stranger:
        key, version = random.randrange(-5, 120), random.randrange(-3, 40)
        stranger.send_frame(struct.pack(">hhih", key, version, 1, -1) + random.randbytes(random.randrange(100)))
        stranger.is_closed_by_peer()


def half_open(random: Random, target: Target) -> None:
    """Connections that send half of a request, wait, and are reset."""
    strangers = [target.plain() for _ in range(random.randrange(1, 50))]
    frame = build_valid_frame(random, target)
    for stranger in strangers:
        stranger.sendall(frame[: random.randrange(len(frame))])
    time.sleep(HELD_S)
    for stranger in strangers:
        stranger.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, ABORT)
        stranger.close()


def slow_writer(random: Random, target: Target) -> None:
    """A valid request, one byte at a time."""
    with target.plain() as stranger:
        for byte in build_valid_frame(random, target)[:200]:
            stranger.sendall(bytes([byte]))
            time.sleep(0.001)


def slow_reader(random: Random, target: Target) -> None:
    """Asks for megabytes of answers and reads none of them."""
    wanted = FetchRequest(topics=[FetchTopic(target.topic, partitions=[FetchPartition(0, max_bytes=2**31 - 1)])])
    with target.connect() as stranger:
        for _ in range(random.randrange(1, 100)):
            if random.random() < 0.5:
                stranger.send_fetch(wanted, 12)
            else:
                stranger.send_request(MetadataRequest(topics=None), 12)
        time.sleep(HELD_S)


def flood(random: Random, target: Target) -> None:
    """Thousands of requests at once. The answers are read afterwards, or never."""
    count = random.randrange(100, 3000)
    request = frames.encode_request(ApiVersionsRequest(), 0, 1, "stranger")
    with target.plain() as stranger:
        stranger.sendall(request * count)
        if random.random() < 0.5:
            stranger.recv(1 << 16)


def bombs(random: Random, target: Target) -> None:
    """Batches that decompress to a quarter of a gigabyte, or claim to."""
    with target.connect() as stranger:
        for _ in range(random.randrange(1, 4)):
            result = stranger.produce(target.topic, 0, make_bomb(random))
            assert result is not None and result.error_code != 0, "a bomb was accepted"


def liars(random: Random, target: Target) -> None:
    """Damaged batches with a correct checksum. Most are refused; some are valid in spite of the damage."""
    with target.connect() as stranger:
        for _ in range(20):
            stranger.produce(target.topic, 0, make_malformed_batch(random))


def mutated_requests(random: Random, target: Target) -> None:
    """Damaged requests of every API and version."""
    for mutant in mutants(random, build_valid_frame(random, target)[4:], 10):
        with target.connect() as stranger:
            stranger.send_frame(mutant)
            # makes the broker close the connection, if the first request did not
            stranger.send_frame(struct.pack(">hhih", 999, 0, 2, -1))
            stranger.is_closed_by_peer()


def wild_requests(random: Random, target: Target) -> None:
    """Well-formed requests with arbitrary values."""
    with target.connect() as stranger:
        for _ in range(5):
            name, version = random.choice(PLAIN_KINDS)
            message = arbitrary(HANDLERS[name].api.request, version, random)
            stranger.send_request(message, version)
            stranger.read_frame()


def build_valid_frame(random: Random, target: Target) -> bytes:
    """A valid request with its size. Half of them are Produce or Fetch."""
    name, version = random.choice(PLAIN_KINDS if random.random() < 0.5 else RECORD_KINDS)
    if name == "Produce":
        message = build_produce(random, target)
    elif name == "Fetch":
        message = build_fetch(target)
    else:
        message = build_request(name, version, target.topic, target.topic_id)
    return frames.encode_request(message, version, random.randrange(2**31), "stranger")


def build_produce(random: Random, target: Target) -> Message:
    partition = produce.PartitionProduceData(records=make_valid_batch())
    topic = produce.TopicProduceData(name=target.topic, topic_id=target.topic_id, partition_data=[partition])
    return produce.ProduceRequest(acks=random.choice((-1, 0, 1)), timeout_ms=1000, topic_data=[topic])


def build_fetch(target: Target) -> Message:
    partition = fetch.FetchPartition(partition_max_bytes=1 << 20)
    topic = fetch.FetchTopic(topic=target.topic, topic_id=target.topic_id, partitions=[partition])
    return fetch.FetchRequest(max_wait_ms=100, min_bytes=1, max_bytes=1 << 20, session_epoch=0, topics=[topic])


Attack = Callable[[Random, Target], None]

ATTACKS: tuple[Attack, ...] = (
    garbage,
    huge_lengths,
    unknown_apis,
    half_open,
    slow_writer,
    slow_reader,
    flood,
    bombs,
    liars,
    mutated_requests,
    wild_requests,
)
