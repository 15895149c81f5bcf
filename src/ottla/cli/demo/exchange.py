"""Records sent through a broker and read back at the same time, each numbered so that none can be lost unnoticed."""

import time
from struct import Struct

from ottla.cli.command_error import CommandError

TOPIC = "demo"
PARTITIONS = 4
ADMIN_S = 10.0
PATIENCE_S = 10.0  # how long to wait when no record arrives
CHUNK = 2_000
FETCHED_MAX = 10_000

NUMBER = Struct(">Q")


class Exchange:
    """Record n goes to partition n % PARTITIONS, so each partition must return its own arithmetic series."""

    VALUE_BYTES_MIN = NUMBER.size

    def __init__(self, address: str, record_bytes: int) -> None:
        from confluent_kafka import Consumer, Producer, TopicPartition

        self.record_bytes = record_bytes
        self.produced = self.acknowledged = self.consumed = 0
        self.complaints: list[str] = []
        self._filler = bytes(i % 251 for i in range(record_bytes - NUMBER.size))
        self._due = list(range(PARTITIONS))
        self._heard_s = time.perf_counter()
        _create_topic(address)
        servers = {"bootstrap.servers": address}
        self._producer = Producer({**servers, "linger.ms": 5, "batch.size": 1 << 20, "acks": "all"})
        self._consumer = Consumer({**servers, "group.id": "demo", "enable.auto.commit": False, "fetch.wait.max.ms": 50})
        self._consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])
        self._producing = True

    @property
    def finished(self) -> bool:
        """Whether every record was acknowledged and read back, or nothing has arrived for too long."""
        if self._producing:
            return False
        if self.consumed >= self.produced and not len(self._producer):
            return True
        return bool(self.complaints) or time.perf_counter() - self._heard_s > PATIENCE_S

    @property
    def intact(self) -> bool:
        return not self.complaints and self.produced == self.acknowledged == self.consumed

    def turn(self, *, producing: bool) -> None:
        """Send some records and read those that have arrived."""
        self._producing = producing
        if producing:
            self._send(CHUNK)
        self._producer.poll(0)
        self._receive(0.0 if producing else 0.05)

    def close(self) -> None:
        self._producer.flush(ADMIN_S)
        self._consumer.close()
        if self.produced != self.acknowledged:
            self._complain(f"{self.produced - self.acknowledged:,} records were never acknowledged")
        if self.produced > self.consumed:
            self._complain(f"{self.produced - self.consumed:,} records did not come back")

    def _send(self, records: int) -> None:
        for number in range(self.produced, self.produced + records):
            value = NUMBER.pack(number) + self._filler
            try:
                self._producer.produce(TOPIC, value, partition=number % PARTITIONS, on_delivery=self._delivered)
            except BufferError:  # the client's queue is full: the broker sets the pace
                return
            self.produced = number + 1

    def _delivered(self, error: object, message: object) -> None:
        if error is None:
            self.acknowledged += 1
        else:
            self._complain(f"not delivered: {error}")

    def _receive(self, timeout_s: float) -> None:
        messages = self._consumer.consume(FETCHED_MAX, timeout_s)
        for message in messages:
            if message.error():
                self._complain(f"not fetched: {message.error()}")
            else:
                self._check(message.partition() or 0, message.value() or b"")
        if messages:
            self._heard_s = time.perf_counter()

    def _check(self, partition: int, value: bytes) -> None:
        due = self._due[partition]
        number = NUMBER.unpack_from(value)[0]
        if number != due:
            self._complain(f"partition {partition}: record {number} came where {due} was due")
        if value[NUMBER.size :] != self._filler:
            self._complain(f"partition {partition}: record {number} was changed on the way")
        self._due[partition] = number + PARTITIONS
        self.consumed += 1

    def _complain(self, complaint: str) -> None:
        if len(self.complaints) < 10:
            self.complaints.append(complaint)


def _create_topic(address: str) -> None:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    client = AdminClient({"bootstrap.servers": address})  # its futures are only valid while it lives
    topic = NewTopic(TOPIC, num_partitions=PARTITIONS, replication_factor=1)
    created = client.create_topics([topic], operation_timeout=ADMIN_S)
    try:
        created[TOPIC].result(ADMIN_S)
    except KafkaException as error:
        raise CommandError(f"demo: the topic could not be created: {error.args[0]}") from None
