"""The driver is killed in the middle of its work and started again: every record counts exactly once."""

import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from random import Random

import psutil
import pytest

from ottla.client.client import LATEST, READ_COMMITTED, Client
from ottla.client.transaction_states import list_transactional_ids
from ottla.testing import LocalBroker
from ottla.topic_partition import TopicPartition
from tests.patience import PATIENCE_S
from tests.spark.killing import HOME, kill
from tests.spark.topics import send
from tests.streams.apps import read_records, read_table, wait_until
from tests.streams.crashing import APP, SINK, SOURCE

PARTITIONS = 2
ROWS = 400
"""Twenty batches of each of them, at least, and no fewer than eleven counts."""


class Driver:
    """The process of the app."""

    def __init__(self, broker: LocalBroker, directory: Path) -> None:
        self._arguments = [broker.bootstrap, str(directory / "state")]
        self._log = directory / "driver.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(HOME / "src"), str(HOME)))}
        command = [sys.executable, "-m", "tests.streams.crashing", *self._arguments]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)

    def kill(self) -> None:
        """Kill the driver and all its children at once: JVM, Python workers and state servers."""
        if self._process is not None:
            kill(psutil.Process(self._process.pid))
            self._process.wait(PATIENCE_S)
            self._process = None

    def stop(self) -> int:
        assert self._process is not None
        self._process.terminate()
        status = self._process.wait(PATIENCE_S)
        self._process = None
        return status

    def check(self) -> None:
        assert self._process is not None
        assert self._process.poll() is None, self._log.read_text()[-3000:]


def count_written(client: Client) -> int:
    wanted = {TopicPartition(SINK, number): LATEST for number in range(PARTITIONS)}
    return sum(each.offset for each in client.list_offsets(wanted, READ_COMMITTED).values())


def check_counts(broker: LocalBroker, sent: int) -> None:
    """The output never counts backwards, and ends, like the changelog, with the counts of all records."""
    expected = Counter(str(number % 11) for number in range(sent))
    highest: dict[bytes, int] = {}
    for record in read_records(broker, SINK):
        count = int(record["value"].split(b":")[1].strip(b"}"))
        assert count > highest.get(record["key"], 0), "a batch was counted twice or not at all"
        highest[record["key"]] = count
    assert {key.decode(): count for key, count in highest.items()} == expected
    kept = read_table(broker, f"{APP}-per-bucket-changelog")
    assert {key: value["count"] for key, value in kept.items()} == expected


def run_with_kills(broker: LocalBroker, directory: Path, kills: int, seed: int) -> None:
    random = Random(seed)
    broker.create_topic(SOURCE, partitions=PARTITIONS)
    broker.create_topic(SINK, partitions=PARTITIONS)
    driver = Driver(broker, directory)
    client = Client({"bootstrap.servers": broker.bootstrap})
    sent = 0
    try:
        for _ in range(kills):
            numbers = range(sent, sent + ROWS)
            send(broker, SOURCE, [{"value": f"{n}", "partition": n % PARTITIONS} for n in numbers])
            sent += ROWS
            driver.start()
            before = count_written(client)
            wanted = before + random.randrange(1, 11)
            deadline = time.monotonic() + PATIENCE_S
            while count_written(client) < wanted:
                driver.check()
                assert time.monotonic() < deadline
                time.sleep(random.random() / 50)
            driver.kill()
        driver.start()
        expected = {key: {"count": n} for key, n in Counter(str(number % 11) for number in range(sent)).items()}

        def is_done() -> bool:
            driver.check()
            return read_table(broker, SINK) == expected

        wait_until(is_done)
        assert driver.stop() == 0
        check_counts(broker, sent)
        assert list_transactional_ids(client, f"{APP}-", only_open=True) == []
    finally:
        driver.kill()
        client.close()


def test_a_killed_driver_counts_exactly_once(ottla_broker: LocalBroker, tmp_path: Path, seed: int) -> None:
    """One kill -9 of driver, JVM, workers and state servers at a random moment."""
    run_with_kills(ottla_broker, tmp_path, 1, seed)


@pytest.mark.long
def test_a_driver_that_is_killed_often_counts_exactly_once(
    ottla_broker: LocalBroker, tmp_path: Path, seed: int
) -> None:
    run_with_kills(ottla_broker, tmp_path, 8, seed)
