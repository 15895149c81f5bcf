"""How soon every broker's Metadata has a topic, from the moment that CreateTopics is sent to one of them."""

import time
from statistics import median

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks.cluster.leaders import MetadataPoll, await_in_sync
from benchmarks.cluster.size import Size
from benchmarks.loads.replicated import REPLICAS
from benchmarks.peers.cluster_processes import ClusterProcesses
from benchmarks.report import Row

SETTINGS: dict[str, str] = {}
REQUEST_SECONDS = 60.0
WARM_UP = 5


def measure(cluster: ClusterProcesses, size: Size) -> dict[Row, float]:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    answered, known = [], []
    for number in range(WARM_UP + size.propagated_topics):
        topic = f"propagated-{number}"
        with MetadataPoll(cluster.brokers.values(), [topic]) as poll:
            began = time.monotonic()
            admin.create_topics([NewTopic(topic, num_partitions=1, replication_factor=REPLICAS)])[topic].result(
                REQUEST_SECONDS
            )
            answered.append(time.monotonic() - began)
            known.append(poll.await_all(lambda found: len(found) == 1, f"{topic} is known everywhere") - began)
        await_in_sync(cluster, [topic], 1, pause=0.005)
    return {
        Row("creation of a topic is answered, median", "ms", more_is_better=False): 1000 * median(answered[WARM_UP:]),
        Row("all three brokers know a new topic, median", "ms", more_is_better=False): 1000 * median(known[WARM_UP:]),
    }
