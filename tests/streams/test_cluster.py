"""An app on a standalone master and two workers, with a state server for each of them. An executor and a worker are
killed."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from ottla.client.client import Client
from ottla.streams.queries import Query
from ottla.streams.running.registration import find_registration
from ottla.testing import LocalBroker
from tests.spark.killing import kill
from tests.spark.standalone import standalone
from tests.spark.topics import send
from tests.streams.apps import read_records, read_table, wait_until
from tests.streams.clustered import APP, JOINED, KINDS, LINES, TOTALS
from tests.streams.driver_process import DriverProcess
from tests.streams.striking import EXECUTOR, is_struck, order_strike

PARTITIONS = 4
WORDS = ("to", "be", "or", "not", "question")
SERVER = "ottla.streams.state.server"


class Model:
    """What was sent, and what must come out."""

    def __init__(self, broker: LocalBroker) -> None:
        self._broker = broker
        self._lines: list[str] = []

    def send(self, count: int) -> None:
        numbers = range(len(self._lines), len(self._lines) + count)
        lines = [f"{WORDS[n % 5]} {WORDS[n % 3]} {n % 17}" for n in numbers]
        send(
            self._broker,
            LINES,
            [{"key": f"{n}", "value": line, "partition": n % PARTITIONS} for n, line in enumerate(lines)],
        )
        self._lines += lines

    def is_reached(self) -> bool:
        counts = Counter(" ".join(self._lines).split())
        if read_table(self._broker, TOTALS) != {word: {"count": count} for word, count in counts.items()}:
            return False
        joined = Counter(
            (each["key"].decode(), json.loads(each["value"])["kind"]) for each in read_records(self._broker, JOINED)
        )
        return joined == {(word, word.upper()): counts[word] for word in WORDS}


def find_address(broker: LocalBroker) -> str:
    """Where the app answers queries."""
    client = Client({"bootstrap.servers": broker.bootstrap})
    try:
        found = find_registration(client, APP)
        assert found is not None
        return found.address
    finally:
        client.close()


def find_servers(directory: Path) -> Iterator[psutil.Process]:
    """The state servers of this test, wherever they are."""
    for process in psutil.process_iter():
        try:
            command = process.cmdline()
        except psutil.Error:
            continue
        if SERVER in command and any(str(directory) in word for word in command):
            yield process


@pytest.mark.long
def test_an_app_on_a_cluster_survives_the_loss_of_a_worker(ottla_broker: LocalBroker, tmp_path: Path) -> None:
    """Word count and stream-table join are exact, after an executor was killed between the Column steps and the
    transaction of a batch, and after a worker was killed with its executor, its Python processes and its state server.
    When the app has stopped, no state server is left."""
    broker = ottla_broker
    for topic in (LINES, KINDS, TOTALS, JOINED):
        broker.create_topic(topic, partitions=PARTITIONS)
    kinds = [{"key": word, "value": json.dumps({"kind": word.upper()}), "timestamp": 0} for word in WORDS]
    send(broker, KINDS, kinds, partitioner="murmur2_random")
    model = Model(broker)
    model.send(400)
    with standalone(tmp_path) as cluster:
        words = broker.bootstrap, str(tmp_path / "state"), cluster.master
        driver = DriverProcess("tests.streams.clustered", tmp_path, *words)
        driver.start()
        try:

            def is_done() -> bool:
                driver.check()
                return model.is_reached()

            wait_until(is_done)
            assert len([*find_servers(tmp_path)]) == 2
            order_strike(tmp_path, EXECUTOR)
            model.send(400)
            wait_until(lambda: is_struck(tmp_path, EXECUTOR))
            wait_until(is_done)
            cluster.kill_worker(0)
            left = [*find_servers(tmp_path)]
            if len(left) == 2:  # a server belongs to no executor, unless the process that started it is still there
                kill(left[0])
            model.send(400)
            wait_until(is_done)
            query = Query(find_address(broker), "per-word")
            assert query.get("be") == {"word": "be", "count": read_table(broker, TOTALS)["be"]["count"]}
            assert driver.stop() == 0
            wait_until(lambda: not [*find_servers(tmp_path)])
        finally:
            driver.kill()
            for process in find_servers(tmp_path):
                process.kill()
