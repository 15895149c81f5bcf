"""Records to Arrow columns and back, for Spark and for `ottla.read`. Knows record batches, but no broker and no Spark.

    reading    decoding.py    record batches to Arrow columns      kernels.py    its machine code
               formats/       columns out of keys and values       registry.py   schemas from a schema registry
    writing    encoding.py    Arrow columns to record batches      packing.py    its machine code
    both       memcpy.py      copies of bytes in machine code

`ottla.client` fetches and sends the batches.
"""
