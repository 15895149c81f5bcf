"""Record batch v2, the one format that disk, wire and replication share.

batch.py        the header of a batch: layout, checks, checksums, sealing
record.py       one record inside a batch, read and written one at a time
columns.py      one pass over all records of a batch, as Python or as machine code
visibility.py   which batches a reader may see: transactions
compression.py  the codecs, with bounds on what decompression may yield
checksum.py     CRC-32C
lag.py          how far a group is behind, in records and in seconds
"""
