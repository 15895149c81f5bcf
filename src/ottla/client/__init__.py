"""A small Kafka client of our own: blocking, and made for whole record batches.

It is for our own programs: the Spark source and sinks, `ottla.read`, and what the command line needs beyond its client
library. They move batches and Arrow columns, for which a client that hands out record by record is too slow, and they
share one producer between processes, which no client library offers. It is not a general client: there is no group
membership, no background thread, no callback. An application that produces and consumes uses any Kafka client.

client.py              a cluster's topics, leaders, offsets and coordinators; retries
connection.py          one connection to one broker, which waits for its answers
defaults.py            settings for those who give none: from variables and profiles
security.py            settings of TLS and SASL, with the names of the Java client and of librdkafka
stores.py              certificates and keys: PEM and PKCS12
sasl.py                logins: PLAIN, SCRAM, OAUTHBEARER
tokens.py              where a bearer token comes from
fetching.py            record batches of a partition, from one offset to another
sending.py             record batches to the leaders of their partitions, in order, without duplicates
transactions.py        the steps of a producer in a transaction
transaction_states.py  transactions as their coordinators see them: list, describe, abort
hanging_transactions.py  transactions that are open in a partition and that nobody will end
scram_users.py         passwords of users who log in with SCRAM
partitioning.py        the partition of a key, as the Java client chooses it
groups.py              committed offsets of a group, without membership
backoff.py             deadlines and pauses between attempts; the clock of a client
settings.py            client settings by Kafka's names
buffers.py             memory for answers, used again
http_connections.py    limits of the HTTP servers of Connect, Streams and the console
exactly_once/          ledgers with which a batch of rows is written exactly once
"""
