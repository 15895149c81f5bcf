"""The groups of one partition of `__consumer_offsets`, and what both kinds of group share.

coordinator.py        the group coordinator: an operation for each thing that requests ask
machine.py            the machine: finds the group that a request is for
group.py              what every kind of group offers to the machine
records.py            the records of `__consumer_offsets`
sessions.py           deadlines of many members
consumer_protocol.py  what classic consumers tell each other through the coordinator
upgrade.py            a classic group becomes a consumer group
downgrade.py          a consumer group becomes a classic group again
errands.py            what groups have done outside of their turns
"""
