"""Sends the shop's events to topics at an even rate."""

from typing import TYPE_CHECKING

from ottla.cli.client import CommandClient, explain
from ottla.cli.command_error import CommandError
from ottla.cli.demo.shop import Event, Shop

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

CHUNK = 1_000
FLUSH_S = 30.0


class Traffic:
    """A producer of the shop's events."""

    def __init__(self, client: CommandClient, shop: Shop, rate: int) -> None:
        self._producer = client.create_producer(
            {"linger.ms": 20, "compression.type": "lz4", "acks": "all", "partitioner": "murmur2_random"}
        )
        self._shop = shop
        self._rate = rate
        self._failure = ""
        self.sent = 0

    def send_customers(self) -> None:
        for event in self._shop.customers():
            self._send(event)
        self.flush()

    def turn(self, elapsed_s: float) -> None:
        """Send the events that are due, at most a bounded number of them at once."""
        for _ in range(min(int(elapsed_s * self._rate) - self.sent, CHUNK)):
            self._send(self._shop.event())
            self.sent += 1
        self._producer.poll(0)
        self._check()

    def send_straggler(self) -> None:
        """An order that is too late, if there was an order before."""
        if event := self._shop.straggler():
            self._send(event)

    def flush(self) -> None:
        """Wait until every record is acknowledged."""
        if left := self._producer.flush(FLUSH_S):
            raise CommandError(f"demo: {left} records were not acknowledged within {FLUSH_S:.0f} s")
        self._check()

    def _send(self, event: Event) -> None:
        while True:
            try:
                self._producer.produce(
                    event.topic, event.value, event.key, on_delivery=self._delivered, timestamp=event.at_ms
                )
                return
            except BufferError:  # the client's queue is full: the broker sets the pace
                self._producer.poll(0.1)

    def _delivered(self, error: "KafkaError | None", message: "Message") -> None:
        if error is not None:
            self._failure = explain(error)

    def _check(self) -> None:
        if self._failure:
            raise CommandError(f"demo: a record was not delivered: {self._failure}")
