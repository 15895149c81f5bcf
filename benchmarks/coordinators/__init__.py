"""Groups, transactions and compaction beside Apache Kafka.

commits.py              committed offsets per second, and the time to load many groups after a restart
classic_rebalance.py    a rebalance of one large classic group
consumer_rebalance.py   a rebalance of one large consumer group (KIP-848)
transactions.py         transactions per second, and what a commit every 100 ms costs a stream of records
compaction.py           how fast a topic is compacted, and what producers notice of it
"""
