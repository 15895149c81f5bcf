"""The load generators. Each job runs in a process of its own (`python -m benchmarks.loads`), the same for every broker.

__main__.py         the table of jobs, and the process that runs one of them
jobs.py             starts a job and reads how much CPU the broker spent meanwhile
bulk.py             produce and consume as fast as the client can
latency.py          time until a record is acknowledged, and until a consumer has it
replicated.py       topics with three replicas: produce, consume, time to an acknowledgement, transactions
small_requests.py   small requests through raw sockets
request_client.py   one connection for whole requests, used by benchmarks.coordinators
topics.py           topics are created before a job, counted and deleted after it
kafka_tools.py      Apache Kafka's own load generators
"""
