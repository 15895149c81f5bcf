"""`df.write.format("ottla")`: writes rows at least once; a task that Spark repeats writes its rows again."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from ottla.client.client import get_shared_client
from pyspark_ottla.options import WriteOptions
from pyspark_ottla.writing import write_rows

if TYPE_CHECKING:
    from pyarrow import RecordBatch


class OttlaWriter(DataSourceArrowWriter):
    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: "Iterator[RecordBatch]") -> WriterCommitMessage:
        write_rows(get_shared_client(self._options.kafka), self._options, iterator)
        return WriterCommitMessage()
