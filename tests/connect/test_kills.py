"""The driver and Python workers are killed in the middle of their work: every line arrives once, at all ends.

A source copies a file to a topic, and sinks copy the topic to another file, to files of a directory, into a table, to
objects of a bucket and, where there is OpenSearch, into an index. The suite runs two of the sinks, chosen by its seed.
"""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from itertools import cycle, islice
from pathlib import Path
from random import Random

import psutil
import pytest

from ottla.client.client import LATEST, READ_COMMITTED, Client
from ottla.testing import LocalBroker
from ottla.topic_partition import TopicPartition
from tests.connect.crashing import BATCH_LINES, BUCKET, PARTITIONS, TOPIC
from tests.connect.jdbc_databases import Database
from tests.connect.opensearch import opensearch, read_documents
from tests.connect.runs import read_records, wait_until
from tests.patience import PATIENCE_S
from tests.s3_server import make_bucket, read_objects, s3_server
from tests.samples import choose_sample
from tests.spark.killing import HOME, kill

LINES_PER_KILL = 10 * BATCH_LINES
KILLS = int(os.environ.get("OTTLA_KILLS", "16"))
VICTIMS = DRIVER, WORKER = "driver", "worker"


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
        assert self._process.poll() is None, self.read_log()

    def read_log(self) -> str:
        return self._log.read_text()[-3000:]

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


class Ends:
    """Where the lines come out. A name that is not there yet has none."""

    def __init__(self, broker: LocalBroker, directory: Path, s3: str, search: str) -> None:
        self._broker = broker
        self._directory = directory
        self._s3, self._search = s3, search
        self._client = Client({"bootstrap.servers": broker.bootstrap})
        self._table = Database(f"jdbc:sqlite:{directory / 'lines.db'}")
        sinks = choose_sample(("file", "directory", "table", "bucket", *(("index",) if search else ())), 2, "sinks")
        (directory / "targets.json").write_text(json.dumps({"sinks": sinks, "bucket": s3, "index": search}))
        self.names = ("topic", *sinks)

    def close(self) -> None:
        self._client.close()

    def count(self, name: str) -> int:
        """How many lines have come out; of the topic the offsets, with those of the transactions' markers."""
        if name == "topic":
            wanted = {TopicPartition(TOPIC, number): LATEST for number in range(PARTITIONS)}
            return sum(each.offset for each in self._client.list_offsets(wanted, READ_COMMITTED).values())
        return len(self.read(name))

    def read(self, name: str) -> list[str]:
        """The lines that have come out."""
        match name:
            case "topic":
                return [each["value"].decode() for each in read_records(self._broker, TOPIC)]
            case "file":
                out = self._directory / "out.txt"
                return out.read_text().splitlines() if out.exists() else []
            case "directory":
                found = sorted((self._directory / "files" / "topics").rglob("*.txt"))
                return [line for file in found for line in file.read_text().splitlines()]
            case "table":
                if not self._table.query(f"SELECT name FROM sqlite_master WHERE name = '{TOPIC}'"):
                    return []
                return [line for (line,) in self._table.query(f'SELECT line FROM "{TOPIC}"')]
            case "bucket":
                data = b"".join(read_objects(self._s3, BUCKET).values())
                return [json.loads(line) for line in data.splitlines()]
            case _:
                return [each["line"] for each in read_documents(self._search, TOPIC).values()]


def run_with_kills(
    broker: LocalBroker, directory: Path, victims: Sequence[str], seed: int, s3: str, search: str = ""
) -> None:
    random = Random(seed)
    broker.create_topic(TOPIC, partitions=PARTITIONS)
    make_bucket(s3, BUCKET)
    ends, driver = Ends(broker, directory, s3, search), Driver(broker, directory)
    sent = 0
    try:
        driver.start()
        for victim in victims:
            with (directory / "in.txt").open("a", encoding="utf-8") as file:
                file.writelines(f"line {n}\n" for n in range(sent, sent + LINES_PER_KILL))
            sent += LINES_PER_KILL
            # Wait for some progress at one of the ends, chosen at random, then kill something.
            name = random.choice(ends.names)
            wanted = ends.count(name) + random.randrange(1, LINES_PER_KILL // 2)

            def has_come(name: str = name, wanted: int = wanted) -> bool:
                driver.check()
                return ends.count(name) >= wanted

            wait_until(has_come, driver.read_log)
            if victim == WORKER:
                driver.kill_worker(random)
            else:
                driver.kill()
                driver.start()
        for name in ends.names:

            def is_copied(name: str = name) -> bool:
                driver.check()
                return len(ends.read(name)) >= sent

            wait_until(is_copied, driver.read_log)
    finally:
        driver.kill()
        ends.close()
    expected = sorted(f"line {n}" for n in range(sent))
    for name in ends.names:
        assert sorted(ends.read(name)) == expected, name


@pytest.mark.always
def test_kills_of_the_driver_or_a_worker(ottla_broker: LocalBroker, tmp_path: Path, seed: int) -> None:
    """One kill, in the long run one of each."""
    with s3_server() as address:
        run_with_kills(ottla_broker, tmp_path, choose_sample(VICTIMS, 1), seed, address)


@pytest.mark.long
def test_many_kills(ottla_broker: LocalBroker, tmp_path: Path, seed: int) -> None:
    """Each kill comes at a random point of the work of one of the connectors."""
    (tmp_path / "search").mkdir()
    with s3_server() as address, opensearch(tmp_path / "search") as search:
        run_with_kills(ottla_broker, tmp_path, [*islice(cycle(VICTIMS), KILLS)], seed, address, search)
