"""What Spark asks for first: the source's name, its columns, and who reads or writes.

No broker is asked here, unless the user wants a schema to be inferred; a schema registry, if there is one.
"""

from functools import partial

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from ottla.pipeline.formats import Format
from pyspark_ottla.boundaries import OptionError
from pyspark_ottla.column_options import ColumnOptions, column_options
from pyspark_ottla.decoders import chosen_formats
from pyspark_ottla.garbage import keep_what_is_loaded
from pyspark_ottla.options import ACKS, kafka_and_selection, read_options, write_options
from pyspark_ottla.reader import OttlaReader
from pyspark_ottla.rows import check_written
from pyspark_ottla.samples import newest
from pyspark_ottla.shapes import Shape, given_shape, read_shape, type_in
from pyspark_ottla.stream_reader import OttlaStreamReader
from pyspark_ottla.stream_writer import OttlaStreamWriter
from pyspark_ottla.writer import OttlaWriter


class OttlaDataSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "ottla"

    _formats: dict[str, Format] | None = None
    """Kept from the first question to the last: Spark sends this object with the schema, and the two must agree."""

    def schema(self) -> StructType:
        options = column_options(self.options)
        return read_shape(options, self._formats_of(options)).schema

    def reader(self, schema: StructType) -> OttlaReader:
        return OttlaReader(read_options(self.options, streaming=False), self._shape(schema))

    def streamReader(self, schema: StructType) -> OttlaStreamReader:
        return OttlaStreamReader(read_options(self.options, streaming=True), self._shape(schema))

    def _shape(self, schema: StructType) -> Shape:
        options = column_options(self.options)
        return given_shape(options, self._formats_of(options, schema), schema)

    def _formats_of(self, options: ColumnOptions, schema: StructType | None = None) -> dict[str, Format]:
        """Spark does not ask for the schema where the user gives one: there it may take the place of an option."""
        if self._formats is None:
            kinds = {form.column: type_in(schema, form, expand=options.expand) for form in options.formats if schema}
            sample = partial(newest, *kafka_and_selection(self.options))
            self._formats = chosen_formats(options, sample, kinds)
        return self._formats

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
        keep_what_is_loaded()  # Spark makes a writer for each micro-batch
        return OttlaStreamWriter(options)
