"""The group coordinator, its machine, and what classic groups and consumer groups share.

coordinator.py        the group coordinator: one named operation for each kind of request
machine.py            the machine of one partition of `__consumer_offsets`: all its groups and their offsets
group.py              the interface of a group, of either kind
records.py            the records of `__consumer_offsets`
sessions.py           the session deadlines of many members
consumer_protocol.py  reads and writes the subscriptions and assignments of classic consumers
upgrade.py            a classic group becomes a consumer group
downgrade.py          a consumer group becomes a classic group again
errands.py            runs the errands of groups: topic searches, and the first turn after a downgrade
"""
