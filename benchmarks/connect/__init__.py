"""Ottla's Connect beside Apache Kafka Connect.

__main__.py    workloads with files, and the comparison of both
databases.py   PostgreSQL: change capture, a sink, a table
buckets.py     S3
clusters.py    another Kafka cluster
measuring.py   how a connector that moves rows is measured
spark_jdbc.py  a table to a topic with Spark alone
workers.py     a worker of either side as a child process: its REST API, its CPU, its memory
"""
