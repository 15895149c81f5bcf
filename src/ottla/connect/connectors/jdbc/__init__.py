"""JDBC by name, ADBC in fact: tables of PostgreSQL and SQLite, with the settings of Confluent's connectors.

source.py                 JdbcSource: the rows of tables and queries
source_settings.py        its settings
polling.py                what one read asks for
sink.py                   JdbcSink: records as rows, exactly once
sink_settings.py          its settings
rows.py                   the rows that records are
writing.py                rows to a table
ledger.py                 how far the sink has written, in the same database
connection_settings.py    the settings and URLs of connections
dialect.py                what differs between databases
postgresql.py, sqlite.py  the two of them
numbers.py                what becomes of NUMERIC columns
session.py                a connection in use
"""
