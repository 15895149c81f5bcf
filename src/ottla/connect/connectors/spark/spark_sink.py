"""SparkSink: the records of topics, to a data source of PySpark.

The rows of a batch of a topic partition are written by one task, which then commits them to the data source. Offsets
are committed after that, so a batch that is interrupted in between is written again: at least once. Records need a
schema; the columns are the fields of their values.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import pyarrow as pa

from ottla.connect.connector import Sink, SinkBatch, Written
from ottla.connect.connectors.files.formats import to_columns
from ottla.connect.connectors.spark.data_sources import (
    COMMON_SETTINGS,
    OPTION,
    ask,
    explain_absence,
    make_data_source,
    refuse,
)
from ottla.connect.data.schema import Type
from ottla.connect.errors import ConnectError
from ottla.connect.settings.definition import Settings


class SparkSink(Sink):
    settings: ClassVar[Settings] = Settings(COMMON_SETTINGS, refuse)
    prefixes: ClassVar[tuple[str, ...]] = (OPTION,)
    version: ClassVar[str] = "1"

    def write(self, batch: SinkBatch) -> Written:
        for rows in batch.rows:
            for columns in to_columns(rows):
                if columns.value_schema.type is not Type.STRUCT:
                    kind = columns.value_schema.type.value
                    raise ConnectError(f"topic {batch.topic!r}: a value is {kind}, and a data source takes fields")
                if len(columns):
                    with explain_absence():
                        _write_rows(self.config, pa.RecordBatch.from_struct_array(columns.value))
        return Written()


def _write_rows(config: Mapping[str, Any], rows: pa.RecordBatch) -> None:
    from pyspark.sql.conversion import ArrowTableToRowsConversion
    from pyspark.sql.datasource import DataSourceArrowWriter
    from pyspark.sql.pandas.types import from_arrow_schema

    schema = from_arrow_schema(rows.schema)
    writer = ask(make_data_source(config).writer, schema, False)
    if writer is None:
        raise ConnectError("the data source cannot be written to: it has no writer")
    is_for_arrow = isinstance(writer, DataSourceArrowWriter)
    table = pa.Table.from_batches([rows])
    given: Any = iter([rows]) if is_for_arrow else iter(ArrowTableToRowsConversion.convert(table, schema))
    messages: list[Any] = []
    try:
        messages.append(writer.write(given))
        writer.commit(messages)
    except Exception:
        writer.abort(messages)
        raise
