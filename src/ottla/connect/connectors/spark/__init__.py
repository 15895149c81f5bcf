"""Data sources of PySpark as connectors: whatever a package offers as `spark.read.format(...)` in Python.

data_sources.py   finds the class, its options and its schema
schema_text.py    schemas as SQL writes them
spark_source.py   SparkSource: rows of a data source to a topic
spark_sink.py     SparkSink: records of topics to a data source
"""
