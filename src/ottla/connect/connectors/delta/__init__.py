"""Tables of Delta Lake.

delta_sink.py   DeltaLakeSink: the records of topics as rows of tables, each once
tables.py       a table: its rows and positions in one commit
fitting.py      rows in the types that a table has
"""
