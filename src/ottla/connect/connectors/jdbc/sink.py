"""JdbcSink: the records of topics as rows of tables, each record exactly once.

A batch of a topic partition is one transaction of the database: its rows, and its end in the ledger.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from ottla.connect.connector import ConnectorContext, RefusedRecord, Sink, SinkBatch, Written
from ottla.connect.connectors.jdbc.connection_settings import make_dialect
from ottla.connect.connectors.jdbc.ledger import Ledger
from ottla.connect.connectors.jdbc.rows import RowMaker
from ottla.connect.connectors.jdbc.sink_settings import SINK_SETTINGS
from ottla.connect.connectors.jdbc.writing import TableWriter
from ottla.connect.errors import ConnectError, RetriableError
from ottla.connect.settings.definition import Settings
from ottla.topic_partition import TopicPartition


class JdbcSink(Sink):
    settings: ClassVar[Settings] = SINK_SETTINGS
    version: ClassVar[str] = "1"

    def __init__(self, config: Mapping[str, Any], context: ConnectorContext) -> None:
        super().__init__(config, context)
        self._dialect = make_dialect(config)
        names = config["ledger.table"].split(".")
        self._ledger = Ledger(self._dialect, self._dialect.quote(*names), f"{context.worker_group}/{context.name}")
        self._maker = RowMaker(config)
        self._epoch = 0
        self._failures = 0
        """Looks for positions since a batch was committed, besides the first."""
        self._known: set[TopicPartition] = set()

    def start(self) -> None:
        with self._dialect.open() as session:
            self._ledger.create(session)
            self._epoch = self._ledger.claim(session)

    def find_positions(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        if not self._known.isdisjoint(partitions):
            self._failures += 1
        try:
            with self._dialect.open() as session:
                found = self._ledger.take(session, partitions, self._epoch)
        except RetriableError as error:
            self._known.update(partitions)
            self._give_up(error)
            raise
        self._known.update(partitions)
        self._give_up(None)
        return found

    def alter_positions(self, positions: Mapping[TopicPartition, int | None]) -> bool:
        with self._dialect.open() as session:
            self._ledger.take(session, [*positions], self._epoch)
            self._ledger.set(session, positions, self._epoch)
        return True

    def _give_up(self, error: Exception | None) -> None:
        retries = self.config["max.retries"]
        if retries is not None and self._failures > retries:
            cause = "" if error is None else f": {error}"
            raise ConnectError(f"nothing was written after max.retries={retries} more attempts{cause}")

    def write(self, batch: SinkBatch) -> Written:
        where = TopicPartition(batch.topic, batch.partition)
        refused: list[RefusedRecord] = []
        with self._dialect.open(to_write=True) as session:
            position = self._ledger.read(session, where, self._epoch)
            start = batch.start if position is None else position
            writer = TableWriter(self.config, self._dialect, session)
            for rows in self._maker.make(batch.rows, start, refused):
                writer.write(rows, refused)
            end = max(batch.end, start)
            self._ledger.move(session, where, self._epoch, position, end)
            batch.set_aside(refused, end)
            session.commit()
        return Written(refused)

    def after_commit(self, positions: Mapping[TopicPartition, int]) -> None:
        self._failures = 0
