"""The transaction coordinator: who owns a transactional id, which partitions are in its transaction, how it ends.

coordinator.py  the transaction coordinator: one named operation for each kind of request
machine.py      the machine of one partition of `__transaction_state`: all its transactional ids
transaction.py  one transactional id: its fields, its states and the transitions between them
rules.py        pure functions that decide the next state and who may ask for it
records.py      the records of `__transaction_state`
errands.py      runs the errands of the machine: writing markers, getting producer ids
admission.py    asks the coordinator before a transaction's first records enter a partition
peers.py        the ports to other brokers: writing markers, asking a coordinator; for one broker both are local calls
remote_peers.py the ports to other brokers in a cluster: batched requests over the connections between brokers
"""
