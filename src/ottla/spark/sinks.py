"""`write_stream`: writes the results of a streaming query to a topic, exactly once, in every output mode.

A batch is one transaction (`ottla.client.exactly_once.batch_ledger`): its rows and the offsets of the source become
visible together, so a consumer group's lag is exact. Records are first brought together by partition
(`pyspark_ottla.parcels`), because within a transaction each partition has one writer.

Spark repeats tasks that fail or whose executor is lost. A task that has begun to write cannot be repeated within its
transaction (`ottla.client.exactly_once.claims`), so the whole batch starts again. An error that a repetition cannot
solve is not raised in the task, where Spark would repeat it: the task reports it to the driver, which ends the query
with that one line.
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
from ottla.spark.cluster_options import complete_cluster
from ottla.spark.progress import parse_topic_offsets
from ottla.topic_partition import TopicPartition
from pyspark_ottla import parcels
from pyspark_ottla.options import ACKS, WriteOptions, parse_write_options
from pyspark_ottla.rows import check_written
from pyspark_ottla.stream_writer import QUERY_ID
from pyspark_ottla.writing import BatchRefused, drain, explain_write_error, skip_to_first_row, write_rows

if TYPE_CHECKING:
    from pyarrow import RecordBatch

logger = logging.getLogger("ottla.spark")

MODES = ("append", "update", "complete")
ROUNDS_MAX = 4
"""How often a batch is tried when Spark repeats tasks of it."""

REPEATED = "a task was repeated within a transaction"
_OURS = re.compile(r"^(?:ottla\.errors\.KafkaError|ottla\.client\.connection\.\w+): (.+)$", re.MULTILINE)
"""The last line of a Python traceback in an error of Spark, if it is one of our exceptions."""

REPORT_SCHEMA = "task int, rows long, trouble string"
"""The schema of a task's report to the driver."""


def write_stream(
    frame: DataFrame,
    topic: str,
    *,
    checkpoint: str,
    options: Mapping[str, str] | None = None,
    mode: str = "append",
    trigger: Mapping[str, Any] | None = None,
    name: str | None = None,
    group: str | None = None,
) -> StreamingQuery:
    """Start a query that writes `frame` (value, and if you like key, headers, partition and timestamp) into `topic`.

    `options` are those of a write with format("ottla"): kafka.bootstrap.servers above all. Without it, the cluster is
    that of the command line: of $OTTLA_BOOTSTRAP, of the profile in use, or localhost:9092. `trigger` is what Spark's
    trigger() takes. With `group` the offsets of all topics that the query reads are committed to that consumer group,
    together with the rows; the topics must be of the cluster that is written to.
    """
    settings = parse_write_options({**complete_cluster(None, options), "topic": topic})
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
    """Spark calls it with each batch, in the driver."""

    def __init__(self, options: WriteOptions, topic: str, checkpoint: str, group: str | None) -> None:
        self._options = options
        self._topic = topic
        self._checkpoint = checkpoint
        self._group = group
        self._client = Client(options.kafka)
        self._ledger: BatchLedger | None = None

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        try:
            self._write_batch(frame, batch_id, self._make_ledger(frame.sparkSession))
        finally:
            self._client.close()  # Spark does not tell a sink that its query has ended

    def _write_batch(self, frame: DataFrame, batch_id: int, ledger: BatchLedger) -> None:
        for _ in range(ROUNDS_MAX):
            ending = False
            try:
                producer = ledger.begin(batch_id)
                if producer is None:
                    self._compute(frame)
                    return
                self._write(frame, producer, ledger)
                sources = self._find_sources(frame.sparkSession, batch_id)
                ending = True
                ledger.commit(batch_id, sources)
                return
            except Exception as error:
                ledger.abort()
                if REPEATED not in str(error):
                    raise self._explain_failure(batch_id, error, ending) from None
                logger.warning("batch %d is run again: %s", batch_id, REPEATED)
        raise BatchRefused(
            f"batch {batch_id} was not written to topic {self._topic!r}: it was run {ROUNDS_MAX} times, and each time "
            "Spark lost a task while it wrote. The executors' logs say why"
        )

    def _explain_failure(self, batch_id: int, error: Exception, ending: bool) -> Exception:
        """Our own errors as one line; other errors of a Spark job as they are."""
        if isinstance(error, KafkaError | Unreachable | BatchRefused):
            text = explain_write_error(error, self._options.timeout_ms)
        elif found := _OURS.search(str(error)):
            text = found[1]
        else:
            return error
        if ending and isinstance(error, Unreachable):
            text = f"or the answer to its commit was lost; a restart of the query finds out: {text}"
        return BatchRefused(f"batch {batch_id} was not written to topic {self._topic!r}: {text}")

    def _make_ledger(self, spark: SparkSession) -> BatchLedger:
        if self._ledger is None:
            query_id = spark.sparkContext.getLocalProperty(QUERY_ID)
            if query_id is None:
                raise RuntimeError("Spark does not provide the query id")
            options = self._options
            self._ledger = BatchLedger(
                self._client, query_id, self._topic, timeout_ms=options.timeout_ms, resume=options.without_ledger
            )
        return self._ledger

    def _write(self, frame: DataFrame, producer: ProducerIdentity, ledger: BatchLedger) -> None:
        count, options = self._client.count_partitions([self._topic])[self._topic], self._options
        claims = ledger.claims.open(count)
        if count == 1:
            ready, write = frame.coalesce(1), _write_with(options, producer, claims)
        else:
            ready = frame.mapInArrow(_pack_with(options), parcels.SCHEMA).repartition(count, "partition")
            write = _write_with(options, producer, claims, parcels.write_parcels)
        reports = ready.mapInArrow(write, REPORT_SCHEMA).collect()
        for task in reports:
            if task.trouble is not None:
                raise BatchRefused(task.trouble)
        ledger.claims.settle([task.task for task in reports if task.rows])

    @staticmethod
    def _compute(frame: DataFrame) -> None:
        """Run a batch that was written before: its plan may update state."""
        frame.mapInArrow(_drop_rows, REPORT_SCHEMA).collect()

    def _find_sources(self, spark: SparkSession, batch_id: int) -> dict[str, dict[TopicPartition, int]]:
        """The offsets at which the batch ends in its source topics, from Spark's offset log."""
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
        for line in text.splitlines()[2:]:  # the first two lines are the version and Spark's metadata
            offsets.update(parse_topic_offsets(line))
        return {self._group: offsets}


Rows = Callable[["Iterator[RecordBatch]"], "Iterator[RecordBatch]"]


def _pack_with(options: WriteOptions) -> Rows:
    return lambda rows: parcels.pack_rows(get_shared_client(options.kafka), options, rows)


def _write_with(
    options: WriteOptions, producer: ProducerIdentity, claims: tuple[Claim, ...], send: Callable[..., int] = write_rows
) -> Rows:
    def write(rows: "Iterator[RecordBatch]") -> "Iterator[RecordBatch]":
        context = TaskContext.get()
        assert context is not None, "Spark runs this"
        task = context.partitionId()
        present = skip_to_first_row(rows)
        if present is None:
            yield _report(task, 0)
            return
        client = get_shared_client(options.kafka)
        if context.attemptNumber() > 0 or not take_claim(client, claims[task]):
            drain(present)  # an error in the rows is raised here again, which says more than the one below
            raise RuntimeError(REPEATED)
        try:
            count = send(client, options, present, producer)
        except (KafkaError, Unreachable, BatchRefused) as error:
            drain(present)
            yield _report(task, 0, explain_write_error(error, options.timeout_ms))
        else:
            yield _report(task, count)

    return write


def _drop_rows(rows: "Iterator[RecordBatch]") -> "Iterator[RecordBatch]":
    drain(rows)
    yield _report(0, 0)


def _report(task: int, rows: int, trouble: str | None = None) -> "RecordBatch":
    import pyarrow

    columns = {
        "task": pyarrow.array([task], pyarrow.int32()),
        "rows": pyarrow.array([rows], pyarrow.int64()),
        "trouble": pyarrow.array([trouble], pyarrow.string()),
    }
    return pyarrow.record_batch(columns)
