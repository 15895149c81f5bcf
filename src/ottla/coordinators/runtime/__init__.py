"""Runs the machines of the coordinators: one for each partition of an internal topic that this broker leads.

A turn calls a machine, appends the records that it decided, replays them, and sends the replies when the high watermark
has passed everything that the machine has seen. When this broker becomes the leader of a partition, the machine is
loaded from the log. When it loses the leadership, or an append fails, the machine is dropped and every request that
waits for it fails; if the broker still leads the partition, the machine is loaded again.

coordinator.py  all partitions of an internal topic
shard.py        one partition: its machine, and the requests that wait for it
loading.py      decodes a partition's log into what is to be replayed
"""

from ottla.coordinators.runtime.coordinator import Coordinator, CoordinatorContext, Perform
from ottla.coordinators.runtime.shard import Shard

__all__ = ["Coordinator", "CoordinatorContext", "Perform", "Shard"]
