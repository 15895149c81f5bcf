"""How much clients may take: quotas, measured as Kafka measures them.

table.py        which quota counts for a client: Kafka's order of precedence
rates.py        a rate over the last windows, and a token bucket
client_quota.py one kind of quota: a sensor for each client that has one
addresses.py    connections per second of one address
quotas.py       all kinds together, following the metadata
"""
