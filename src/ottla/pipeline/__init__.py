"""Converts record batches to Arrow columns and back, for Spark and for `ottla.read`, without a broker or Spark itself.

    reading    decoding.py    record batches to Arrow columns      kernels.py    its numba kernels
               formats/       typed columns from keys and values   registry.py   schemas from a schema registry
    writing    encoding.py    Arrow columns to record batches      packing.py    its numba kernels
    both       memcpy.py      memcpy for the numba kernels
    start      pandas_later.py  keeps pyarrow from importing pandas
    one value  documents/     keys and values as JSON documents    json_text.py  JSON that keeps every digit

`ottla.client` fetches and sends the batches.
"""
