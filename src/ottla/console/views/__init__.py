"""The pages of the console. A page is a function from a `Call` to a response; it asks `facts` and renders a template.

cluster.py        brokers, health, disks
topics.py         the list of topics, and a new topic
topic.py          one topic: partitions, settings, groups; add partitions, purge, clone, delete
records.py        records of a topic: read, search, follow, export, produce, send again, redrive
record_rows.py    records as rows
groups.py         the list of groups, one group, resets
transactions.py   transactional ids
access.py         ACLs, users, quotas; changes of ACLs
users.py          changes of users
quotas.py         changes of quotas
apps.py           Streams apps and Spark queries
connectors.py     connectors of Kafka Connect
sessions.py       login and logout
listing.py        sorting, searching and paging of lists
"""
