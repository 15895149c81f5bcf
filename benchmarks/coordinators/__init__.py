"""Groups, transactions and compaction beside Apache Kafka.

__main__.py             runs everything below in turns with Apache Kafka, and prints one table
commits.py              committed offsets per second, and the time to load many groups after a restart
classic_rebalance.py    a rebalance of one large classic group
consumer_rebalance.py   a rebalance of one large consumer group (KIP-848)
rebalances.py           the rows of both rebalances
transactions.py         transactions per second, and what a commit every 100 ms costs a stream of records
compaction.py           how fast a topic is compacted, and what a producer notices of it
size.py                 how much each of them does, in full and in a smoke test
failure.py              the error of all of them
"""
