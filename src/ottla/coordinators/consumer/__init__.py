"""Groups of the consumer protocol (KIP-848): members heartbeat, and the coordinator tells each what to read.

group.py                what the group decides about a heartbeat
state.py                what the log knows of a group; immutable
members.py              one member: what it asked for, how far it has come
identities.py           members by id and instance id, and their epochs
rebalance.py            from subscriptions to a target assignment, and the members towards it
reconciliation.py       one member's steps from what it reads to what it is to read
assignors.py            server-side assignors
topic_searches.py       which topics the members' patterns match
regular_expressions.py  patterns, matched by RE2
topic_hashes.py         a number that changes when a group needs another assignment
classic_members.py      members of the classic protocol in a consumer group
descriptions.py         the group as it is shown
"""
