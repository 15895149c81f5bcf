"""Measurements of Ottla, most of them beside a real Apache Kafka that runs on the same machine and takes turns with it.

Comparisons, each a command that prints a table of docs/performance.md:

    python -m benchmarks.broker         produce, consume, latency, small requests, start and memory, beside Apache Kafka
    python -m benchmarks.coordinators   groups, committed offsets, transactions and compaction, beside Apache Kafka
    python -m benchmarks.cluster        three brokers on ZooKeeper beside three of Apache Kafka
    python -m benchmarks.spark          `format("ottla")` beside Spark's own Kafka connector
    python -m benchmarks.streams        `ottla.streams` beside Kafka Streams
    python -m benchmarks.connect        Connect beside Apache Kafka Connect

One part of Ottla by itself, for somebody who makes it faster:

    python -m benchmarks.dispatch           microseconds of a small request, without a socket
    python -m benchmarks.profile_broker     the broker under cProfile for one workload of benchmarks.broker
    python -m benchmarks.validation         microseconds to check the records of a batch
    python -m benchmarks.decoding           from record batches to Arrow columns
    python -m benchmarks.encoding           from Arrow columns to record batches
    python -m benchmarks.open_partitions    start and stop of a broker with many partitions
    python -m benchmarks.commands           how long each command of `ottla` takes to answer

What these commands share:

    peers/          Ottla, Apache Kafka and ZooKeeper as child processes, and Kafka's command line tools
    loads/          the load generators, which run in a process of their own
    comparison.py   options, turns and results of every comparison
    workloads.py    the rows of benchmarks.broker: which load makes which row of the table
    report.py       medians and ratios as a Markdown table or JSON
"""

from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
"""The root of the project: the directory that holds `src` and `.cache`."""
