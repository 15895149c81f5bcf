"""DeltaLakeSink: the records of topics as rows of Delta Lake tables, each once.

A batch is one commit for each of its schemas and tables. The commit moves the position of its topic partition in the
same table, so a batch that is repeated, also by a worker that was replaced, adds nothing.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc

from ottla.connect.connector import ConnectorContext, RefusedRecord, Sink, SinkBatch, Written
from ottla.connect.connectors.delta.fitting import fit, to_table
from ottla.connect.connectors.delta.tables import Table, make_storage
from ottla.connect.connectors.files.formats import to_columns
from ottla.connect.data.columns import RecordColumns
from ottla.connect.data.conversion import columns_to_records
from ottla.connect.data.record import Record
from ottla.connect.errors import ConnectError
from ottla.connect.settings.checks import at_least, between, non_empty, one_of_ignoring_case
from ottla.connect.settings.definition import REQUIRED, Importance, Kind, Setting, Settings
from ottla.topic_partition import TopicPartition


def _check_uri(name: str, value: str) -> None:
    non_empty(name, value)
    scheme, separator, _ = value.partition("://")
    if separator and scheme.lower() not in ("s3", "s3a", "file"):
        raise ValueError(f"{scheme}:// is not supported; a table is in a directory or at s3://bucket/path")


_SETTINGS: Final = (
    Setting(
        "table.uri",
        Kind.STRING,
        REQUIRED,
        "The table: a directory, or s3://bucket/path. ${topic} is replaced.",
        Importance.HIGH,
        _check_uri,
    ),
    Setting("partition.by", Kind.LIST, (), "Columns that a new table is partitioned by.", Importance.HIGH),
    Setting(
        "schema.evolution",
        Kind.STRING,
        "add",
        "What a field does that the table lacks: add a column, or refuse the record.",
        Importance.MEDIUM,
        one_of_ignoring_case("add", "refuse"),
    ),
    Setting(
        "behavior.on.null.values",
        Kind.STRING,
        "ignore",
        "What a record without a value does: ignore or fail.",
        Importance.LOW,
        one_of_ignoring_case("ignore", "fail"),
    ),
    Setting(
        "flush.size",
        Kind.INT,
        10_000,
        "Records of a topic partition that are worth a commit.",
        Importance.MEDIUM,
        between(1, 100_000),
    ),
    Setting(
        "flush.interval.ms",
        Kind.LONG,
        10_000,
        "After how long fewer records are committed too.",
        Importance.MEDIUM,
        at_least(0),
    ),
    Setting("s3.region", Kind.STRING, None, "The region of the bucket.", Importance.MEDIUM),
    Setting("store.url", Kind.STRING, None, "The address of a store that speaks S3's protocol.", Importance.LOW),
    Setting("aws.access.key.id", Kind.PASSWORD, None, "The id of the access key.", Importance.MEDIUM),
    Setting("aws.secret.access.key", Kind.PASSWORD, None, "The access key.", Importance.MEDIUM),
)


class DeltaLakeSink(Sink):
    settings: ClassVar[Settings] = Settings(_SETTINGS)
    version: ClassVar[str] = "1"

    def __init__(self, config: Mapping[str, Any], context: ConnectorContext) -> None:
        super().__init__(config, context)
        self._storage = make_storage(config)
        self._waiting_s: dict[TopicPartition, float] = {}

    def is_due(self, where: TopicPartition, start: int, end: int) -> bool:
        since_s = self._waiting_s.setdefault(where, time.monotonic())
        is_late = time.monotonic() - since_s >= self.config["flush.interval.ms"] / 1000
        if end - start < self.config["flush.size"] and not is_late:
            return False
        del self._waiting_s[where]
        return True

    def find_positions(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        tables = {topic: self._open(topic) for topic in sorted({where.topic for where in partitions})}
        found = {where: tables[where.topic].find_position(self._name(where)) for where in partitions}
        return {where: position for where, position in found.items() if position is not None}

    def alter_positions(self, positions: Mapping[TopicPartition, int | None]) -> bool:
        for where, position in positions.items():
            self._open(where.topic).move(self._name(where), position)
        return True

    def write(self, batch: SinkBatch) -> Written:
        """Rows up to the first one that the table does not take. The position stops before it, so that it is refused
        again if its dead letter is lost."""
        null = self._find_null(batch)
        end = batch.end if null is None or null.offset is None else null.offset
        chunks = [_cut(each, end) for rows in batch.rows for each in to_columns(rows)]
        chunks = [each for each in chunks if len(each)]
        for number, chunk in enumerate(chunks):
            assert chunk.offset is not None
            chunk_end = end if number == len(chunks) - 1 else chunk.offset[-1].as_py() + 1
            refused, reached = self._append(batch, chunk, chunk_end)
            if refused:
                return Written(refused, reached)
        if null is not None:
            reason = "the record has no value, and behavior.on.null.values is fail"
            return Written([RefusedRecord(null, reason)], end + 1)
        return Written()

    def _append(self, batch: SinkBatch, chunk: RecordColumns, end: int) -> tuple[list[RefusedRecord], int]:
        """Write rows until one is bad. Returns it and the bad ones that follow it, with the offset after them."""
        assert chunk.offset is not None
        where = TopicPartition(batch.topic, batch.partition)
        table = self._open(chunk.topic)
        try:
            rows, bad = fit(to_table(chunk), table.schema)
            bad |= self._find_misfits(table, rows)
        except ConnectError as error:
            rows, bad = None, dict.fromkeys(range(len(chunk)), str(error))
        offsets = chunk.offset.to_pylist()
        first = min(bad, default=len(offsets))
        done = table.find_position(self._name(where)) or 0
        start = sum(each < done for each in offsets)
        if start < first:
            partition_by = table.partition_columns if table.exists else self.config["partition.by"]
            position = offsets[first] if bad else end
            batch.set_aside((), position)
            table.append(rows.slice(start, first - start), self._name(where), position, partition_by)
        if not bad:
            return [], end
        after = first
        while after in bad:
            after += 1
        records = columns_to_records(chunk)
        refused = [RefusedRecord(records[at], bad[at]) for at in range(first, after)]
        return refused, offsets[after] if after < len(offsets) else end

    def _find_misfits(self, table: Table, rows: pa.Table) -> dict[int, str]:
        """Rows with columns that the table must not get, or that lack a column of its partitions."""
        by = table.partition_columns if table.exists else self.config["partition.by"]
        if missing := [each for each in by if each not in rows.column_names]:
            return dict.fromkeys(
                range(rows.num_rows), f"there is no field {missing[0]}, by which the table is partitioned"
            )
        if not table.exists or self.config["schema.evolution"].lower() == "add":
            return {}
        known = set(table.schema.names)
        bad: dict[int, str] = {}
        for name in rows.column_names:
            if name not in known:
                there = rows.column(name).is_valid().to_pylist()
                bad |= {at: f"the table has no column {name}" for at, is_there in enumerate(there) if is_there}
        return bad

    def _find_null(self, batch: SinkBatch) -> Record | None:
        """The first record without a value, if there must be none."""
        if self.config["behavior.on.null.values"].lower() == "ignore":
            return None
        records = (
            each
            for rows in batch.rows
            for each in (columns_to_records(rows) if isinstance(rows, RecordColumns) else rows)
        )
        return next((each for each in records if each.value is None), None)

    def _open(self, topic: str) -> Table:
        return Table(self.config["table.uri"].replace("${topic}", topic), self._storage)

    def _name(self, where: TopicPartition) -> str:
        """The app id of a topic partition."""
        return f"{self.context.worker_group}-{self.context.name}-{where}"


def _cut(columns: RecordColumns, end: int) -> RecordColumns:
    """The rows before an offset."""
    assert columns.offset is not None
    count = len(columns.offset.filter(pc.less(columns.offset, end)))
    if count == len(columns):
        return columns
    offsets = columns.offset.slice(0, count)
    return RecordColumns(columns.topic, columns.value_schema, columns.value.slice(0, count), offset=offsets)
