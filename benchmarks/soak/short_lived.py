"""Idempotent producers that write one small batch to every partition and are never seen again.

By default a partition remembers such producers for a day, and at most PRODUCERS_MAX of them. `fill_producer_states`
brings every partition to that bound quickly. `replace_producers` then goes on at a bounded rate, so that the broker
keeps forgetting the oldest ones while it is being watched.
"""

import itertools
import time
from collections.abc import Callable, Iterator

from benchmarks.soak.topics import PARTITIONS, TOPICS
from ottla.client.client import Client
from ottla.client.sending import EncodedBatch, Sender
from ottla.records import batch
from ottla.storage.producer_state import EVICTED_AT_ONCE, PRODUCERS_MAX

FILL_COUNT = PRODUCERS_MAX + EVICTED_AT_ONCE
"""Enough that every partition has reached the bound, and has forgotten producers at least once."""
WARM_UP_BATCHES, WARM_UP_RECORDS = 20, 1000
"""Enough records that the broker loads the machine code for checks, which takes 140 MB once."""
GZIP = 1


def fill_producer_states(bootstrap: str, report: Callable[[int], None]) -> None:
    """Send as FILL_COUNT new producers, one after the other. `report` receives how many have sent so far."""
    client = Client({"bootstrap.servers": bootstrap, "client.id": "soak-filler"})
    try:
        for number in range(FILL_COUNT):
            send_once(client)
            report(number + 1)
    finally:
        client.close()


def load_machine_code(bootstrap: str) -> None:
    """Send enough records that the broker checks them with machine code from now on.

    Otherwise the clients would bring the broker there after some minutes, and the step would look like growth.
    """
    client = Client({"bootstrap.servers": bootstrap, "client.id": "soak-warm-up"})
    now_ms = int(time.time() * 1000)
    sender = Sender(client)
    try:
        for _ in range(WARM_UP_BATCHES):
            data = batch.encode([(None, b"warm-up", (), now_ms)] * WARM_UP_RECORDS, codec=GZIP)
            sender.send(EncodedBatch(TOPICS[0], 0, WARM_UP_RECORDS, now_ms, GZIP, data))
        sender.flush()
    finally:
        client.close()


def replace_producers(bootstrap: str, per_second: float, until: float) -> None:
    """Send as a new producer `per_second` times a second, until that monotonic time."""
    client = Client({"bootstrap.servers": bootstrap, "client.id": "soak-short-lived"})
    began = time.monotonic()
    try:
        for number in itertools.count():
            due = began + number / per_second
            if due >= until:
                break
            time.sleep(max(0.0, due - time.monotonic()))
            send_once(client)
    finally:
        client.close()


def send_once(client: Client) -> None:
    """Ask for a producer id, and write one batch with it to every partition, in one request."""
    sender = Sender(client)
    sender.send_all(small_batches())
    sender.flush()


def small_batches() -> Iterator[EncodedBatch]:
    now_ms = int(time.time() * 1000)
    for topic in TOPICS:
        for partition in range(PARTITIONS):
            data = batch.encode([(None, b"short-lived", (), now_ms)])
            yield EncodedBatch(topic, partition, 1, now_ms, 0, data)
