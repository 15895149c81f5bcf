"""How much each benchmark of this folder does: the full amount, and a small one for a smoke test."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Size:
    pairs: int
    produced_bytes: int
    most_records: int
    warm_up_rounds: int
    latency_seconds: float
    transaction_seconds: float
    few_partitions: int
    many_partitions: int
    failover_partitions: int
    propagated_topics: int

    def count_records(self, value_bytes: int) -> int:
        return min(self.produced_bytes // value_bytes, self.most_records)


FULL = Size(
    pairs=3,
    produced_bytes=200_000_000,
    most_records=1_000_000,
    warm_up_rounds=2,
    latency_seconds=5,
    transaction_seconds=5,
    few_partitions=1000,
    many_partitions=10_000,
    failover_partitions=3000,
    propagated_topics=50,
)
QUICK = Size(
    pairs=1,
    produced_bytes=20_000_000,
    most_records=100_000,
    warm_up_rounds=1,
    latency_seconds=1,
    transaction_seconds=1,
    few_partitions=100,
    many_partitions=500,
    failover_partitions=300,
    propagated_topics=5,
)
