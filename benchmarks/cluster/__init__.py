"""Three brokers beside three brokers of Apache Kafka.

__main__.py         runs everything below in turns with Apache Kafka, and prints one table
bulk.py             produce and consume with three replicas, and the time until a record is acknowledged
transactions.py     transactions over partitions of all three brokers
availability.py     how long partitions have no leader, and producers wait, after a kill, a stop and a pause
partitions.py       creation and failover of partitions by the thousand
many_partitions.py  creation of ten thousand partitions, and their memory
propagation.py      how soon every broker knows what one of them acknowledged
leaders.py          reads and awaits leaders, replicas in sync and ends
size.py             how much each of them does, in full and in a smoke test
failure.py          the error of all of them
"""
