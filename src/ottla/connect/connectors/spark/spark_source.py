"""SparkSource: the rows of a data source of PySpark, to a topic.

One source partition {"data.source": ...}. With a stream reader, the driver asks for its latest offset and for the
partitions up to it, and one task reads them all and commits the offset with their rows. With a simple stream reader
the task reads, and what the reader says is the next offset. A data source that can only be read as a whole is read
once.
"""

import base64
import inspect
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

from ottla.connect.connector import ConnectorContext, Part, Source, SourceBatch, SourceOffset, partition_key
from ottla.connect.connectors.spark.data_sources import (
    CLASS,
    COMMON_SETTINGS,
    OPTION,
    ask,
    explain_absence,
    find_schema,
    make_data_source,
    read_batches,
    refuse,
)
from ottla.connect.connectors.spark.schema_text import parse_schema
from ottla.connect.data.arrow_types import normalise
from ottla.connect.data.columns import RecordColumns
from ottla.connect.errors import BadConfig
from ottla.connect.settings.checks import at_least
from ottla.connect.settings.definition import REQUIRED, Importance, Kind, Setting, Settings

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamReader, SimpleDataSourceStreamReader

OFFSET: Final = "offset"
"""In an offset: that of the data source, as JSON."""
DONE: Final = "done"
"""In an offset: the data source, which is no stream, was read."""
END: Final = "end"
READING: Final = "reading"
"""In an order: the reader and its partitions, pickled, in base64."""


def _is_schema(name: str, value: Any) -> None:
    try:
        parse_schema(value)
    except BadConfig as error:
        raise ValueError(str(error)) from None


class SparkSource(Source):
    settings: ClassVar[Settings] = Settings(
        (
            *COMMON_SETTINGS,
            Setting(
                "data.source.schema",
                Kind.STRING,
                None,
                "The columns, as in SQL: `id INT, name STRING`; the data source's by default.",
                check=_is_schema,
            ),
            Setting("topic", Kind.STRING, REQUIRED, "The topic to write to.", Importance.HIGH),
            Setting("poll.interval.ms", Kind.LONG, 1000, "How often new rows are looked for.", check=at_least(0)),
        ),
        refuse,
    )
    prefixes: ClassVar[tuple[str, ...]] = (OPTION,)
    version: ClassVar[str] = "1"

    def __init__(self, config: Mapping[str, Any], context: ConnectorContext) -> None:
        super().__init__(config, context)
        self._partition = {CLASS: config[CLASS]}
        self._looked_s = -1e9
        self._stream: DataSourceStreamReader | None = None
        self._is_simple = self._is_done = False

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_stream": None}

    # On the driver

    def start(self) -> None:
        source = make_data_source(self.config)
        schema = find_schema(source, self.config["data.source.schema"])
        self._stream = ask(source.streamReader, schema)
        self._is_simple = self._stream is None and ask(source.simpleStreamReader, schema) is not None

    def stop(self) -> None:
        if self._stream is not None:
            self._stream.stop()

    def plan(self, offsets: Mapping[str, SourceOffset]) -> Sequence[Part]:
        now_s = time.monotonic()
        if now_s - self._looked_s < self.config["poll.interval.ms"] / 1000:
            return []
        self._looked_s = now_s
        offset = offsets.get(partition_key(self._partition), {})
        if self._stream is not None:
            with explain_absence():
                return self._plan_stream(self._stream, offset)
        self._is_done = bool(offset.get(DONE))
        return [] if self._is_done else [Part(self._partition)]

    def _plan_stream(self, stream: "DataSourceStreamReader", offset: SourceOffset) -> list[Part]:
        from pyspark.cloudpickle import dumps

        start = json.loads(offset[OFFSET]) if OFFSET in offset else stream.initialOffset()
        end = _find_latest(stream, start)
        if end == start:
            return []
        reading = dumps((stream, list(stream.partitions(start, end))))  # type: ignore[no-untyped-call]
        return [Part(self._partition, {END: end, READING: base64.b64encode(reading).decode()})]

    def after_commit(self, offsets: Mapping[str, SourceOffset]) -> None:
        offset = offsets.get(partition_key(self._partition), {})
        if self._stream is not None and OFFSET in offset:
            with explain_absence():
                self._stream.commit(json.loads(offset[OFFSET]))

    def is_done(self) -> bool:
        return self._is_done

    # In a Spark task

    def read(self, part: Part, offset: SourceOffset | None) -> Iterator[SourceBatch]:
        with explain_absence():
            yield from self._read(part, offset)

    def _read(self, part: Part, offset: SourceOffset | None) -> Iterator[SourceBatch]:
        source = make_data_source(self.config)
        schema = find_schema(source, self.config["data.source.schema"])
        if READING in part.work:
            from pyspark.cloudpickle import loads

            reader, partitions = loads(base64.b64decode(part.work[READING]))
            rows: Iterator[Any] = (row for each in partitions for row in reader.read(each))
            following: SourceOffset = {OFFSET: json.dumps(part.work[END])}
        elif self._is_simple:
            simple = source.simpleStreamReader(schema)
            start = json.loads(offset[OFFSET]) if offset else simple.initialOffset()
            rows, end = _read_simple(simple, start)
            if end == start:
                return
            following = {OFFSET: json.dumps(end)}
        else:
            whole = source.reader(schema)
            rows = (row for each in whole.partitions() for row in whole.read(each))
            following = {DONE: True}
        for batch in read_batches(source, schema, rows):
            kind, values = normalise(batch.to_struct_array(), optional=False)
            yield SourceBatch([RecordColumns(self.config["topic"], kind, values)], None)
        yield SourceBatch([], following)  # there is an offset after the last row only


def _find_latest(stream: "DataSourceStreamReader", start: Mapping[str, Any]) -> Any:
    """Readers of Spark 4.0 are not told where they start and how much is wanted."""
    if not inspect.signature(stream.latestOffset).parameters:
        return stream.latestOffset()  # type: ignore[call-arg]
    return stream.latestOffset(dict(start), stream.getDefaultReadLimit())


def _read_simple(reader: "SimpleDataSourceStreamReader", start: Any) -> tuple[Iterator[Any], Any]:
    rows, end = reader.read(start)
    return iter(rows), end
