"""Creation of very many partitions with three replicas, and the memory that they take.

A workload of its own: Apache Kafka does not always finish it, and the rows of fewer partitions do not depend on that.
"""

import time

from benchmarks.cluster.partitions import create, name_creation
from benchmarks.cluster.size import Size
from benchmarks.peers.cluster_processes import ClusterProcesses
from benchmarks.report import Row

SETTINGS: dict[str, str] = {}
SETTLE_SECONDS = 2.0


def measure(cluster: ClusterProcesses, size: Size) -> dict[Row, float]:
    create(cluster, "warm-up", 10)
    time.sleep(SETTLE_SECONDS)
    before = cluster.usage().resident_bytes
    _, seconds = create(cluster, "many", size.many_partitions)
    time.sleep(SETTLE_SECONDS)
    memory = (cluster.usage().resident_bytes - before) / size.many_partitions * 1000
    return {
        name_creation(size.many_partitions): seconds,
        Row("memory of 1,000 partitions, all three brokers", "MB", more_is_better=False): memory / 1e6,
    }
