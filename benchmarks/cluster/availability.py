"""How long partitions have no leader after a broker is killed, stopped or paused, and how long a producer waits.

A partition has a leader again when every other broker's Metadata names one. The producer sends a record to each
partition every few milliseconds, with acks=all and idempotence; it waits as long as the longest time in which a
partition has nothing acknowledged. Its requests time out after two seconds, so that the wait for a paused broker is the
cluster's. Every acknowledged record is counted in the end.
"""

import signal
import threading
import time
from collections import defaultdict
from itertools import pairwise
from types import TracebackType

from confluent_kafka import KafkaError, Message, Producer

from benchmarks.cluster.failure import BenchmarkFailure
from benchmarks.cluster.leaders import MetadataPoll, await_in_sync, find_busiest_leader, has_other_leaders
from benchmarks.cluster.size import Size
from benchmarks.loads.replicated import CONFIG, REPLICAS, verify_counts
from benchmarks.loads.topics import create_topic
from benchmarks.peers.cluster_processes import ClusterProcesses
from benchmarks.report import Row

SETTINGS: dict[str, str] = {}
TOPIC = "availability"
PARTITIONS = 6
PAUSE_SECONDS = 18.0
"""How long a broker is paused: two of Apache Kafka's sessions, three of Ottla's."""
INTERVAL_SECONDS = 0.005
FLUSH_SECONDS = 120.0


class Trickle:
    """A producer in a thread of its own, and when each partition acknowledged what."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 0,
                "request.timeout.ms": 2000,
                "socket.timeout.ms": 3000,
                "log_level": 0,  # it would tell of every time-out
            }
        )
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._acknowledged: dict[int, list[float]] = defaultdict(list)
        self._failures: list[KafkaError] = []

    def __enter__(self) -> "Trickle":
        self._thread.start()
        while len(self._acknowledged) < PARTITIONS:
            time.sleep(INTERVAL_SECONDS)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopped.set()
        self._thread.join()

    def count(self) -> int:
        """Send what is left, and return how many records were acknowledged."""
        if self._producer.flush(FLUSH_SECONDS) or self._failures:
            raise BenchmarkFailure(f"records were not acknowledged: {self._failures[:1]}")
        return sum(map(len, self._acknowledged.values()))

    def longest_wait(self, since: float) -> float:
        """The longest time in which a partition had nothing acknowledged, from `since` on."""
        longest = 0.0
        for times in self._acknowledged.values():
            later = [since, *(at for at in list(times) if at > since)]
            longest = max(longest, *(after - before for before, after in pairwise(later)))
        return longest

    def await_acknowledgements(self) -> None:
        """Wait until every partition has acknowledged a few more records."""
        deadline = time.monotonic() + FLUSH_SECONDS
        for times in self._acknowledged.values():
            wanted = len(times) + 20
            while len(times) < wanted:
                if time.monotonic() > deadline:
                    raise BenchmarkFailure(f"a partition acknowledged nothing for {FLUSH_SECONDS:g} s")
                time.sleep(INTERVAL_SECONDS)

    def _run(self) -> None:
        while not self._stopped.is_set():
            for partition in range(PARTITIONS):
                self._producer.produce(TOPIC, b"x" * 100, partition=partition, on_delivery=self._on_delivery)
            due = time.monotonic() + INTERVAL_SECONDS
            while (left := due - time.monotonic()) > 0:
                self._producer.poll(left)

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._failures.append(error)
        else:
            self._acknowledged[message.partition() or 0].append(time.monotonic())


def measure(cluster: ClusterProcesses, size: Size) -> dict[Row, float]:
    create_topic(cluster.bootstrap, TOPIC, PARTITIONS, REPLICAS, CONFIG)
    await_in_sync(cluster, [TOPIC], PARTITIONS)
    values: dict[Row, float] = {}
    with Trickle(cluster.bootstrap) as trickle:
        for fault, inflict in FAULTS.items():
            leaderless, waited = inflict(cluster, trickle)
            if leaderless is not None:
                values[Row(f"no leader after {fault}", "s", more_is_better=False)] = leaderless
            values[Row(f"longest wait of a producer after {fault}", "s", more_is_better=False)] = waited
            await_in_sync(cluster, [TOPIC], PARTITIONS)
            trickle.await_acknowledgements()
    verify_counts(cluster.bootstrap, TOPIC, PARTITIONS, trickle.count())
    return values


def await_leaders(cluster: ClusterProcesses, gone: int, poll: MetadataPoll) -> float:
    return poll.await_all(has_other_leaders(gone, PARTITIONS), f"other leaders than broker {gone}")


def inflict_kill(cluster: ClusterProcesses, trickle: Trickle) -> tuple[float, float]:
    victim = find_busiest_leader(cluster, [TOPIC])
    others = [broker for broker_id, broker in cluster.brokers.items() if broker_id != victim]
    with MetadataPoll(others, [TOPIC]) as poll:
        began = time.monotonic()
        cluster.brokers[victim].kill()
        leaderless = await_leaders(cluster, victim, poll) - began
    trickle.await_acknowledgements()
    waited = trickle.longest_wait(began)
    cluster.brokers[victim].start()
    return leaderless, waited


def inflict_stop(cluster: ClusterProcesses, trickle: Trickle) -> tuple[None, float]:
    """Metadata names a leader all the time, so only the producer's wait is measured."""
    victim = find_busiest_leader(cluster, [TOPIC])
    began = cluster.stop_cleanly(victim)
    trickle.await_acknowledgements()
    cluster.brokers[victim].start()
    await_in_sync(cluster, [TOPIC], PARTITIONS)
    trickle.await_acknowledgements()
    return None, trickle.longest_wait(began)


def inflict_pause(cluster: ClusterProcesses, trickle: Trickle) -> tuple[float, float]:
    victim = find_busiest_leader(cluster, [TOPIC])
    others = [broker for broker_id, broker in cluster.brokers.items() if broker_id != victim]
    with MetadataPoll(others, [TOPIC]) as poll:
        began = time.monotonic()
        cluster.brokers[victim].send_signal(signal.SIGSTOP)
        try:
            leaderless = await_leaders(cluster, victim, poll) - began
            trickle.await_acknowledgements()
            time.sleep(max(began + PAUSE_SECONDS - time.monotonic(), 0))
        finally:
            cluster.brokers[victim].send_signal(signal.SIGCONT)
    trickle.await_acknowledgements()
    return leaderless, trickle.longest_wait(began)


FAULTS = {
    "kill -9": inflict_kill,
    "a clean stop and start": inflict_stop,
    f"a pause of {PAUSE_SECONDS:.0f} s": inflict_pause,
}
