"""Files and directories.

file_source.py         FileStreamSource: the lines of a growing file
file_sink.py           FileStreamSink: records as lines at the end of a file
directory_source.py    DirectorySource: the rows of all files of a directory
directory_sink.py      DirectorySink: records as files of a directory
lines.py               the whole lines of a file that grows
avro_files.py          Avro's container files
csv_types.py           types of the columns of CSV
ledger.py              how far a sink has written, beside what it writes

Shared by all sinks of files, wherever the files are:

formats.py             the content of a file               partitioners.py      the directory of a row
pieces.py              where one file ends and the next begins
storage_settings.py    the settings of all that
"""
