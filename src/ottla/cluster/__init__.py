"""The metadata of the cluster: a log of changes, and the immutable image that they replay into.

metadata.py        the image of this broker, kept up to date; the one way to change it: decide, append, replay
change_queue.py    changes that wait to be made, and the task that appends them
decision.py        the result of a decider
image.py           the metadata at one version
entities.py        the parts of an image: brokers, topics, partitions, the controller
changes.py         every kind of change
encoding.py        the form of changes in the log, canonical and limited in bytes
replay.py          the effect of each change on an image
leadership.py      who may lead a partition: the election rules that replay follows
withdrawal.py      the metadata that a broker shows while it is out of the cluster
recently_fenced.py  brokers that were fenced a moment ago, which clients still see
first_rules.py     the election rules of metadata that was written before there were clusters
snapshots.py       an image as a list of changes, and its digest
metadata_log.py    the interface of a metadata log
embedded.py        the metadata log of a single broker
metadata_files.py  the files of that log, and their recovery
shared_log.py      the metadata log that the brokers of a cluster share
shared_snapshots.py  snapshots of that log
znodes.py          names and data of the store's nodes
nodes.py           creates and deletes such nodes
membership.py      this broker's session with the store, and its registration
broker_ids.py      ids for brokers that were started without one
local_copy.py      every broker's copy of the shared log
restore.py         a lost store, written again from such a copy
controller.py      the broker that fences others, and restores leaders
connection.py      one session with the store after the other
store.py           the interface of a coordination store: what ZooKeeper promises
zookeeper.py       ZooKeeper as the coordination store
memory_store.py    a coordination store inside this process
memory_tree.py     the nodes of the store in memory
topics.py          deciders: create and delete topics
acls.py            deciders: create and delete ACLs
partitions.py      decider: add partitions to a topic
placement.py       chooses the brokers of new partitions
cordons.py         brokers that get no new partitions
configs.py         deciders: change settings of topics, groups and brokers
quotas.py          decider: change quotas; which of them a filter finds
identities.py      users of SCRAM and delegation tokens in an image
identity_changes.py  changes of users and delegation tokens
credentials.py     deciders: users of SCRAM
delegation_tokens.py  deciders: delegation tokens
features.py        deciders: levels of the cluster's features
registration.py    deciders: brokers join and leave the cluster
isr_changes.py     decider: leaders change the ISR of their partitions
elections.py       deciders: elections on request, and the return to preferred leaders
reassignments.py   deciders: partitions move to other brokers
offline.py         decider: a broker reports replicas that it cannot serve
agreement.py       decider: brokers find out that they replay differently
adoption.py        decider: a read-only broker adopts topics that it finds on disk
auto_creation.py   topics that are created because a client asked for their metadata
producer_ids.py    decider: reserves blocks of producer ids; hands them out one by one
"""
