"""`format("ottla")` for PySpark: topics as DataFrames, from any Kafka broker, without a jar.

Spark finds this package by its name and the class by its: nothing has to be registered. Columns, options, offsets and
their meaning are those of Spark's own Kafka connector, so that a job moves over by changing one word.

    source.py         what Spark asks for first      options.py         every option, checked
    boundaries.py     where a read begins and ends   planning.py        offsets into tasks and micro-batches
    selecting.py      partitions and their starts    losses.py          offsets that are gone
    reader.py         spark.read                     stream_reader.py   spark.readStream
    column_options.py which columns, in which form   decoders.py        formats of keys and values
    shapes.py         what rows look like            row_making.py      records to rows, in tasks
    samples.py        values to infer a schema from  dead_letters.py    what could not be decoded
    rows.py           columns and their types        writing.py         rows to records
    writer.py         df.write                       stream_writer.py   df.writeStream
    parcels.py        records between tasks          garbage.py         what workers need not look through
"""

from pyspark_ottla.source import OttlaDataSource as DefaultSource

__all__ = ["DefaultSource"]
