"""`df.writeStream.format("ottla")`: writes the rows of each micro-batch, exactly once or at least once.

Exactly-once uses one transaction per task, which the driver commits when all tasks are done
(`ottla.client.exactly_once.task_ledger`). Readers need isolation.level=read_committed. Spark creates a new writer for
each batch and for its commit, so all state is in the broker, under the query id from the query's checkpoint.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from ottla.client.client import Client, get_shared_client
from ottla.client.connection import Unreachable
from ottla.client.exactly_once.task_ledger import OpenTask, TaskLedger
from ottla.errors import KafkaError
from pyspark_ottla.garbage import freeze_loaded_modules
from pyspark_ottla.options import WriteOptions
from pyspark_ottla.writing import BatchRefused, drain, explain_write_error, skip_to_first_row, write_rows

if TYPE_CHECKING:
    from pyarrow import RecordBatch

QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"
RUN_ID = "spark.jobGroup.id"

_runs_cleaned: list[str] = []
"""Runs of queries for which this process has aborted what an earlier run left open; a process sees few runs."""


class TaskWritten(WriterCommitMessage):
    """A task's message to the driver: its query, and its open transaction if it wrote anything."""

    def __init__(self, query_id: str, run_id: str, task: OpenTask | None) -> None:
        self.query_id = query_id
        self.run_id = run_id
        self.task = task


class OttlaStreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    # In a task

    def write(self, iterator: "Iterator[RecordBatch]") -> WriterCommitMessage:
        client = get_shared_client(self._options.kafka)
        if not self._options.exactly_once:
            write_rows(client, self._options, iterator)
            return WriterCommitMessage()
        context = TaskContext.get()
        query_id = context.getLocalProperty(QUERY_ID) if context is not None else None
        batch_id = context.getLocalProperty(BATCH_ID) if context is not None else None
        if context is None or query_id is None or batch_id is None:
            raise RuntimeError("Spark does not provide the query and batch id: only guarantee=at-least-once works")
        task = self._write_once(client, query_id, int(batch_id), context.partitionId(), iterator)
        return TaskWritten(query_id, context.getLocalProperty(RUN_ID) or "", task)

    def _write_once(
        self, client: Client, query_id: str, batch_id: int, task: int, iterator: "Iterator[RecordBatch]"
    ) -> OpenTask | None:
        rows = skip_to_first_row(iterator)
        if rows is None:
            return None
        ledger = self._make_ledger(client, query_id)
        producer = None
        try:
            producer = ledger.begin(batch_id, task)
            if producer is None:
                drain(rows)
                return None
            write_rows(client, self._options, rows, producer)
            return ledger.seal(batch_id, task, producer)
        except Exception as error:
            if producer is not None:
                ledger.abandon(producer)
            if isinstance(error, KafkaError | Unreachable):
                raise self._explain_failure(batch_id, error) from None
            raise

    def _explain_failure(self, batch_id: int, error: Exception) -> BatchRefused:
        return BatchRefused(f"batch {batch_id} was not written: {explain_write_error(error, self._options.timeout_ms)}")

    # In the driver

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._end(messages, batchId, commit=True)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._end(messages, batchId, commit=False)

    def _end(self, messages: Sequence[WriterCommitMessage | None], batch_id: int, *, commit: bool) -> None:
        freeze_loaded_modules()
        written = [message for message in messages if isinstance(message, TaskWritten)]
        if not written:
            return
        client = get_shared_client(self._options.kafka)
        ledger = self._make_ledger(client, written[0].query_id)
        tasks = [message.task for message in written if message.task is not None]
        try:
            (ledger.commit if commit else ledger.abort)(batch_id, tasks)
            if not commit or written[0].run_id not in _runs_cleaned:
                ledger.end_leftovers()
                _runs_cleaned.append(written[0].run_id)
        except (KafkaError, Unreachable) as error:
            client.close()
            raise self._explain_failure(batch_id, error) from None

    def _make_ledger(self, client: Client, query_id: str) -> TaskLedger:
        options = self._options
        assert options.ledger_topic is not None
        return TaskLedger(
            client,
            query_id,
            options.ledger_topic,
            timeout_ms=options.timeout_ms,
            deterministic=options.deterministic,
            resume=options.without_ledger,
        )
