"""Topics as columns: what a data pipeline needs of a broker, from any Kafka broker. No asyncio, no threads.

    settings.py   Kafka's client settings      patience.py   how long to try            cluster.py    who leads what
    fetching.py   raw record batches           decoding.py   batches to Arrow columns   kernels.py    the machine code
    formats.py    columns out of values        registry.py   schemas by their numbers

A `Cluster` is what the rest is given. It travels to another process as its settings.
"""
