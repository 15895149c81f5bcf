"""The group coordinator and the transaction coordinator: state machines kept in internal topics.

machine.py          the interface of a state machine: what it is called with and what it returns
outcome_builder.py  builds the outcome of a turn that decides in several steps
formats.py          records of the internal topics as bytes
internal_topics.py  the topics in which coordinators keep their state
assembly.py         builds the coordinators of a broker and keeps them in step with the metadata
runtime/            runs the machines: loads them, appends and replays what they decide, sends replies
groups/             the group coordinator, its machine, and what both kinds of group share
classic/            groups of the classic protocol
consumer/           groups of the consumer protocol (KIP-848)
offsets/            committed offsets
transactions/       the transaction coordinator, its machine, markers, admission
"""
