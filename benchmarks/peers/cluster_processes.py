"""A cluster of brokers as child processes, and whatever else the brokers need to run."""

import contextlib
import signal
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from benchmarks.peers.broker_process import BrokerProcess, Usage, read_usage

SIZE = 3
INTERNAL_TOPICS = {
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.num.partitions": "3",
    "transaction.state.log.min.isr": "2",
}
"""Internal topics have three replicas, as the default is, and few partitions, so that they are there at once."""


class ClusterProcesses:
    """Brokers with the ids 1, 2 and 3. CPU and memory are those of all of them, and of what they need."""

    def __init__(self, name: str, brokers: Mapping[int, BrokerProcess]) -> None:
        self.name = name
        self.brokers = dict(brokers)

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.bootstrap for broker in self.brokers.values())

    def start(self) -> None:
        began = {broker_id: broker.spawn() for broker_id, broker in self.brokers.items()}
        for broker_id, broker in self.brokers.items():
            broker.await_answer(began[broker_id])

    def stop(self) -> None:
        """Stop every broker, also one that is paused."""
        for broker in self.brokers.values():
            with contextlib.suppress(RuntimeError, ProcessLookupError):
                broker.send_signal(signal.SIGCONT)
        for broker in self.brokers.values():
            with contextlib.suppress(RuntimeError):  # one that a measurement has stopped already
                broker.kill()

    def usage(self) -> Usage:
        usages = [read_usage(process_id) for process_id in self.process_ids()]
        return Usage(sum(usage.cpu_seconds for usage in usages), sum(usage.resident_bytes for usage in usages))

    def process_ids(self) -> list[int]:
        return [broker.process_id for broker in self.brokers.values()]

    def stop_cleanly(self, broker_id: int, timeout_seconds: float = 120) -> float:
        """SIGTERM, and wait. Returns the monotonic time of the signal."""
        began = time.monotonic()
        self.brokers[broker_id].stop(timeout_seconds)
        return began

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
