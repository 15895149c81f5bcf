"""The data source that Spark instantiates: its name, its schema, and its readers and writers.

This does not talk to brokers, unless a schema must be inferred. It asks the schema registry, if one is given.
"""

from functools import partial

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from ottla.pipeline.formats import Format
from pyspark_ottla.boundaries import OptionError
from pyspark_ottla.column_options import ColumnOptions, parse_column_options
from pyspark_ottla.decoders import choose_formats
from pyspark_ottla.garbage import freeze_loaded_modules
from pyspark_ottla.options import ACKS, parse_kafka_and_selection, parse_read_options, parse_write_options
from pyspark_ottla.reader import OttlaReader
from pyspark_ottla.rows import check_written
from pyspark_ottla.samples import sample_newest
from pyspark_ottla.shapes import Shape, find_type, make_shape, make_shape_for
from pyspark_ottla.stream_reader import OttlaStreamReader
from pyspark_ottla.stream_writer import OttlaStreamWriter
from pyspark_ottla.writer import OttlaWriter


class OttlaDataSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "ottla"

    _formats: dict[str, Format] | None = None
    """Made once: Spark pickles this object together with the schema, and the two must agree."""

    def schema(self) -> StructType:
        options = parse_column_options(self.options)
        return make_shape(options, self._formats_of(options)).schema

    def reader(self, schema: StructType) -> OttlaReader:
        return OttlaReader(parse_read_options(self.options, streaming=False), self._shape(schema))

    def streamReader(self, schema: StructType) -> OttlaStreamReader:
        return OttlaStreamReader(parse_read_options(self.options, streaming=True), self._shape(schema))

    def _shape(self, schema: StructType) -> Shape:
        options = parse_column_options(self.options)
        return make_shape_for(options, self._formats_of(options, schema), schema)

    def _formats_of(self, options: ColumnOptions, schema: StructType | None = None) -> dict[str, Format]:
        """The formats by column. A schema that the user gives may replace the schema options."""
        if self._formats is None:
            kinds = {form.column: find_type(schema, form, expand=options.expand) for form in options.formats if schema}
            sample = partial(sample_newest, *parse_kafka_and_selection(self.options))
            self._formats = choose_formats(options, sample, kinds)
        return self._formats

    def writer(self, schema: StructType, overwrite: bool) -> OttlaWriter:
        if overwrite:
            raise OptionError('mode("overwrite"): a topic cannot be overwritten; use mode("append")')
        options = parse_write_options(self.options)
        check_written(schema, options.topic)
        return OttlaWriter(options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> OttlaStreamWriter:
        if overwrite:
            message = 'outputMode("complete"): a topic cannot be overwritten; use ottla.spark.write_stream'
            raise OptionError(message)
        options = parse_write_options(self.options)
        check_written(schema, options.topic)
        if options.exactly_once and options.ledger_topic is None:
            raise OptionError(
                "ledgerTopic: rows name their topics themselves, and exactly-once needs one to keep its ledger with: "
                "name one of them, or set guarantee to at-least-once"
            )
        if options.exactly_once and options.records.acks != ACKS["all"]:
            raise OptionError("kafka.acks: exactly-once needs acks=all; or set guarantee to at-least-once")
        freeze_loaded_modules()  # Spark makes a writer for each micro-batch
        return OttlaStreamWriter(options)
