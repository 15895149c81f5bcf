"""Ledgers: committed offsets that record which batches of a query were written, so that none is written twice.

batch_ledger.py  one transaction for a whole batch, shared by all of its tasks
task_ledger.py   one transaction for each task, and a decision that makes them one
claims.py        which attempt at a task may write
sinks.py         which sinks a cluster knows and how far they are, for the command line
"""
