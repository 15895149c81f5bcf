"""Changelog topics for tests of state servers: writes transactions, and says where they end."""

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager

import pyarrow as pa
from confluent_kafka import Producer

from ottla.client.client import EARLIEST, LATEST, READ_COMMITTED, Client
from ottla.streams.kernels.kernel import StoreSpec
from ottla.streams.planning.plan import StorePlan
from ottla.streams.state.client import StateClient
from ottla.streams.state.starting import ServerProcess
from ottla.testing import LocalBroker
from ottla.topic_partition import TopicPartition
from tests.patience import PATIENCE_S

TOKEN = "the token of the tests"
TOPIC = "app-counts-changelog"


def plan_store(name: str = "counts", topic: str = TOPIC, kind: str = "key-value") -> StorePlan:
    key, value = pa.schema([("word", pa.string())]), pa.schema([("count", pa.int64())])
    return StorePlan(StoreSpec(name), topic, key, value, kind)


class Changelog:
    """Writes changes to one partition, each call in a transaction."""

    def __init__(self, broker: LocalBroker, topic: str = TOPIC, partition: int = 0) -> None:
        self._bootstrap = broker.bootstrap
        self._where = TopicPartition(topic, partition)
        self._producer = Producer(
            {
                "bootstrap.servers": broker.bootstrap,
                "transactional.id": f"writer-{topic}-{partition}",
                "linger.ms": 5,
                "log_level": 0,
            }
        )
        self._producer.init_transactions(PATIENCE_S)

    def write(self, changes: Mapping[bytes, bytes | None], *, commit: bool = True, timestamp: int = 0) -> int:
        """Records have the time `timestamp`, 0 for now. Returns the last stable offset after the transaction."""
        self._producer.begin_transaction()
        for key, value in changes.items():
            while True:
                try:
                    self._producer.produce(self._where.topic, value, key, self._where.partition, timestamp=timestamp)
                    break
                except BufferError:
                    self._producer.poll(0.1)
        if commit:
            self._producer.commit_transaction(PATIENCE_S)
        else:
            self._producer.flush(PATIENCE_S)
            self._producer.abort_transaction(PATIENCE_S)
        return self.end()

    def begin(self) -> int:
        """The log's start, which moves when the broker deletes records."""
        return self._find_offset(EARLIEST)

    def end(self) -> int:
        return self._find_offset(LATEST)

    def _find_offset(self, which: int) -> int:
        with closing(Client({"bootstrap.servers": self._bootstrap})) as client:
            return client.list_offsets({self._where: which}, READ_COMMITTED)[self._where].offset


@contextmanager
def run_server(broker: LocalBroker, directory: object) -> Iterator[tuple[ServerProcess, StateClient]]:
    """A state server as a process, and a client of it."""
    process = ServerProcess(str(directory), {"bootstrap.servers": broker.bootstrap}, TOKEN)
    try:
        with StateClient(process.address, TOKEN, wait_s=PATIENCE_S) as client:
            yield process, client
    finally:
        process.stop()
