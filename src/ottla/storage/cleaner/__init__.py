"""Compaction: of all records with the same key, a log keeps the last.

    choice.py         which part of a log can be compacted, and whether that is worth the work
    order.py          the input of a compaction, and what it reports
    compaction.py     the work itself: index the keys of the dirty part, then write the segments anew
    offset_map.py     the last offset of each key, in bounded memory
    kernels.py        the passes over records, as Python or as machine code
    transactions.py   which batches belong to aborted transactions, and which markers are no longer needed
    batch_filter.py   what is left of a batch
    source.py         the batches of a segment, each with a right checksum
    target.py         the segment that is written
    child.py          the process in which all of this happens
    inline.py         the same work where it is asked for: for the simulator
    swap.py           how a written segment takes the place of those it was made from

The broker's own process chooses and swaps. All reading, hashing and writing happens in a child process, which shares
neither the interpreter's lock nor memory with the code that serves clients.
"""
