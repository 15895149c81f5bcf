"""Groups of the classic protocol: members join, their leader assigns partitions, heartbeats keep the members alive.

group.py          the group: decides about JoinGroup, SyncGroup, Heartbeat, LeaveGroup and who may commit offsets
joins.py          decides about JoinGroup: who may join, as which member, and whether a rebalance begins
rebalance.py      how the group gets from one generation to the next
members.py        the members, their leader, and the protocols that they have in common
states.py         the states of a group and the transitions between them
subscriptions.py  the topics that the members subscribe to
"""
