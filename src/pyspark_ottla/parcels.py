"""Record batches as rows: how records travel from the tasks that compute them to the one that writes their partition.

A partition has one writer within a transaction, so what many tasks computed must be brought together by Spark. Packed
before, a thousand records are one row of a shuffle, compressed already; row by row the shuffle would cost more than all
the rest. What cannot be packed travels as well: whoever was to write it tells the driver.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ottla.client.client import Client
from ottla.errors import KafkaError
from pyspark_ottla.garbage import keep_what_is_loaded
from pyspark_ottla.options import WriteOptions
from pyspark_ottla.writing import BatchRefused, drain, explanation, record_encoder, sender

if TYPE_CHECKING:
    from pyarrow import RecordBatch

    from ottla.client.sending import EncodedBatch
    from ottla.client.transactions import ProducerIdentity

SCHEMA = "partition int, records int, time long, batch binary, trouble string"
"""Of one topic, which everyone knows."""


def packed(client: Client, options: WriteOptions, rows: "Iterator[RecordBatch]") -> "Iterator[RecordBatch]":
    """Parcels, as soon as they are full."""
    encoder = record_encoder(client, options)
    keep_what_is_loaded()
    try:
        for each in rows:
            yield from _parcels(encoder.add(each))
        yield from _parcels(encoder.flush())
    except KafkaError as error:
        drain(rows)
        yield _parcel([0], [0], [0], [None], explanation(error, options.timeout_ms))


def write_parcels(
    client: Client, options: WriteOptions, parcels: "Iterator[RecordBatch]", producer: "ProducerIdentity"
) -> int:
    """How many records there were. BatchRefused if one of them could not be packed; KafkaError or Unreachable if one
    was not acknowledged."""
    count = 0
    with sender(client, options, producer) as sending:
        for lot in parcels:
            for encoded in _unpacked(lot, options):
                count += encoded.count
                sending.send(encoded)
    return count


def _parcels(batches: "Iterator[EncodedBatch]") -> "Iterator[RecordBatch]":
    found = list(batches)
    if found:
        yield _parcel(
            [each.partition for each in found],
            [each.count for each in found],
            [each.timestamp for each in found],
            [each.data for each in found],
        )


def _parcel(
    partitions: list[int],
    counts: list[int],
    times: list[int],
    batches: "list[memoryview | bytearray] | list[None]",
    trouble: str | None = None,
) -> "RecordBatch":
    import pyarrow

    return pyarrow.record_batch(
        {
            "partition": pyarrow.array(partitions, pyarrow.int32()),
            "records": pyarrow.array(counts, pyarrow.int32()),
            "time": pyarrow.array(times, pyarrow.int64()),
            "batch": pyarrow.array(batches, pyarrow.binary()),
            "trouble": pyarrow.array([trouble] * len(partitions), pyarrow.string()),
        }
    )


def _unpacked(lot: "RecordBatch", options: WriteOptions) -> "Iterator[EncodedBatch]":
    from ottla.client.sending import EncodedBatch

    assert options.topic is not None
    numbers = zip(*(lot.column(name).to_pylist() for name in ("partition", "records", "time", "trouble")), strict=True)
    batches = lot.column("batch")
    for index, (partition, count, time, trouble) in enumerate(numbers):
        if trouble is not None:
            raise BatchRefused(trouble)
        data = bytearray(batches[index].as_buffer())  # its header is written when it is sent
        yield EncodedBatch(options.topic, partition, count, time, options.records.codec, data)
