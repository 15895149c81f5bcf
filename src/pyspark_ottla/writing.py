"""Rows of one task to records of topics: encoded, sent, and acknowledged when this returns. Runs in workers."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import WriterCommitMessage

from ottla.pipeline.cluster import Cluster
from pyspark_ottla.options import WriteOptions

if TYPE_CHECKING:
    from pyarrow import RecordBatch

    from ottla.pipeline.transactions import ProducerIdentity


class Written(WriterCommitMessage):
    """What a task tells the driver when it has written its rows."""

    def __init__(self, rows: int) -> None:
        self.rows = rows


def write_rows(
    cluster: Cluster, options: WriteOptions, rows: "Iterator[RecordBatch]", producer: "ProducerIdentity | None" = None
) -> int:
    """How many there were. KafkaError or Unreachable if one of them was not acknowledged."""
    from ottla.pipeline.encoding import Encoder  # machine code, which only workers need
    from ottla.pipeline.sending import Sender

    shape = options.records
    encoder = Encoder(
        lambda topic: cluster.topics([topic])[topic],
        cluster.random,
        topic=options.topic,
        codec=shape.codec,
        level=shape.level,
        batch_bytes=shape.batch_bytes,
        record_bytes_max=shape.record_bytes_max,
    )
    sender = Sender(cluster, producer, acks=shape.acks, delivery_s=shape.delivery_s)
    count = 0
    try:
        for each in rows:
            count += each.num_rows
            sender.send_all(encoder.add(each))
        sender.send_all(encoder.flush())
        sender.flush()
    except BaseException:
        cluster.close()  # answers that nobody waits for any more may still be on their way
        raise
    return count
