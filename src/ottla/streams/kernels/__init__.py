"""Stateful steps: rows and old state in, rows and new state out.

kernel.py              what a step is, and what it may use
functions.py           functions of the user, merges, new keys
table_functions.py     functions of the user on the rows of a table
python_rows.py         rows as dictionaries and back
tables.py              source tables, streams as tables, derived tables
versions.py            all values of a table during a batch
joining.py             what joins have in common
stream_table_joins.py  a stream with a table
stream_joins.py        two streams within a window
buckets.py             rows of a stream-stream join by key and time
unmatched.py           rows of a left stream-stream join that wait for a match
stream_times.py        how far event time has come, row by row
table_joins.py         two tables
foreign_key.py         a table with another one by a foreign key
processing.py          processors of the user
key_state.py           the state of one key of a processor
partial.py             aggregates before an exchange
aggregates.py          aggregates by key, with state
accumulators.py        count, sum, min and the like as columns
grouping.py            rows by group
python_aggregates.py   aggregates and reduces with functions of the user
retractions.py         a change of a row as what its groups lose and gain
windowed.py            aggregates over tumbling and hopping windows
sessions.py            aggregates over session windows
session_index.py       which sessions a key has
closing.py             when windows close and are deleted
"""
