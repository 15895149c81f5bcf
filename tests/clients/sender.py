"""A producer that continues whatever happens to its broker, and the offsets that it was told."""

from collections.abc import Callable
from time import monotonic

from confluent_kafka import OFFSET_BEGINNING, KafkaError, Message, Producer, TopicPartition

from tests.clients import logins
from tests.clients.confluent import open_consumer, take_messages
from tests.patience import PATIENCE_S

VALUE = b"x" * 500
UNANSWERED_MAX = 5000


class Sender:
    """A producer of numbered records, and which of them were acknowledged at which offset."""

    def __init__(self, bootstrap: str, topic: str, *, idempotent: bool, request_timeout_ms: int = 5000) -> None:
        self.topic = topic
        self.sent = 0
        self.acknowledged: dict[int, int] = {}
        self.failures: list[str] = []
        self.troubles: list[str] = []
        """Errors that the library reported: a request that timed out, a broker that is gone."""
        self._producer = Producer(
            {
                **logins.librdkafka(bootstrap),
                "enable.idempotence": idempotent,
                "acks": -1,
                # without idempotence a retry would change the order
                "max.in.flight.requests.per.connection": 5 if idempotent else 1,
                "linger.ms": 1,
                "batch.num.messages": 20,
                "request.timeout.ms": request_timeout_ms,
                "socket.timeout.ms": request_timeout_ms + 500,
                "message.timeout.ms": int(PATIENCE_S * 1000),
                "retry.backoff.ms": 10,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 50,
                "error_cb": lambda error: self.troubles.append(str(error)),
                "log_level": 0,  # the library would log every death of the broker
            }
        )

    def send(self, count: int) -> None:
        for number in range(self.sent, self.sent + count):

            def delivered(error: KafkaError | None, message: Message, number: int = number) -> None:
                offset = message.offset()
                if error is not None or offset is None:
                    self.failures.append(f"{number}: {error}")
                else:
                    self.acknowledged[number] = offset

            self._producer.produce(self.topic, VALUE, str(number).encode(), 0, on_delivery=delivered)
        self.sent += count

    def work_until(self, done: Callable[[], bool]) -> None:
        """Send at a moderate pace until the condition is true."""
        deadline = monotonic() + PATIENCE_S
        while not done():
            assert monotonic() < deadline, (self.sent, len(self.acknowledged), self.troubles)
            if self.sent - len(self.acknowledged) < UNANSWERED_MAX:
                self.send(20)
            self._producer.poll(0.003)

    def work(self, count: int) -> None:
        """Send until so many more records are acknowledged."""
        wanted = len(self.acknowledged) + count
        self.work_until(lambda: len(self.acknowledged) >= wanted)

    def finish(self) -> None:
        assert self._producer.flush(PATIENCE_S) == 0
        assert not self.failures, self.failures[:3]
        assert len(self.acknowledged) == self.sent


def read_numbers(bootstrap: str, topic: str) -> list[tuple[int, int]]:
    """Read number and offset of every record."""
    with open_consumer(bootstrap) as opened:
        partition = TopicPartition(topic, 0)
        _, end = opened.get_watermark_offsets(partition, PATIENCE_S)
        opened.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        found = []
        for message in take_messages(opened, end):
            key, offset, value = message.key(), message.offset(), message.value()
            assert value == VALUE and key is not None and offset is not None
            found.append((int(key), offset))
        return found
