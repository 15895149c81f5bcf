"""What a task does with one batch of its partition. No input or output: the runner and the test driver call it.

reading.py     records to rows: formats, event time, stream time, bad records
times.py       stream times that a batch knows of besides those of its rows
ordering.py    rows of several topics in the order in which they are processed
running.py     the steps of a subtopology, one after the other
writing.py     rows to records: sinks, parcels, changelogs
placement.py   the partition of a key, and the number of a source partition
"""
