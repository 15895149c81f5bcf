"""What is measured of a broker with security: each function returns the values of its rows."""

import socket
import struct
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from statistics import median, quantiles
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from benchmarks.loads.topics import create_topic
from benchmarks.peers.broker_process import HOST
from benchmarks.report import Row
from benchmarks.security.brokers import PASSWORD, USER, AnyBroker
from benchmarks.security.floods import FLOODS, flooding, run_sinks, trust_anybody
from ottla.wire import frames
from ottla.wire.message import Message
from ottla.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntityData,
    AlterClientQuotasRequestEntryData,
    OpData,
)
from ottla.wire.messages.api_versions import ApiVersionsRequest
from ottla.wire.messages.create_acls import AclCreation, CreateAclsRequest
from ottla.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from ottla.wire.messages.sasl_handshake import SaslHandshakeRequest

VALUE_BYTES = 1000
NOISY_RATE = 2_000_000
CLIENTS = 20
SMALL_BYTES = 10_000
TOGETHER = 20
TOPIC_RESOURCE, LITERAL, ALLOW, READ, DESCRIBE = 2, 3, 3, 3, 8
Values = dict[Row, float]


@dataclass(frozen=True)
class Size:
    pairs: int
    records: int
    logins: int
    seconds: float


FULL = Size(pairs=3, records=500_000, logins=2000, seconds=10.0)
QUICK = Size(pairs=1, records=50_000, logins=200, seconds=2.0)


class Failure(Exception):
    """A broker did not do what is measured."""


class Caller:
    """One connection for small requests, each of which is awaited."""

    def __init__(self, port: int, client_id: str = "quiet") -> None:
        self._socket = socket.create_connection((HOST, port), 30)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._client_id = client_id

    def call(self, message: Message, version: int) -> Any:
        return self.call_together(message, version, 1)[0]

    def call_together(self, message: Message, version: int, count: int) -> list[Any]:
        """Send the same request several times, and then wait for all answers."""
        self._socket.sendall(frames.encode_request(message, version, 1, self._client_id) * count)
        return [self._read_answer(message, version) for _ in range(count)]

    def _read_answer(self, message: Message, version: int) -> Any:
        (size,) = struct.unpack(">i", self._read(4))
        return frames.decode_response(frames.find_api_of(message).response, version, self._read(size))[1]

    def _read(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            piece = self._socket.recv(size - len(data))
            if not piece:
                raise Failure("the broker closed the connection")
            data += piece
        return bytes(data)

    def close(self) -> None:
        self._socket.close()


def settings_for_tls(broker: AnyBroker) -> dict[str, Any]:
    return {
        "bootstrap.servers": f"{HOST}:{broker.secured.ssl_port}",
        "security.protocol": "ssl",
        "ssl.ca.location": str(broker.secured.ca),
    }


def measure_tls(broker: AnyBroker, size: Size) -> Values:
    """MB/s and CPU of the broker, for one producer and then one consumer of librdkafka."""
    topic = f"tls-{time.monotonic_ns()}"
    create_topic(broker.bootstrap, topic)
    producer = Producer({**settings_for_tls(broker), "linger.ms": 5, "queue.buffering.max.kbytes": 500_000})
    value, megabytes = bytes(VALUE_BYTES), size.records * VALUE_BYTES / 1e6
    began, used = time.perf_counter(), broker.usage().cpu_seconds
    for _ in range(size.records):
        while True:
            try:
                producer.produce(topic, value, partition=0)
                break
            except BufferError:
                producer.poll(0.1)
    if producer.flush(300):
        raise Failure("not all records were acknowledged")
    produced_s, produce_cpu = time.perf_counter() - began, broker.usage().cpu_seconds - used
    consumer = Consumer({**settings_for_tls(broker), "group.id": "any", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    began, used, received = time.perf_counter(), broker.usage().cpu_seconds, 0
    while received < size.records:
        messages = consumer.consume(10_000, 30)
        if not messages:
            raise Failure("no records came")
        received += sum(message.error() is None for message in messages)
    consumed_s, consume_cpu = time.perf_counter() - began, broker.usage().cpu_seconds - used
    consumer.close()
    return {
        Row("produce over TLS, 1 KB records", "MB/s", more_is_better=True): megabytes / produced_s,
        Row("produce over TLS: CPU", "s/GB", more_is_better=False): produce_cpu / megabytes * 1000,
        Row("consume over TLS, 1 KB records", "MB/s", more_is_better=True): megabytes / consumed_s,
        Row("consume over TLS: CPU", "s/GB", more_is_better=False): consume_cpu / megabytes * 1000,
    }


def measure_logins(broker: AnyBroker, size: Size) -> Values:
    """Connections that authenticate with SASL/PLAIN, one after the other."""
    began, used = time.perf_counter(), broker.usage().cpu_seconds
    for _ in range(size.logins):
        caller = Caller(broker.secured.sasl_port)
        caller.call(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        answer = caller.call(SaslAuthenticateRequest(auth_bytes=f"\0{USER}\0{PASSWORD}".encode()), 2)
        if answer.error_code:
            raise Failure(f"the login failed: {answer.error_message}")
        caller.close()
    seconds, cpu = time.perf_counter() - began, broker.usage().cpu_seconds - used
    return {
        Row("SASL/PLAIN logins, one at a time", "per s", more_is_better=True): size.logins / seconds,
        Row("SASL/PLAIN login: CPU", "ms", more_is_better=False): cpu / size.logins * 1000,
    }


def measure_tls_logins(broker: AnyBroker, size: Size) -> Values:
    """Clients of TLS that connect, ask for API versions and leave, many at a time."""
    context = trust_anybody()
    asked = ApiVersionsRequest(client_software_name="benchmark", client_software_version="1")
    request = frames.encode_request(asked, 3, 1, "login")

    def log_in(_: int) -> None:
        with context.wrap_socket(socket.create_connection((HOST, broker.secured.ssl_port), 30)) as client:
            client.sendall(request)
            if not client.recv(SMALL_BYTES):
                raise Failure("the broker closed the connection")

    began, used = time.perf_counter(), broker.usage().cpu_seconds
    with ThreadPoolExecutor(CLIENTS) as clients:
        for _ in clients.map(log_in, range(size.logins)):
            pass
    seconds, cpu = time.perf_counter() - began, broker.usage().cpu_seconds - used
    return {
        Row(f"TLS logins, {CLIENTS} at a time", "per s", more_is_better=True): size.logins / seconds,
        Row("TLS login: CPU", "ms", more_is_better=False): cpu / size.logins * 1000,
    }


def measure_requests(broker: AnyBroker, seconds: float, caller: Caller, topic: str) -> list[float]:
    """Milliseconds of small requests, one in flight: ListOffsets, which is authorized for its topic."""
    asked = ListOffsetsTopic(name=topic, partitions=[ListOffsetsPartition(timestamp=-1)])
    request = ListOffsetsRequest(replica_id=-1, topics=[asked])
    taken: list[float] = []
    end = time.perf_counter() + seconds
    while (began := time.perf_counter()) < end:
        answer = caller.call(request, 5)
        taken.append((time.perf_counter() - began) * 1000)
        if answer.topics[0].partitions[0].error_code:
            raise Failure(f"ListOffsets has error {answer.topics[0].partitions[0].error_code}")
    return taken


def send_requests_together(caller: Caller, topic: str, count: int) -> None:
    """Small requests as `measure_requests` sends them, `TOGETHER` of them in flight."""
    asked = ListOffsetsTopic(name=topic, partitions=[ListOffsetsPartition(timestamp=-1)])
    for _ in range(count // TOGETHER):
        for answer in caller.call_together(ListOffsetsRequest(replica_id=-1, topics=[asked]), 5, TOGETHER):
            if answer.topics[0].partitions[0].error_code:
                raise Failure(f"ListOffsets has error {answer.topics[0].partitions[0].error_code}")


def add_acls(broker: AnyBroker, count: int) -> None:
    """Let ANONYMOUS describe every topic, and other users read one topic each."""
    caller = Caller(broker.secured.plain_port)
    rows = [("User:ANONYMOUS", DESCRIBE, "*"), *((f"User:user-{row}", READ, f"topic-{row}") for row in range(count))]
    for start in range(0, len(rows), 500):
        creations = [
            AclCreation(
                resource_type=TOPIC_RESOURCE,
                resource_name=name,
                resource_pattern_type=LITERAL,
                principal=principal,
                host="*",
                operation=operation,
                permission_type=ALLOW,
            )
            for principal, operation, name in rows[start : start + 500]
        ]
        for result in caller.call(CreateAclsRequest(creations=creations), 3).results:
            if result.error_code:
                raise Failure(f"{broker.name} refused an ACL with error {result.error_code}: {result.error_message}")
    caller.close()


def prepare_topic(broker: AnyBroker, name: str) -> str:
    topic = f"{name}-{time.monotonic_ns()}"
    create_topic(broker.bootstrap, topic)
    return topic


def find_late(taken: list[float]) -> float:
    """The 99th percentile."""
    return quantiles(taken, n=100)[98]


def set_quota(broker: AnyBroker, client_id: str, rate: float | None) -> None:
    entity = [AlterClientQuotasRequestEntityData(entity_type="client-id", entity_name=client_id)]
    operation = OpData(key="producer_byte_rate", value=rate or 0.0, remove=rate is None)
    caller = Caller(broker.secured.plain_port)
    entry = AlterClientQuotasRequestEntryData(entity=entity, ops=[operation])
    (result,) = caller.call(AlterClientQuotasRequest(entries=[entry]), 1).entries
    if result.error_code:
        raise Failure(f"the quota was refused: {result.error_message}")
    caller.close()


def run_beside(work: Callable[[threading.Event], None], measured: Callable[[], list[float]]) -> list[float]:
    """Measure while something else runs."""
    over = threading.Event()
    thread = threading.Thread(target=work, args=(over,))
    thread.start()
    try:
        return measured()
    finally:
        over.set()
        thread.join()


def measure_noise(broker: AnyBroker, size: Size) -> Values:
    """A producer far above its quota beside a client that sends small requests."""
    topic = prepare_topic(broker, "noise")
    set_quota(broker, "noisy", NOISY_RATE)
    caller = Caller(broker.secured.plain_port)
    alone = find_late(measure_requests(broker, size.seconds, caller, topic))
    sent = 0

    def produce(over: threading.Event) -> None:
        nonlocal sent

        def delivered(error: Any, message: Any) -> None:
            nonlocal sent
            sent += 0 if error else VALUE_BYTES

        settings = {"bootstrap.servers": broker.bootstrap, "client.id": "noisy", "linger.ms": 5}
        producer = Producer({**settings, "queue.buffering.max.kbytes": 20_000, "batch.size": 100_000})
        while not over.is_set():
            with suppress(BufferError):
                producer.produce(topic, bytes(VALUE_BYTES), partition=0, on_delivery=delivered)
                continue
            producer.poll(0.05)
        producer.purge()
        producer.flush(30)

    seconds = 4 * size.seconds + 10  # the windows of the quota hold ten seconds
    began = time.perf_counter()
    beside = find_late(run_beside(produce, lambda: measure_requests(broker, seconds, caller, topic)))
    rate = sent / (time.perf_counter() - began)
    caller.close()
    set_quota(broker, "noisy", None)
    return {
        Row("small request alone, p99", "ms", more_is_better=False): alone,
        Row("small request beside a producer above its quota, p99", "ms", more_is_better=False): beside,
        Row("what that producer gets of its quota", "%", more_is_better=False): rate / NOISY_RATE * 100,
    }


def measure_floods(broker: AnyBroker, size: Size) -> Values:
    """A client that sends small requests, without and beside each flood, in turns."""
    topic = prepare_topic(broker, "flood")
    caller = Caller(broker.secured.plain_port)
    values: Values = {}
    with run_sinks(broker.secured.store) as sinks:
        ports = vars(broker.secured) | sinks._asdict()
        for name, (flood, port) in FLOODS.items():
            alone = measure_requests(broker, size.seconds, caller, topic)
            with flooding(flood, ports[port]) as count:
                before, began = count.value, time.perf_counter()
                beside = measure_requests(broker, size.seconds, caller, topic)
                rate = (count.value - before) / (time.perf_counter() - began)
            values |= compare_latencies(name, alone, beside)
            values[Row(f"what a flood of {name} gets through", "per s", more_is_better=False)] = rate
    caller.close()
    return values


def compare_latencies(name: str, alone: list[float], beside: list[float]) -> Values:
    shown, medians, late = f"small request beside a flood of {name}", median(beside), find_late(beside)
    return {
        Row(f"{shown}, median", "ms", more_is_better=False): medians,
        Row(f"{shown}, in times of the median without", "x", more_is_better=False): medians / median(alone),
        Row(f"{shown}, p99", "ms", more_is_better=False): late,
        Row(f"{shown}, in times of the p99 without", "x", more_is_better=False): late / find_late(alone),
    }
