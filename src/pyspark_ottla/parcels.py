"""Parcels: encoded record batches as rows of Spark, from the tasks that compute records to the task that writes them.

Within a transaction each partition has one writer, so a shuffle brings the records of a partition together. Encoded
before the shuffle, a thousand records are one compressed row; shuffled one by one they would cost more than all the
rest. An error of the encoding travels as a parcel too, and the writing task reports it to the driver.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ottla.client.client import Client
from ottla.errors import KafkaError
from pyspark_ottla.garbage import freeze_loaded_modules
from pyspark_ottla.options import WriteOptions
from pyspark_ottla.writing import BatchRefused, create_encoder, drain, explain_write_error, open_sender

if TYPE_CHECKING:
    from pyarrow import RecordBatch

    from ottla.client.sending import EncodedBatch
    from ottla.client.transactions import ProducerIdentity

SCHEMA = "partition int, records int, time long, time_max long, batch binary, trouble string"
"""All parcels belong to the topic of the sink."""


def pack_rows(client: Client, options: WriteOptions, rows: "Iterator[RecordBatch]") -> "Iterator[RecordBatch]":
    """Encode rows into parcels, each as soon as it is full."""
    encoder = create_encoder(client, options)
    freeze_loaded_modules()
    try:
        for each in rows:
            yield from _make_parcels(encoder.add(each))
        yield from _make_parcels(encoder.flush())
    except KafkaError as error:
        drain(rows)
        yield _make_parcel([0], [0], [0], [None], [None], explain_write_error(error, options.timeout_ms))


def write_parcels(
    client: Client, options: WriteOptions, parcels: "Iterator[RecordBatch]", producer: "ProducerIdentity"
) -> int:
    """Write parcels and wait for the acknowledgements. Returns the number of records.

    Raises BatchRefused if a row could not be encoded, KafkaError or Unreachable if a record was not acknowledged.
    """
    count = 0
    with open_sender(client, options, producer) as sending:
        for lot in parcels:
            for encoded in _unpack(lot, options):
                count += encoded.count
                sending.send(encoded)
    return count


def _make_parcels(batches: "Iterator[EncodedBatch]") -> "Iterator[RecordBatch]":
    found = list(batches)
    if found:
        yield _make_parcel(
            [each.partition for each in found],
            [each.count for each in found],
            [each.timestamp for each in found],
            [each.timestamp_max for each in found],
            [each.data for each in found],
        )


def _make_parcel(
    partitions: list[int],
    counts: list[int],
    times: list[int],
    times_max: list[int | None],
    batches: "list[memoryview | bytearray] | list[None]",
    trouble: str | None = None,
) -> "RecordBatch":
    import pyarrow

    return pyarrow.record_batch(
        {
            "partition": pyarrow.array(partitions, pyarrow.int32()),
            "records": pyarrow.array(counts, pyarrow.int32()),
            "time": pyarrow.array(times, pyarrow.int64()),
            "time_max": pyarrow.array(times_max, pyarrow.int64()),
            "batch": pyarrow.array(batches, pyarrow.binary()),
            "trouble": pyarrow.array([trouble] * len(partitions), pyarrow.string()),
        }
    )


def _unpack(lot: "RecordBatch", options: WriteOptions) -> "Iterator[EncodedBatch]":
    from ottla.client.sending import EncodedBatch

    assert options.topic is not None
    names = ("partition", "records", "time", "time_max", "trouble")
    numbers = zip(*(lot.column(name).to_pylist() for name in names), strict=True)
    batches = lot.column("batch")
    for index, (partition, count, time, time_max, trouble) in enumerate(numbers):
        if trouble is not None:
            raise BatchRefused(trouble)
        data = bytearray(batches[index].as_buffer())  # its header is written when it is sent
        yield EncodedBatch(options.topic, partition, count, time, options.records.codec, data, time_max)
