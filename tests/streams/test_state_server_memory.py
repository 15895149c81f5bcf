"""The memory of a state server does not grow with the state that it holds."""

from pathlib import Path
from random import Random

import psutil
import pytest
from confluent_kafka import Producer

from ottla.streams.state import protocol
from ottla.streams.state.client import StateClient
from ottla.streams.state.starting import ServerProcess
from ottla.testing import LocalBroker
from tests.patience import PATIENCE_S
from tests.streams.changelogs import TOKEN, TOPIC, Changelog, plan_store

MEGABYTE = 1024 * 1024
PROCESS_MB = 512
KEYS = 10_000_000


def test_the_cache_keeps_to_its_limit(ottla_broker: LocalBroker, tmp_path: Path, seed: int) -> None:
    # 30 MB of values, three times as much as the cache may hold, written, read, and read again after a restart.
    random = Random(seed)
    ottla_broker.create_topic(TOPIC)
    end = Changelog(ottla_broker).write({b"%06d" % number: random.randbytes(1000) for number in range(30_000)})
    settings = {"bootstrap.servers": ottla_broker.bootstrap}
    for _ in range(2):
        with (
            ServerProcess(str(tmp_path), settings, TOKEN, memory_mb=10) as process,
            StateClient(process.address, TOKEN, wait_s=PATIENCE_S) as client,
        ):
            client.assign(plan_store(), {0: end}, 1)
            assert sum(1 for _ in client.reader("counts", 0, end).range(b"", None)) == 30_000
            used = client.ask(protocol.STATUS, {}).fields["cache_bytes"]
            assert MEGABYTE < used <= 12 * MEGABYTE  # a little more may be in use by a reader


@pytest.mark.long
@pytest.mark.ottla(process=True)
def test_ten_million_keys_fit_into_a_process_of_512_mb(ottla_broker: LocalBroker, tmp_path: Path, seed: int) -> None:
    ottla_broker.create_topic(TOPIC)
    producer = Producer({"bootstrap.servers": ottla_broker.bootstrap, "linger.ms": 20, "compression.type": "lz4"})
    for number in range(KEYS):
        while True:
            try:
                producer.produce(TOPIC, b'{"count":%d,"text":"%060d"}' % (number, number), _scatter(number))
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush(PATIENCE_S)
    random = Random(seed)
    with (
        ServerProcess(str(tmp_path), {"bootstrap.servers": ottla_broker.bootstrap}, TOKEN) as process,
        StateClient(process.address, TOKEN, wait_s=PATIENCE_S) as client,
    ):
        client.assign(plan_store(), {0: KEYS}, 1)
        server = psutil.Process(process.pid)
        highest = 0
        while client.status()[0]["state"] == "restoring":
            highest = max(highest, server.memory_info().rss)
        reader = client.reader("counts", 0, KEYS)
        for _ in range(20):
            keys = sorted(_scatter(random.randrange(KEYS)) for _ in range(50_000))
            assert None not in reader.get_many(keys)
            highest = max(highest, server.memory_info().rss)
        assert highest < PROCESS_MB * MEGABYTE


def _scatter(number: int) -> bytes:
    """Keys whose order has nothing to do with that of their records."""
    return b"key-%016d" % (number * 6_364_136_223_846_793_005 % 10**16)
