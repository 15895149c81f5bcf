"""From the logical topology to subtopologies.

plan.py            what the planner makes: plain data
planner.py         follows the topology node by node, and decides where rows must change their partition
building.py        puts subtopologies together: sources, steps, exchanges
drafts.py          subtopologies while they are being made
partitioning.py    by which columns rows are spread over partitions
naming.py          names that stay when steps without state come and go
needs.py           which changes and columns of a node its readers need
steps.py           nodes to kernels and stores
origins.py         the source topics that a subtopology hears of, also through exchanges
description.py     a plan as text
compatibility.py   whether a new version of an app can go on with the state of the one before
"""
