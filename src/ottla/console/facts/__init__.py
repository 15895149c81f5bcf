"""What the console asks of a cluster. Functions take a `Client` and return plain values; no HTML here.

metadata.py       the snapshot: brokers, topics, partitions
offsets.py        first and end offsets of many partitions, without failing for one that has no leader
disks.py          sizes and directories
settings.py       settings of topics and brokers, and changes
topics.py         create, delete, purge, clone
groups.py         groups of every kind, their members, offsets and lag
resetting.py      plans and executes resets of offsets
records.py        reads records forwards and backwards, with a search
searching.py      what a search matches
sending.py        sends records, and dead letters back to where they came from
decoding.py       keys and values as people read them
exporting.py      CSV, JSON lines, Parquet
transactions.py   transactional ids
access.py         ACLs
users.py          users who log in with SCRAM
quotas.py         quotas of users, client ids and addresses
apps.py           Streams apps
topologies.py     the topology of a Streams app as a picture
connectors.py     configurations of connectors, and a worker of Kafka Connect
asking.py         asks pages that answer with JSON
"""
