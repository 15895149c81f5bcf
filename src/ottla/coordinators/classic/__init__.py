"""Groups of the classic protocol: members join, one of them assigns, heartbeats keep them in.

group.py          the group: JoinGroup, SyncGroup, Heartbeat, LeaveGroup
joins.py          who may join, as whom, and whether that begins a rebalance
rebalance.py      from one generation to the next
members.py        the members, their leader, the protocols they agree on
states.py         the states, and which may follow which
subscriptions.py  which topics the members read
"""
