"""Kafka Streams' semantics for Python and PySpark: state in topics and RocksDB, exactly once, on Spark.

graph.py      the logical topology: nodes that know their inputs    rows.py      rows between steps
windows.py    windows over event time                               formats.py   keys and values of records
errors.py     errors of one line                                    parcels.py   many rows as one record
planning/     the physical plan: subtopologies connected by topics
kernels/      stateful steps: rows and old state in, rows and new state out
state/        stores, their keys and values, and the servers that keep them
running/      the driver and its tasks on Spark
"""
