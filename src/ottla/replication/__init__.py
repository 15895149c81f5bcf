"""Partitions on this broker: their leadership, high watermark, records coming in and going out.

assembly.py            every part below, put together: what the broker starts, configures and closes
replicas.py            lookup: the partition of a request, or the error that answers for it
partition.py           one partition: its log, its state in the cluster, its high watermark
flushing.py            its flushes: one at a time, shared by all records that wait for it
in_sync.py             the followers of a partition: how far each is, who is in sync
isr_proposals.py       takes the ISR changes that leaders want to the metadata, many in one entry
full_disks.py          replicas whose disk has no room leave their ISRs, so that others lead
watermarks.py          an offset that only moves forward, and those who wait for it: the one "wait until"
validation.py          what a leader demands of the records that a producer sent
record_checks.py       runs that validation, large batches in a thread
refused_batches.py     which error the batches behind a refused one get
transactions.py        transaction markers, and whether a producer has a transaction open in a partition
fetch_sessions.py      incremental fetch sessions (KIP-227) of consumers and followers
follower_fetch.py      answers the fetches of followers
peers.py               connections to the other brokers
peer_login.py          TLS and SASL of those connections
nearest.py             the replica in a consumer's rack (KIP-392)
fetchers.py            the partitions that this broker follows, and the connections to their leaders
fetcher.py             one connection to one leader: requests, answers, errors
leader_session.py      the session of that connection: what the leader knows, and the next request
followed.py            one partition that is copied from a leader
following.py           what a follower asks for, and what the leader's answer means
ranges.py              asks a leader where its logs begin and end
truncation.py          truncates the logs of followers, in threads
moves.py               moves replicas between the data directories of this broker
throttles.py           limits the bytes per second of replication
discovery.py           start: finds and opens the logs of the data directories, with recovery
recovery_progress.py   logs the progress of recovery
reconciliation.py      has partitions created, deleted and configured as the metadata changes
creation.py            creates empty replicas, where there is room
deleted_partitions.py  renames the directories of deleted partitions
removals.py            removes deleted files after their delay
checkpoints.py         recovery points, high watermarks, log starts and clean ends on disk
log_starts.py          makes log starts durable, then drops the segments below them
upkeep.py              retention, flushes by time, expiry of producers
compaction.py          decides which log is compacted next, and keeps the pace
directory_failures.py  takes a data directory offline when its disk fails
offline.py             partitions that cannot be served because of that
closing.py             shutdown: flushes and closes every log
"""
