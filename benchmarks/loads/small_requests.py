"""Small requests over raw sockets, one in flight per connection, encoded before the clock starts.

The first answer of each kind on a connection must have no error. Every later answer must have the same length and the
next correlation id, so that a broker cannot be fast by refusing. A connection sends the kinds in turn; which kind comes
first differs from connection to connection.
"""

import resource
import select
import socket
import struct
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from benchmarks.peers.broker_process import read_usage
from ottla.records.batch import encode
from ottla.wire import frames as wire
from ottla.wire.message import Message
from ottla.wire.messages import fetch, list_offsets, metadata, produce
from ottla.wire.messages.api_versions import ApiVersionsRequest

CORRELATION_AT = 8
CLIENT_ID = "benchmark"
ANSWER_SECONDS = 10.0
LATEST = -1


class WrongAnswer(Exception):
    """The broker closed the connection, or its answer is not that to the request."""


class Frame:
    """The encoded request of one kind. Connections copy it and write a correlation id into the copy."""

    def __init__(self, message: Message, version: int) -> None:
        self.data = wire.encode_request(message, version, 0, CLIENT_ID)
        self._answer = wire.find_api_of(message).response
        self._version = version

    def check(self, answer: bytes) -> None:
        """Raises WrongAnswer if the answer has an error code anywhere."""
        _, read = wire.decode_response(self._answer, self._version, answer[4:])
        if found := find_errors(read):
            raise WrongAnswer(f"{self._answer.__name__} has error {found[0]}")


def find_errors(value: Any) -> list[int]:
    """Every error code in a message and in the messages within it."""
    if isinstance(value, list):
        return [code for each in value for code in find_errors(each)]
    if not isinstance(value, Message):
        return []
    found = [getattr(value, "error_code", 0)]
    for name, *_ in value.FIELDS:
        found += find_errors(getattr(value, name))
    return [code for code in found if code]


def build_api_versions(topic: str, written: str) -> Frame:
    return Frame(ApiVersionsRequest(client_software_name="benchmark", client_software_version="1"), 3)


def build_metadata(topic: str, written: str) -> Frame:
    asked = [metadata.MetadataRequestTopic(name=topic)]
    return Frame(metadata.MetadataRequest(topics=asked, allow_auto_topic_creation=False), 12)


def build_list_offsets(topic: str, written: str) -> Frame:
    partition = list_offsets.ListOffsetsPartition(timestamp=LATEST, current_leader_epoch=-1)
    asked = list_offsets.ListOffsetsTopic(name=topic, partitions=[partition])
    return Frame(list_offsets.ListOffsetsRequest(replica_id=-1, topics=[asked]), 7)


def build_empty_fetch(topic: str, written: str) -> Frame:
    """A fetch at the end of a log that nobody writes to, with no time to wait."""
    partition = fetch.FetchPartition(
        fetch_offset=0, partition_max_bytes=1 << 20, current_leader_epoch=-1, last_fetched_epoch=-1, log_start_offset=-1
    )
    asked = fetch.FetchTopic(topic=topic, partitions=[partition])
    request = fetch.FetchRequest(
        replica_id=-1, max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, session_epoch=-1, topics=[asked]
    )
    return Frame(request, 12)


def build_produce(topic: str, written: str) -> Frame:
    records = bytes(encode([(None, b"x" * 100, (), 1_000)]))
    partition = produce.PartitionProduceData(records=records)
    asked = produce.TopicProduceData(name=written, partition_data=[partition])
    return Frame(produce.ProduceRequest(acks=1, timeout_ms=10_000, topic_data=[asked]), 9)


KINDS: dict[str, Callable[[str, str], Frame]] = {
    "api versions": build_api_versions,
    "metadata": build_metadata,
    "list offsets": build_list_offsets,
    "empty fetch": build_empty_fetch,
    "produce": build_produce,
}


def build_frames(kinds: Sequence[str], topic: str, written: str) -> list[Frame]:
    return [KINDS[kind](topic, written) for kind in kinds]


class Connection:
    """One socket with one request in flight."""

    def __init__(self, address: tuple[str, int], kinds: Sequence[Frame]) -> None:
        self.socket = socket.create_connection(address, timeout=ANSWER_SECONDS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._requests = [bytearray(kind.data) for kind in kinds]
        self._sizes: list[int] = []
        self._sent = 0
        for kind in kinds:
            self.send()
            first = self._read_frame()
            kind.check(first)
            self._sizes.append(len(first))

    def send(self) -> None:
        request = self._requests[self._sent % len(self._requests)]
        self._sent += 1
        struct.pack_into(">i", request, CORRELATION_AT, self._sent)
        self.socket.sendall(request)

    def receive(self) -> None:
        answer = self._read_frame()
        size = self._sizes[(self._sent - 1) % len(self._sizes)]
        if len(answer) != size or struct.unpack_from(">i", answer, 4)[0] != self._sent:
            raise WrongAnswer(f"{len(answer)} bytes are not the answer to request {self._sent}")

    def _read_frame(self) -> bytes:
        data = self.socket.recv(65536)
        while len(data) < 4 or len(data) < 4 + struct.unpack_from(">i", data)[0]:
            more = self.socket.recv(65536)
            if not more:
                raise WrongAnswer("the broker closed the connection")
            data += more
        return data


class Throughput(NamedTuple):
    """What the connections did; the time to open them is not included."""

    requests: int
    seconds: float
    broker_cpu_seconds: float


def run_requests(
    address: tuple[str, int], kinds: Sequence[Frame], connections: int, seconds: float, broker_process_id: int
) -> Throughput:
    raise_file_limit(connections + 100)
    turns = [[*kinds[start:], *kinds[:start]] for start in range(len(kinds))]
    opened = [Connection(address, turns[number % len(turns)]) for number in range(connections)]
    try:
        before = read_usage(broker_process_id).cpu_seconds
        work = drive_one_connection if connections == 1 else drive_many_connections
        answered, took = work(opened, seconds)
        return Throughput(answered, took, read_usage(broker_process_id).cpu_seconds - before)
    finally:
        for connection in opened:
            connection.socket.close()


def raise_file_limit(count: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count:
        allowed = count if hard == resource.RLIM_INFINITY else min(count, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))


def drive_one_connection(opened: Sequence[Connection], seconds: float) -> tuple[int, float]:
    (connection,) = opened
    began = now = time.perf_counter()
    answered = 0
    while now - began < seconds:
        connection.send()
        connection.receive()
        answered += 1
        now = time.perf_counter()
    return answered, now - began


def drive_many_connections(opened: Sequence[Connection], seconds: float) -> tuple[int, float]:
    by_file = {connection.socket.fileno(): connection for connection in opened}
    poll = select.epoll()
    for file in by_file:
        poll.register(file, select.EPOLLIN)
    began = now = time.perf_counter()
    answered = 0
    for connection in opened:
        connection.send()
    while now - began < seconds:
        ready = poll.poll(ANSWER_SECONDS)
        if not ready:
            raise WrongAnswer(f"no answer for {ANSWER_SECONDS:g} s")
        for file, _ in ready:
            by_file[file].receive()
            by_file[file].send()
        answered += len(ready)
        now = time.perf_counter()
    for connection in opened:
        connection.receive()
    poll.close()
    return answered, now - began
