"""Topics as columns: what a data pipeline needs of a broker, from any Kafka broker. No asyncio, no threads.

    both        settings.py       Kafka's client settings       patience.py    how long to try
                cluster.py        who leads what                buffers.py     memory that is used again
                memcpy.py         how kernels copy
    reading     fetching.py       raw record batches            decoding.py    batches to Arrow columns
                kernels.py        their machine code            formats/       columns out of keys and values
                registry.py       schemas by their numbers
    writing     encoding.py       Arrow columns to batches      packing.py     their machine code
                sending.py        batches to their leaders      groups.py      committed offsets
                transactions.py   the client's moves            batches.py     one transaction for a batch
                tasks.py          one for each task of it

A `Cluster` is what the rest is given. It travels to another process as its settings.
"""
