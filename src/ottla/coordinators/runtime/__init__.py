"""Runs coordinators' machines: one for each partition of an internal topic that this broker leads.

The only part of the coordinators that waits. A turn calls a machine, appends what it decided, replays it, and hands out
the replies when the high watermark has passed everything that the machine knows. A partition whose leadership comes is
loaded from its log; one whose leadership goes, or that cannot be appended to, is dropped: whoever waits is told, and if
it is still this broker's it is loaded again.

shard.py        one partition: its machine, and everyone who waits for it
coordinator.py  all partitions of an internal topic
loading.py      reads a partition's records back out of its log
"""

from ottla.coordinators.runtime.coordinator import Coordinator, CoordinatorContext, Perform
from ottla.coordinators.runtime.shard import Shard

__all__ = ["Coordinator", "CoordinatorContext", "Perform", "Shard"]
