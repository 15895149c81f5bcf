"""Files and directories.

file_source.py    FileStreamSource: the lines of a growing file
file_sink.py      FileStreamSink: records as lines at the end of a file
lines.py          the whole lines of a file that grows
ledger.py         how far a sink has written, beside what it writes
"""
