"""Clients that connect, work at a bounded rate for a while, leave, and come back as somebody new."""

import ctypes
import itertools
import multiprocessing
import os
import signal
import threading
import time
from multiprocessing.sharedctypes import Synchronized
from random import Random
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaException, Message, Producer

from benchmarks.soak.short_lived import replace_producers
from benchmarks.soak.topics import TOPICS
from ottla.client.connection import Unreachable
from ottla.errors import KafkaError

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
GROUP_PROTOCOLS = ("classic", "consumer")
GROUPS_PER_PROTOCOL = 2
VALUE_BYTES = 1000
POLL_S = 0.2
FLUSH_S = 10.0
RETRY_S = 1.0
QUIET = {"log_level": 0}
KINDS = ("producers", "consumers", "short-lived")


class Load(NamedTuple):
    producers: int
    consumers: int
    stay_s: tuple[float, float]
    """The shortest and the longest time that a client stays connected."""
    records_per_s: float
    """Of each producer."""
    short_lived_per_s: float
    """Producers a second that send once and are never seen again."""


class Crowd:
    """All clients, in child processes: one for producers, one for consumers, one for the short-lived producers."""

    def __init__(self, bootstrap: str, load: Load, seed: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._connects: Synchronized[int] = context.Value(ctypes.c_long, 0)
        self._errors: Synchronized[int] = context.Value(ctypes.c_long, 0)
        self._processes = [
            context.Process(
                target=run_clients,
                args=(kind, bootstrap, load, seed + number, self._connects, self._errors),
                daemon=True,
            )
            for number, kind in enumerate(KINDS)
        ]
        for process in self._processes:
            process.start()

    def __enter__(self) -> "Crowd":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def connects(self) -> int:
        """How many clients have connected so far. Short-lived producers share a connection, and count as one."""
        return self._connects.value

    @property
    def errors(self) -> int:
        """How many clients ended with an error. Each was replaced by a new one."""
        return self._errors.value

    def is_running(self) -> bool:
        return all(process.is_alive() for process in self._processes)

    def stop(self) -> None:
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.join()


def run_clients(
    kind: str, bootstrap: str, load: Load, seed: int, connects: "Synchronized[int]", errors: "Synchronized[int]"
) -> None:
    """The body of a child process: every client has a thread. Ends when its parent has ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent receives SIGINT too, and ends this process
    parent = os.getppid()
    behave, count = {
        "producers": (produce, load.producers),
        "consumers": (consume, load.consumers),
        "short-lived": (produce_short_lived, 1 if load.short_lived_per_s else 0),
    }[kind]

    def live(number: int) -> None:
        random = Random(seed * 1000 + number)
        for turn in itertools.count():
            with connects.get_lock():
                connects.value += 1
            try:
                behave(bootstrap, load, number, turn, time.monotonic() + random.uniform(*load.stay_s))
            except (KafkaException, KafkaError, Unreachable):
                with errors.get_lock():
                    errors.value += 1
                time.sleep(RETRY_S)

    for number in range(count):
        threading.Thread(target=live, args=(number,), daemon=True).start()
    while os.getppid() == parent:
        time.sleep(1)


def produce(bootstrap: str, load: Load, number: int, turn: int, until: float) -> None:
    """One producer: every second one is idempotent; each has one of the codecs."""
    producer = Producer(
        QUIET
        | {
            "bootstrap.servers": bootstrap,
            "client.id": f"soak-producer-{number}",
            "enable.idempotence": number % 2 == 0,
            "compression.type": CODECS[number // 2 % len(CODECS)],
            "linger.ms": 20,
        }
    )
    failed: list[object] = []

    def delivered(error: object, message: Message) -> None:
        if error is not None:
            failed.append(error)

    random = Random(number)
    half = random.randbytes(VALUE_BYTES // 2)
    value = half + bytes(VALUE_BYTES - len(half))  # its random half cannot be compressed
    pause_s = 1 / load.records_per_s
    for record in itertools.count():
        if time.monotonic() >= until:
            break
        topic = TOPICS[(number + turn + record) % len(TOPICS)]
        producer.produce(topic, value, key=str(record).encode(), on_delivery=delivered)
        producer.poll(pause_s)
    producer.flush(FLUSH_S)
    if failed:
        raise KafkaException(failed[0])


def consume(bootstrap: str, load: Load, number: int, turn: int, until: float) -> None:
    """One member of a group: half of the groups have the classic protocol, half that of KIP-848."""
    protocol = GROUP_PROTOCOLS[number % len(GROUP_PROTOCOLS)]
    group = number // len(GROUP_PROTOCOLS) % GROUPS_PER_PROTOCOL
    consumer = Consumer(
        QUIET
        | {
            "bootstrap.servers": bootstrap,
            "client.id": f"soak-consumer-{number}",
            "group.id": f"soak-{protocol}-{group}",
            "group.protocol": protocol,
            "auto.offset.reset": "latest",
            "auto.commit.interval.ms": 1000,
        }
    )
    try:
        consumer.subscribe(list(TOPICS))
        while time.monotonic() < until:
            for message in consumer.consume(500, POLL_S):
                error = message.error()
                if error is not None and error.fatal():
                    raise KafkaException(error)
    finally:
        consumer.close()


def produce_short_lived(bootstrap: str, load: Load, number: int, turn: int, until: float) -> None:
    """Many producers that send once, through one connection."""
    replace_producers(bootstrap, load.short_lived_per_s, until)
