"""The records of a task, in one transaction of its own."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ottla.client.client import Client
from ottla.client.sending import OffsetRun, Sender
from ottla.client.transactions import IMPLICIT, ProducerIdentity, end_transaction, init_producer
from ottla.connect.running.topics import TopicGroup, count_or_create
from ottla.connect.worker.topics import encode_records
from ottla.topic_partition import TopicPartition
from pyspark_ottla.options import RecordShape

if TYPE_CHECKING:
    from ottla.pipeline.encoding import Encoder


class TransactionWriter:
    """Writes one transaction. It is not begun before the first record."""

    def __init__(
        self,
        client: Client,
        producer: ProducerIdentity,
        shape: RecordShape,
        groups: Sequence[TopicGroup],
        timeout_ms: int,
    ) -> None:
        self._client = client
        self._producer = producer
        self._shape = shape
        self._groups = groups
        self._timeout_ms = timeout_ms
        self._sender = Sender(client, producer, delivery_s=timeout_ms / 1000)
        self._encoders: dict[str, Encoder] = {}

    @property
    def topics(self) -> list[str]:
        """The topics that were written to."""
        return list(self._encoders)

    def write(self, topic: str, rows: pa.RecordBatch) -> None:
        encoder = self._encoders.get(topic)
        if encoder is None:
            from ottla.pipeline.encoding import Encoder  # with numba, which the driver does without

            shape = self._shape
            encoder = self._encoders[topic] = Encoder(
                lambda name: count_or_create(self._client, name, self._groups),
                self._client.random,
                topic=topic,
                codec=shape.codec,
                level=shape.level,
                batch_bytes=shape.batch_bytes,
                record_bytes_max=shape.record_bytes_max,
            )
        self._sender.send_all(encoder.add(rows))

    def write_offsets(self, topic: str, offsets: Iterable[tuple[str, Any]]) -> None:
        """Records of the offsets topic: keys and JSON values."""
        self._sender.send_all(encode_records(self._client, topic, offsets))

    def flush(self) -> None:
        for encoder in self._encoders.values():
            self._sender.send_all(encoder.flush())
        self._sender.flush()

    def find_runs(self) -> dict[TopicPartition, list[OffsetRun]]:
        """The offsets of everything that was written so far."""
        self.flush()
        return self._sender.find_runs()

    def commit(self) -> ProducerIdentity:
        """Commit everything. Returns the identity for the next transaction, whose sequence numbers begin at zero again.

        The older transaction protocol keeps the epoch, and with it the sequence numbers: there the epoch is raised
        here.
        """
        self.flush()
        following = end_transaction(self._client, self._producer, commit=True)
        if following.protocol == IMPLICIT:
            return following
        assert self._producer.transactional_id is not None
        return init_producer(self._client, self._producer.transactional_id, self._timeout_ms)
