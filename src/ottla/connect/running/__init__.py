"""Runs connectors: rounds of small Spark jobs, each task in transactions of its own.

run.py            a connector's thread, its states            making.py       from a specification to what runs
loop.py           what the loops of sources and sinks share   slots.py        the tasks as the driver knows them
source_loop.py    rounds of a source                          source_tasks.py a source's batch in a Spark task
sink_loop.py      rounds of a sink                            sink_tasks.py   a sink's batch in a Spark task
work.py           orders and reports                          ownership.py    only one run of a connector writes
conversion.py     rows to the bytes of topics and back        tolerance.py    records that fail
writing.py        the records of a transaction                topics.py       topics that a connector creates
failures.py       what a failure means for its task           contexts.py     the SparkContext of a worker
orders.py         what the tasks of sources and sinks share
daemon.py         the process that Spark forks its Python workers from
"""
