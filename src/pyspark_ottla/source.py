"""What Spark asks for first: the source's name, its columns, and who reads or writes. No broker is asked here."""

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from pyspark_ottla.boundaries import OptionError
from pyspark_ottla.options import ACKS, read_options, wanted_columns, write_options
from pyspark_ottla.reader import OttlaReader
from pyspark_ottla.rows import check_read, check_written, read_schema
from pyspark_ottla.stream_reader import OttlaStreamReader
from pyspark_ottla.stream_writer import OttlaStreamWriter
from pyspark_ottla.writer import OttlaWriter


class OttlaDataSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "ottla"

    def schema(self) -> StructType:
        return read_schema(*wanted_columns(self.options))

    def reader(self, schema: StructType) -> OttlaReader:
        check_read(schema)
        return OttlaReader(read_options(self.options, streaming=False), tuple(schema.names))

    def streamReader(self, schema: StructType) -> OttlaStreamReader:
        check_read(schema)
        return OttlaStreamReader(read_options(self.options, streaming=True), tuple(schema.names))

    def writer(self, schema: StructType, overwrite: bool) -> OttlaWriter:
        if overwrite:
            raise OptionError('mode("overwrite"): a topic cannot be overwritten; use mode("append")')
        options = write_options(self.options)
        check_written(schema, options.topic)
        return OttlaWriter(options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> OttlaStreamWriter:
        if overwrite:
            message = 'outputMode("complete"): a topic cannot be overwritten; use ottla.spark.write_stream'
            raise OptionError(message)
        options = write_options(self.options)
        check_written(schema, options.topic)
        if options.exactly_once and options.ledger_topic is None:
            raise OptionError(
                "ledgerTopic: rows name their topics themselves, and exactly-once needs one to keep its ledger with: "
                "name one of them, or set guarantee to at-least-once"
            )
        if options.exactly_once and options.records.acks != ACKS["all"]:
            raise OptionError("kafka.acks: exactly-once needs acks=all; or set guarantee to at-least-once")
        return OttlaStreamWriter(options)
