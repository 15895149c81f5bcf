"""The driver and Python workers are killed in the middle of their work: every line arrives once, at both ends.

A source copies a file to a topic, and two sinks copy the topic to another file and to files of a directory.
"""

import os
import subprocess
import sys
from pathlib import Path
from random import Random

import psutil
import pytest

from ottla.client.client import LATEST, READ_COMMITTED, Client
from ottla.testing import LocalBroker
from ottla.topic_partition import TopicPartition
from tests.connect.crashing import BATCH_LINES, PARTITIONS, TOPIC
from tests.connect.runs import read_records, wait_until
from tests.patience import PATIENCE_S
from tests.spark.killing import HOME, kill

LINES_PER_KILL = 10 * BATCH_LINES


class Driver:
    """The process of the connectors."""

    def __init__(self, broker: LocalBroker, directory: Path, module: str = "tests.connect.crashing") -> None:
        self._arguments = [module, broker.bootstrap, str(directory)]
        self._log = directory / "driver.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(HOME / "src"), str(HOME)))}
        command = [sys.executable, "-m", *self._arguments]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)

    def check(self) -> None:
        assert self._process is not None
        assert self._process.poll() is None, self._log.read_text()[-3000:]

    def kill(self) -> None:
        """Kill the driver and all its children at once."""
        if self._process is not None:
            kill(psutil.Process(self._process.pid))
            self._process.wait(PATIENCE_S)
            self._process = None

    def kill_worker(self, random: Random) -> None:
        """Kill one of the Python workers that Spark's daemon has forked."""
        assert self._process is not None
        found = []
        for process in psutil.Process(self._process.pid).children(recursive=True):
            try:
                parent = process.parent()
                if parent is not None and "ottla.connect.running.daemon" in parent.cmdline():
                    found.append(process)
            except psutil.NoSuchProcess:
                continue
        if found:
            random.choice(found).kill()


def read_files(directory: Path) -> list[str]:
    """The lines of all files of the directory."""
    found = sorted((directory / "files" / "topics").rglob("*.txt"))
    return [line for file in found for line in file.read_text().splitlines()]


def count_copied(client: Client, directory: Path) -> tuple[int, int, int]:
    """Offsets in the topic, whose transactions have markers too, lines in the file, and lines in the directory."""
    wanted = {TopicPartition(TOPIC, number): LATEST for number in range(PARTITIONS)}
    offsets = sum(each.offset for each in client.list_offsets(wanted, READ_COMMITTED).values())
    out = directory / "out.txt"
    return offsets, out.read_bytes().count(b"\n") if out.exists() else 0, len(read_files(directory))


def run_with_kills(broker: LocalBroker, directory: Path, kills: int, seed: int) -> None:
    random = Random(seed)
    broker.create_topic(TOPIC, partitions=PARTITIONS)
    client = Client({"bootstrap.servers": broker.bootstrap})
    driver = Driver(broker, directory)
    sent = 0
    try:
        driver.start()
        for number in range(kills):
            with (directory / "in.txt").open("a", encoding="utf-8") as file:
                file.writelines(f"line {n}\n" for n in range(sent, sent + LINES_PER_KILL))
            sent += LINES_PER_KILL
            # Wait for some progress of one of the three, chosen at random, then kill something.
            which = random.randrange(3)
            wanted = count_copied(client, directory)[which] + random.randrange(1, LINES_PER_KILL // 2)

            def has_come(which: int = which, wanted: int = wanted) -> bool:
                driver.check()
                return count_copied(client, directory)[which] >= wanted

            wait_until(has_come)
            if number % 2:
                driver.kill_worker(random)
            else:
                driver.kill()
                driver.start()

        def is_copied() -> bool:
            driver.check()
            return min(count_copied(client, directory)) >= sent

        wait_until(is_copied)
    finally:
        driver.kill()
        client.close()
    expected = [f"line {n}" for n in range(sent)]
    in_topic = [each["value"].decode() for each in read_records(broker, TOPIC)]
    assert sorted(in_topic) == sorted(expected)
    assert sorted((directory / "out.txt").read_text().splitlines()) == sorted(expected)
    assert sorted(read_files(directory)) == sorted(expected)


def test_kills_of_the_driver_and_a_worker(ottla_broker: LocalBroker, tmp_path: Path, seed: int) -> None:
    """One kill of each."""
    run_with_kills(ottla_broker, tmp_path, 2, seed)


@pytest.mark.long
def test_many_kills(ottla_broker: LocalBroker, tmp_path: Path, seed: int) -> None:
    """Each kill comes at a random point of the work of one of the connectors."""
    run_with_kills(ottla_broker, tmp_path, 16, seed)
