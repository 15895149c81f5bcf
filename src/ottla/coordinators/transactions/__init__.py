"""Transactions: who may use a transactional id, which partitions are in its transaction, how it ends.

coordinator.py  the transaction coordinator: an operation for each thing that requests ask
machine.py      the machine of one partition of `__transaction_state`
transaction.py  one transactional id; its states and which may follow which
rules.py        what comes next, who may do it, what is refused
records.py      the records of `__transaction_state`
errands.py      what the machine has done outside of its turns: writing markers, getting producer ids
admission.py    asks the coordinator before a transaction's first records enter a partition
peers.py        the ports to other brokers: writing markers, asking a coordinator; today both are local calls
"""
