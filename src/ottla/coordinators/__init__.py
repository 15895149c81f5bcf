"""Groups and transactions: state machines that decide, records that remember, replay that rebuilds.

machine.py          what a state machine is handed and what it hands back
outcome_builder.py  builds the outcome of a turn that decides in several steps
formats.py          records of the internal topics as bytes
internal_topics.py  the topics that hold coordinators' state
assembly.py         the coordinators of this broker, put together
runtime/            runs the machines: appends, replays, answers
groups/             the machine of one partition of `__consumer_offsets`, and what both kinds of group share
classic/            groups of the classic protocol
consumer/           groups of the consumer protocol (KIP-848)
offsets/            committed offsets
transactions/       the machine of one partition of `__transaction_state`, markers, admission
"""
