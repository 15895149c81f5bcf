"""What an operator sees of a broker: counters, metrics for Prometheus, health, the form of a log line.

Counting and logging are at the bottom of the house, so that every room can use them:
    metrics.py       plain counters, and the text format that Prometheus reads
    logs.py          how a log line looks
Reading the counters is near the top, because it looks at every part of a broker:
    catalogue.py     the table of all metrics
    survey.py        the broker's own numbers, read part by part
    coordinators.py  the numbers of groups and transactions
    process.py       the operating system's numbers
    pages.py         what /metrics and /health answer
    endpoint.py      the HTTP server of those pages, on a port of its own
"""
