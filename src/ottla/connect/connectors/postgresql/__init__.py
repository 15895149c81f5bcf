"""PostgreSQL: connections to it, and the capture of changes.

connecting.py     connections through ADBC, and what their failures mean
source.py         PostgresConnector: plans what tasks read
settings.py       its settings, by Debezium's names
filters.py        which tables and columns are captured
catalog.py        tables and types of the database
slots.py          publications and replication slots
snapshots.py      reads the rows of a table
chunks.py         which rows were read in which snapshot
changes.py        reads the changes that a slot holds
pgoutput.py       decodes the messages of logical decoding one by one
columns.py        reads those of many changes as columns
kernels.py        its numba kernels
shapes.py         tables as they are captured
envelopes.py      schemas and records of a table, as Debezium has them
heartbeats.py     records that show that a capture is alive
column_types.py   types of columns, and how texts become values
texts.py          reads the texts of single values
"""
