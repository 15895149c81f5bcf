"""How much each benchmark of this folder does: the full amount, and a small one for a smoke test."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Size:
    pairs: int
    groups: int
    """Groups that are loaded after a restart."""
    commit_seconds: float
    members: int
    """Members of the group that rebalances."""
    rebalances: int
    transaction_seconds: float
    compacted_megabytes: float
    warm_up_megabytes: float
    latency_seconds: float
    """How long the latency of a producer is measured without compaction."""


FULL = Size(
    pairs=3,
    groups=10_000,
    commit_seconds=5,
    members=1000,
    rebalances=5,
    transaction_seconds=5,
    compacted_megabytes=128,
    warm_up_megabytes=40,
    latency_seconds=10,
)
QUICK = Size(
    pairs=1,
    groups=500,
    commit_seconds=0.5,
    members=50,
    rebalances=2,
    transaction_seconds=0.5,
    compacted_megabytes=40,
    warm_up_megabytes=20,
    latency_seconds=1,
)
