"""The worker: keeps connectors running, alone or as a member of a group of workers.

herder.py          what a worker can be asked for: the protocol that the REST server is written against
runs.py            what a running connector is to the worker: the protocol that `running/` fulfils
starting.py        puts standalone and distributed workers together
properties.py      the properties of a worker
worker.py          the worker's own thread: follows configurations and group, writes statuses
supervision.py     starts, pauses, restarts and stops the runs of this worker
herding.py         answers users, over the stores
standalone.py      stores in memory, a group of one, connector files
membership.py      the worker in its group
assignment.py      which worker runs which connector
configs.py         configurations, in the config topic
statuses.py        states of connectors and tasks, in the status topic
offsets.py         offsets of sources, in the offsets topic
offset_changes.py  reads and changes offsets for users
topics.py          the compacted topics of a worker: created, read to their end, written
loggers.py         levels of loggers
"""
