"""Writes the rows of one task: encodes, sends, and waits for the acknowledgements. Runs in workers."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ottla.client.client import Client
from ottla.errors import ErrorCode, KafkaError
from pyspark_ottla.garbage import freeze_loaded_modules
from pyspark_ottla.options import WriteOptions

if TYPE_CHECKING:
    from pyarrow import RecordBatch

    from ottla.client.sending import Sender
    from ottla.client.transactions import ProducerIdentity
    from ottla.pipeline.encoding import Encoder


def write_rows(
    client: Client, options: WriteOptions, rows: "Iterator[RecordBatch]", producer: "ProducerIdentity | None" = None
) -> int:
    """Write rows and wait for the acknowledgements. Returns the number of rows.

    Raises KafkaError or Unreachable if one was not acknowledged.
    """
    encoder = create_encoder(client, options)
    freeze_loaded_modules()
    count = 0
    with open_sender(client, options, producer) as sending:
        for each in rows:
            count += each.num_rows
            sending.send_all(encoder.add(each))
        sending.send_all(encoder.flush())
    return count


@contextmanager
def open_sender(client: Client, options: WriteOptions, producer: "ProducerIdentity | None") -> "Iterator[Sender]":
    """A `Sender` that is flushed at the end of the block."""
    from ottla.client.sending import Sender

    sending = Sender(client, producer, acks=options.records.acks, delivery_s=options.records.delivery_s)
    try:
        yield sending
        sending.flush()
    except BaseException:
        client.close()  # answers that nobody will read may be in flight
        raise


class BatchRefused(Exception):
    """A batch of a query was not written. The message is one line."""


_FENCED = (
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.TRANSACTION_ABORTABLE,
    ErrorCode.UNKNOWN_PRODUCER_ID,
)


def explain_write_error(error: Exception, timeout_ms: int) -> str:
    """Why a write failed, in one line: what the broker says, and what that means for a query."""
    text = str(error)
    code = error.code if isinstance(error, KafkaError) else None
    if code in _FENCED:
        return (
            f"its transaction was ended by somebody else ({text}). It was open for longer than "
            f"kafka.transaction.timeout.ms ({timeout_ms}), or a second query runs with the same checkpoint"
        )
    if code == ErrorCode.INVALID_TRANSACTION_TIMEOUT:
        return (
            f"kafka.transaction.timeout.ms is {timeout_ms}, and that is more than the broker's "
            "transaction.max.timeout.ms allows"
        )
    return text


def create_encoder(client: Client, options: WriteOptions) -> "Encoder":
    from ottla.pipeline.encoding import Encoder  # machine code, which only workers need

    shape = options.records
    return Encoder(
        lambda topic: client.count_partitions([topic])[topic],
        client.random,
        topic=options.topic,
        codec=shape.codec,
        level=shape.level,
        batch_bytes=shape.batch_bytes,
        record_bytes_max=shape.record_bytes_max,
    )


def skip_to_first_row(rows: "Iterator[RecordBatch]") -> "Iterator[RecordBatch] | None":
    """The rows, or None if there are none, so that an empty task opens no transaction."""
    for first in rows:
        if first.num_rows:
            return _chain(first, rows)
    return None


def _chain(first: "RecordBatch", rest: "Iterator[RecordBatch]") -> "Iterator[RecordBatch]":
    yield first
    yield from rest


def drain(rows: "Iterator[RecordBatch]") -> None:
    """Consume rows that are not written, because the plan that computes them may update state."""
    for _ in rows:
        pass
