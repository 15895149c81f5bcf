"""Groups of the consumer protocol (KIP-848): members send heartbeats, and the coordinator assigns partitions to them.

group.py                the group: decides about heartbeats and about who may commit offsets
state.py                the stored state of a group (immutable), and changes to it
members.py              one member: its subscription and its current assignment
identities.py           finds members by member id and instance id, and checks their epochs
rebalance.py            raises the group's epoch, computes the target assignment, moves members towards it
reconciliation.py       one member's next step from its current to its target assignment
assignors.py            the assignors that compute a target assignment
topic_searches.py       when to match the members' patterns with the topics, and what to store of it
regular_expressions.py  matches patterns with RE2
topic_hashes.py         a hash of the subscribed topics that changes when a new assignment is needed
classic_members.py      members of the classic protocol in a consumer group
descriptions.py         the state of a group, and its description for clients
"""
