"""Small requests by raw sockets: Metadata of one topic, version 12 as librdkafka sends it, encoded by hand.

Request: size int32 | api key int16 | version int16 | correlation id int32 | client id | tags
         | topics (id 16 bytes, name, tags) | auto-create bool | authorized operations bool | tags
Answer:  size int32 | correlation id int32 | tags | throttle | brokers | cluster id | controller id | topics | tags
The first answer must name the topic without an error; every later one must be like it except for the correlation id,
so that a broker cannot be fast by refusing.
"""

import select
import socket
import struct
import time

METADATA_KEY = 3
METADATA_VERSION = 12
CORRELATION_AT = 8
CLIENT_ID = b"benchmark"
ANSWER_SECONDS = 10.0


class WrongAnswer(Exception):
    """The broker did not answer the request that was sent."""


def metadata_request(topic: str) -> bytearray:
    """A whole frame; the correlation id at CORRELATION_AT is written for each request."""
    name = compact(topic)
    body = struct.pack(f">hhih{len(CLIENT_ID)}sx", METADATA_KEY, METADATA_VERSION, 0, len(CLIENT_ID), CLIENT_ID)
    body += struct.pack(f">B16x{len(name)}sx??x", 2, name, False, False)
    return bytearray(struct.pack(">i", len(body)) + body)


def compact(name: str) -> bytes:
    """A short string with its length plus one in front."""
    encoded = name.encode()
    return bytes([len(encoded) + 1]) + encoded


def topic_error(answer: bytes, topic: str) -> int:
    """The error code in front of the topic's name."""
    at = answer.find(compact(topic))
    if at < 2:
        raise WrongAnswer(f"the answer does not name {topic}")
    return int(struct.unpack_from(">h", answer, at - 2)[0])


class Connection:
    """One socket with one request in flight."""

    def __init__(self, address: tuple[str, int], topic: str) -> None:
        self.socket = socket.create_connection(address, timeout=ANSWER_SECONDS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._request = metadata_request(topic)
        self._correlation = 0
        self.send()
        first = self._read_frame()
        if error := topic_error(first, topic):
            raise WrongAnswer(f"{topic} was answered with error {error}")
        self._size = len(first)

    def send(self) -> None:
        self._correlation += 1
        struct.pack_into(">i", self._request, CORRELATION_AT, self._correlation)
        self.socket.sendall(self._request)

    def receive(self) -> None:
        answer = self._read_frame()
        if len(answer) != self._size or struct.unpack_from(">i", answer, 4)[0] != self._correlation:
            raise WrongAnswer(f"an answer of {len(answer)} bytes is not that of request {self._correlation}")

    def _read_frame(self) -> bytes:
        data = self.socket.recv(65536)
        while len(data) < 4 or len(data) < 4 + struct.unpack_from(">i", data)[0]:
            more = self.socket.recv(65536)
            if not more:
                raise WrongAnswer("the broker closed the connection")
            data += more
        return data


def run(address: tuple[str, int], topic: str, connections: int, seconds: float) -> tuple[int, float]:
    """How many requests were answered, and in how many seconds."""
    opened = [Connection(address, topic) for _ in range(connections)]
    try:
        return one_connection(opened[0], seconds) if connections == 1 else many_connections(opened, seconds)
    finally:
        for connection in opened:
            connection.socket.close()


def one_connection(connection: Connection, seconds: float) -> tuple[int, float]:
    began = now = time.perf_counter()
    answered = 0
    while now - began < seconds:
        connection.send()
        connection.receive()
        answered += 1
        now = time.perf_counter()
    return answered, now - began


def many_connections(opened: list[Connection], seconds: float) -> tuple[int, float]:
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
