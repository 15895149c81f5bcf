"""`format("ottla")` beside Spark's own Kafka connector.

__main__.py         the workloads, and the comparison of both connectors
queries.py          the queries that are measured, the same for both connectors
latency.py          time of one record through a streaming query
topics.py           topics with several partitions, filled with text
processes.py        CPU and memory of a Spark session
stock_connector.py  the jars of Spark's own connector
"""
