"""`df.writeStream.format("ottla")`: the rows of each micro-batch to records."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from ottla.pipeline.cluster import shared
from pyspark_ottla.options import WriteOptions
from pyspark_ottla.writing import Written, write_rows

if TYPE_CHECKING:
    from pyarrow import RecordBatch


class OttlaStreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: "Iterator[RecordBatch]") -> Written:
        return Written(write_rows(shared(self._options.kafka), self._options, iterator))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        pass

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        pass
