"""`ottla.streams` beside Kafka Streams.

__main__.py             the workloads, and the comparison of both
topics.py               the input, the same for both, and what came out of an app
apps.py                 an app of either side as a child process: its progress, its CPU, its latency
ottla_app.py            the topologies in `ottla.streams`, a program of its own
KafkaStreamsApp.java    the same topologies in Kafka Streams
"""
