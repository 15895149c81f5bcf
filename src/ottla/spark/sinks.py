"""`write_stream`: results of a streaming query into a topic, exactly once, in every output mode.

A batch is one transaction of the broker (`ottla.client.exactly_once.batch_ledger`): all its rows become visible
together, and with them the offsets of what was read, so a consumer group's lag is exact. Records are brought together
by partition first (`pyspark_ottla.parcels`), because within a transaction a partition has one writer; nothing else
depends on how Spark plans a batch.

Spark repeats tasks that fail, or whose executor is lost. A task that has begun to write cannot be repeated within its
transaction (`ottla.client.exactly_once.claims`), so then the whole batch is begun anew. What cannot be written at all
is not left to Spark, which would only repeat it: the task tells the driver, and the query ends with that one line.
"""

import logging
import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from ottla.client.client import Client, get_shared_client
from ottla.client.connection import Unreachable
from ottla.client.exactly_once.batch_ledger import BatchLedger
from ottla.client.exactly_once.claims import Claim, take_claim
from ottla.client.transactions import ProducerIdentity
from ottla.errors import KafkaError
from ottla.spark.progress import topic_offsets
from ottla.topic_partition import TopicPartition
from pyspark_ottla import parcels
from pyspark_ottla.options import ACKS, WriteOptions, write_options
from pyspark_ottla.rows import check_written
from pyspark_ottla.stream_writer import QUERY_ID
from pyspark_ottla.writing import BatchRefused, drain, explanation, from_first_row, write_rows

if TYPE_CHECKING:
    from pyarrow import RecordBatch

logger = logging.getLogger("ottla.spark")

MODES = ("append", "update", "complete")
ROUNDS_MAX = 4
"""How often a batch is run when Spark repeats a task of it."""

REPEATED = "a task was repeated within a transaction"
_OURS = re.compile(r"^(?:ottla\.errors\.KafkaError|ottla\.client\.connection\.\w+): (.+)$", re.MULTILINE)
"""The last line of a traceback that Spark brings from a task."""

TOLD = "task int, rows long, trouble string"
"""What the driver hears of a task."""


def write_stream(
    frame: DataFrame,
    topic: str,
    *,
    checkpoint: str,
    options: Mapping[str, str],
    mode: str = "append",
    trigger: Mapping[str, Any] | None = None,
    name: str | None = None,
    group: str | None = None,
) -> StreamingQuery:
    """Start a query that writes `frame` (value, and if you like key, headers and partition) into `topic`.

    `options` are those of a write with format("ottla"): kafka.bootstrap.servers above all. `trigger` is what Spark's
    trigger() takes. With `group` the offsets of all topics that the query reads are committed to that consumer group,
    together with the rows; the topics must be of the cluster that is written to.
    """
    settings = write_options({**options, "topic": topic})
    if mode not in MODES:
        raise ValueError(f"mode: {mode!r} is none of {', '.join(MODES)}")
    if settings.records.acks != ACKS["all"]:
        raise ValueError("kafka.acks: exactly-once needs acks=all")
    if "topic" in frame.columns:
        raise ValueError("a column 'topic': write_stream writes to one topic; drop the column")
    check_written(frame.schema, topic)
    if str(frame.sparkSession.conf.get("spark.speculation", "false")).lower() == "true":
        raise ValueError("spark.speculation: two attempts of a task cannot write one transaction; switch it off")
    sink = _Sink(settings, topic, checkpoint, group)
    writer = frame.writeStream.foreachBatch(sink).outputMode(mode).option("checkpointLocation", checkpoint)
    if name is not None:
        writer = writer.queryName(name)
    return (writer.trigger(**trigger) if trigger else writer).start()


class _Sink:
    """Called by Spark with each batch, in the driver."""

    def __init__(self, options: WriteOptions, topic: str, checkpoint: str, group: str | None) -> None:
        self._options = options
        self._topic = topic
        self._checkpoint = checkpoint
        self._group = group
        self._client = Client(options.kafka)
        self._ledger: BatchLedger | None = None

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        try:
            self._land(frame, batch_id, self._ledger_of(frame.sparkSession))
        finally:
            self._client.close()  # nobody tells a sink that its query has ended

    def _land(self, frame: DataFrame, batch_id: int, ledger: BatchLedger) -> None:
        for _ in range(ROUNDS_MAX):
            ending = False
            try:
                producer = ledger.begin(batch_id)
                if producer is None:
                    self._compute(frame)
                    return
                self._write(frame, producer, ledger)
                sources = self._sources(frame.sparkSession, batch_id)
                ending = True
                ledger.commit(batch_id, sources)
                return
            except Exception as error:
                ledger.abort()
                if REPEATED not in str(error):
                    raise self._refusal(batch_id, error, ending) from None
                logger.warning("batch %d is run again: %s", batch_id, REPEATED)
        raise BatchRefused(
            f"batch {batch_id} was not written to topic {self._topic!r}: it was run {ROUNDS_MAX} times, and each time "
            "Spark lost a task while it wrote. The executors' logs say why"
        )

    def _refusal(self, batch_id: int, error: Exception, ending: bool) -> Exception:
        """What is ours in one line; what else Spark says of a job that failed is told as it is."""
        if isinstance(error, KafkaError | Unreachable | BatchRefused):
            text = explanation(error, self._options.timeout_ms)
        elif found := _OURS.search(str(error)):
            text = found[1]
        else:
            return error
        if ending and isinstance(error, Unreachable):
            text = f"or its end was not heard of; when the query is started again it will know: {text}"
        return BatchRefused(f"batch {batch_id} was not written to topic {self._topic!r}: {text}")

    def _ledger_of(self, spark: SparkSession) -> BatchLedger:
        if self._ledger is None:
            query_id = spark.sparkContext.getLocalProperty(QUERY_ID)
            if query_id is None:
                raise RuntimeError("Spark does not tell which query this is")
            options = self._options
            self._ledger = BatchLedger(
                self._client, query_id, self._topic, timeout_ms=options.timeout_ms, resume=options.without_ledger
            )
        return self._ledger

    def _write(self, frame: DataFrame, producer: ProducerIdentity, ledger: BatchLedger) -> None:
        count, options = self._client.count_partitions([self._topic])[self._topic], self._options
        claims = ledger.claims.open(count)
        if count == 1:
            ready, write = frame.coalesce(1), _written_by(options, producer, claims)
        else:
            ready = frame.mapInArrow(_packed_by(options), parcels.SCHEMA).repartition(count, "partition")
            write = _written_by(options, producer, claims, parcels.write_parcels)
        told = ready.mapInArrow(write, TOLD).collect()
        for task in told:
            if task.trouble is not None:
                raise BatchRefused(task.trouble)
        ledger.claims.settle([task.task for task in told if task.rows])

    @staticmethod
    def _compute(frame: DataFrame) -> None:
        """The batch has landed, but the state that computed it must go on with it."""
        frame.mapInArrow(_dropped, TOLD).collect()

    def _sources(self, spark: SparkSession, batch_id: int) -> dict[str, dict[TopicPartition, int]]:
        """Where the batch ends in the topics that it reads, as Spark wrote it down before the batch began."""
        if self._group is None:
            return {}
        jvm: Any = spark.sparkContext._jvm
        path = jvm.org.apache.hadoop.fs.Path(f"{self._checkpoint}/offsets/{batch_id}")
        session: Any = spark
        files = path.getFileSystem(session._jsparkSession.sessionState().newHadoopConf())
        stream = files.open(path)
        try:
            text = bytes(stream.readAllBytes()).decode()
        finally:
            stream.close()
        offsets: dict[TopicPartition, int] = {}
        for line in text.splitlines()[2:]:  # before them: the version, and Spark's own settings
            offsets.update(topic_offsets(line))
        return {self._group: offsets}


Rows = Callable[["Iterator[RecordBatch]"], "Iterator[RecordBatch]"]


def _packed_by(options: WriteOptions) -> Rows:
    return lambda rows: parcels.packed(get_shared_client(options.kafka), options, rows)


def _written_by(
    options: WriteOptions, producer: ProducerIdentity, claims: tuple[Claim, ...], send: Callable[..., int] = write_rows
) -> Rows:
    def write(rows: "Iterator[RecordBatch]") -> "Iterator[RecordBatch]":
        context = TaskContext.get()
        assert context is not None, "Spark runs this"
        task = context.partitionId()
        present = from_first_row(rows)
        if present is None:
            yield _told(task, 0)
            return
        client = get_shared_client(options.kafka)
        if context.attemptNumber() > 0 or not take_claim(client, claims[task]):
            drain(present)  # what made the first attempt fail may show itself again, in its own words
            raise RuntimeError(REPEATED)
        try:
            count = send(client, options, present, producer)
        except (KafkaError, Unreachable, BatchRefused) as error:
            drain(present)
            yield _told(task, 0, explanation(error, options.timeout_ms))
        else:
            yield _told(task, count)

    return write


def _dropped(rows: "Iterator[RecordBatch]") -> "Iterator[RecordBatch]":
    drain(rows)
    yield _told(0, 0)


def _told(task: int, rows: int, trouble: str | None = None) -> "RecordBatch":
    import pyarrow

    columns = {
        "task": pyarrow.array([task], pyarrow.int32()),
        "rows": pyarrow.array([rows], pyarrow.int64()),
        "trouble": pyarrow.array([trouble], pyarrow.string()),
    }
    return pyarrow.record_batch(columns)
