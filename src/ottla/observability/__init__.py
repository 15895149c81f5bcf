"""Metrics, health and logs: what an operator sees of a broker.

Counting and logging are at the bottom of the layers, so that every package can use them:
    metrics.py       counters, and the text format of Prometheus
    logs.py          the format of a log line
Collecting is near the top, because it reads every part of a broker:
    catalogue.py     the table of all metrics
    collectors.py    the metrics of topics, requests, connections, directories and compaction
    partitions.py    the metrics of partitions, and of the cluster
    coordinators.py  the metrics of groups and transactions
    group_lag.py     the lag of groups, in records and in seconds
    asking.py        what other brokers are asked for it
    loop_watch.py    how busy the event loop is
    client_telemetry.py  the metrics that clients push
    quotas.py        the metrics of quotas
    process.py       the metrics of the process, from /proc
    endpoint.py      a small HTTP server for text pages, on a port of its own
    pages.py         its pages: /metrics and /health
"""
