"""Parts of an app are killed in the middle of its work: every record counts exactly once, in topics and answers.

OTTLA_KILLS=50     how often something dies in the long test; `make streams-chaos` sets it
"""

import os
import re
import shutil
import signal
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random

import psutil
import pytest

from ottla.client.client import LATEST, READ_COMMITTED, Client
from ottla.client.transaction_states import list_transactional_ids
from ottla.streams.queries import Query, QueryFailed
from ottla.streams.running.registration import find_registration
from ottla.testing import LocalBroker, LocalCluster
from ottla.topic_partition import TopicPartition
from tests.cluster.coordination import find_leader
from tests.patience import PATIENCE_S
from tests.samples import choose_sample, sample_size
from tests.spark.killing import signal_quietly
from tests.spark.topics import send
from tests.streams.apps import is_read, read_records, read_table, wait_until
from tests.streams.driver_process import DriverProcess
from tests.streams.striking import FIRST_WORKER, POINTS, SECOND_WORKER, is_struck, order_strike

APP_FILE = Path(__file__).with_name("crashing.py")
APP, SOURCE, SINK, STORE = "counter", "numbered", "totals", "per-bucket"
STATE = "state"
"""The directory of the state, below that of the test."""
PARTITIONS = 2
ROWS = sample_size(160, 400)
"""Several batches of each of them, at least, and no fewer than eleven counts."""

DRIVER, WORKER, DAEMON, STATE_SERVER, BROKER, PAUSE = "driver", "worker", "daemon", "state server", "broker", "pause"
STATE_DIRECTORY, COPY = "state directory", "copy"
KINDS = (DRIVER, WORKER, DAEMON, STATE_SERVER, BROKER, PAUSE, STATE_DIRECTORY, COPY, *POINTS)
KILLS = int(os.environ.get("OTTLA_KILLS", len(KINDS)))
KILLS_IN_A_ROUND = 10
"""After so many, everything is compared with the model, and the app goes on."""
MODULES = {DAEMON: "ottla.streams.running.daemon", STATE_SERVER: "ottla.streams.state.server"}
"""What runs in the processes that can be killed. A Python worker is a child of the daemon that looks like it."""


class Driver(DriverProcess):
    """The process of `ottla stream run`, and those that it has started."""

    def __init__(self, bootstrap: str, directory: Path) -> None:
        settings = f"bootstrap={bootstrap}", f"state_dir={directory / STATE}"
        given = [word for setting in settings for word in ("--set", setting)]
        super().__init__("ottla", directory, "stream", "run", str(APP_FILE), *given)

    def find(self, kind: str) -> list[psutil.Process]:
        """The processes of one kind below the driver."""
        assert self._process is not None
        module = MODULES[DAEMON if kind == WORKER else kind]
        found = []
        for each in psutil.Process(self._process.pid).children(recursive=True):
            try:
                parent = each.parent()
                is_child = parent is not None and module in parent.cmdline()
                if module in each.cmdline() and is_child == (kind == WORKER):
                    found.append(each)
            except psutil.NoSuchProcess:
                continue
        return found


class Rounds:
    """An app that counts, what was sent to it, and what becomes of it."""

    def __init__(self, broker: LocalBroker | LocalCluster, directory: Path, random: Random) -> None:
        self._broker = broker
        self._directory = directory
        self._random = random
        self._sent = 0
        self._driver = Driver(broker.bootstrap, directory)
        self._client = Client({"bootstrap.servers": broker.bootstrap})
        broker.create_topic(SOURCE, partitions=PARTITIONS)
        broker.create_topic(SINK, partitions=PARTITIONS)

    def close(self) -> None:
        self._driver.kill()
        self._client.close()

    def count_and(self, kind: str) -> None:
        """Send more records, and do something to the app while it counts them."""
        self._send()
        self._driver.start()
        wanted = self._count_written() + self._random.randrange(1, 11)
        deadline = time.monotonic() + PATIENCE_S
        while self._count_written() < wanted:
            self._driver.check()
            assert time.monotonic() < deadline
            time.sleep(self._random.random() / 50)
        self._hit(kind)

    def _send(self) -> None:
        numbers = range(self._sent, self._sent + ROWS)
        send(self._broker, SOURCE, [{"value": f"{n}", "partition": n % PARTITIONS} for n in numbers])
        self._sent += ROWS

    def _hit(self, kind: str) -> None:
        if kind == DRIVER:
            self._driver.kill()
        elif kind == BROKER:
            self._kill_broker()
        elif kind == PAUSE:
            self._pause_a_transaction()
        elif kind == COPY:
            self._start_a_copy()
        elif kind == STATE_DIRECTORY:
            self._driver.kill()
            shutil.rmtree(self._directory / STATE)
        elif kind in POINTS:
            self._strike(kind)
        else:
            processes = self._driver.find(kind)
            assert processes or kind == WORKER, f"there is no {kind}"
            for each in self._random.sample(processes, min(len(processes), 1)):
                signal_quietly(each)

    def _strike(self, victim: str) -> None:
        """Kill between the Column steps and the transaction of a batch, of which there is one when more was sent."""
        order_strike(self._directory, victim)
        self._send()

        def is_done() -> bool:
            self._driver.check()
            return is_struck(self._directory, victim)

        wait_until(is_done)

    def _start_a_copy(self) -> None:
        """A second copy of the app takes over from the first one, which ends."""
        copy = Driver(self._broker.bootstrap, self._directory)
        copy.start()
        try:
            assert self._driver.wait() != 0
        finally:
            self._driver.kill()
            self._driver = copy

    def _kill_broker(self) -> None:
        broker = self._broker
        victim = broker if isinstance(broker, LocalBroker) else find_leader(broker, SINK, 0)
        victim.kill()
        victim.restart()

    def _pause_a_transaction(self) -> None:
        """All workers stand still, one of them at least within a transaction, until the broker has given it up."""
        assert isinstance(self._broker, LocalBroker)
        before = set[str]()
        while not before:
            workers = self._driver.find(WORKER)
            _signal(workers, signal.SIGSTOP)
            before = set(list_transactional_ids(self._client, f"{APP}-", only_open=True))
            if not before:
                _signal(workers, signal.SIGCONT)
                self._driver.check()
                if is_read(self._client, APP, [SOURCE]):
                    self._send()
        try:
            self._broker.advance(minutes=2)
            wait_until(lambda: not before & set(list_transactional_ids(self._client, f"{APP}-", only_open=True)))
        finally:
            _signal(workers, signal.SIGCONT)

    def finish(self) -> None:
        """Wait until everything is counted, and compare topics, answers and the group's lag with the model."""
        self._driver.start()
        expected = Counter(str(number % 11) for number in range(self._sent))

        def is_counted() -> bool:
            self._driver.check()
            return read_table(self._broker, SINK) == {key: {"count": count} for key, count in expected.items()}

        wait_until(is_counted)
        wait_until(lambda: is_read(self._client, APP, [SOURCE, f"{APP}-{STORE}-repartition"]))
        wait_until(lambda: self._query() == expected)
        wait_until(lambda: re.search(rf"{APP}: [\d,]+ rows/s, lag 0", self._driver.printed) is not None)
        assert self._driver.stop() == 0
        self._check_counts(expected)
        assert list_transactional_ids(self._client, f"{APP}-", only_open=True) == []

    def _query(self) -> dict[str, int] | None:
        """What the app answers over HTTP; None if it says that it cannot."""
        found = find_registration(self._client, APP)
        assert found is not None
        try:
            return {row["bucket"]: row["count"] for row in Query(found.address, STORE).all()}
        except QueryFailed:
            return None

    def _count_written(self) -> int:
        wanted = {TopicPartition(SINK, number): LATEST for number in range(PARTITIONS)}
        return sum(each.offset for each in self._client.list_offsets(wanted, READ_COMMITTED).values())

    def _check_counts(self, expected: Counter[str]) -> None:
        """The output never counts backwards, and ends, like the changelog, with the counts of all records."""
        highest: dict[bytes, int] = {}
        for record in read_records(self._broker, SINK):
            count = int(record["value"].split(b":")[1].strip(b"}"))
            assert count > highest.get(record["key"], 0), "a batch was counted twice or not at all"
            highest[record["key"]] = count
        assert {key.decode(): count for key, count in highest.items()} == expected
        kept = read_table(self._broker, f"{APP}-{STORE}-changelog")
        assert {key: value["count"] for key, value in kept.items()} == expected


def _signal(processes: Sequence[psutil.Process], number: signal.Signals) -> None:
    for each in processes:
        try:
            each.send_signal(number)
        except psutil.NoSuchProcess:
            continue


def run_rounds(broker: LocalBroker | LocalCluster, directory: Path, kinds: Sequence[str], seed: int) -> None:
    rounds = Rounds(broker, directory, Random(seed))
    try:
        for number, kind in enumerate(kinds, 1):
            print(f"{number}: {kind}", flush=True)
            rounds.count_and(kind)
            if number == len(kinds) or number % KILLS_IN_A_ROUND == 0:
                rounds.finish()
    finally:
        rounds.close()


@pytest.mark.sample("kills of a job with Spark", 1)
@pytest.mark.ottla(process=True)
def test_whatever_is_killed_every_record_counts_once(ottla_broker: LocalBroker, tmp_path: Path, seed: int) -> None:
    """kill -9 of a state server, a Python worker, or the driver with all its children, at a random moment; of a Python
    worker between the Column steps and the transaction of a batch."""
    run_rounds(
        ottla_broker,
        tmp_path,
        choose_sample((STATE_SERVER, WORKER, DAEMON, DRIVER, FIRST_WORKER, SECOND_WORKER), 1),
        seed,
    )


@pytest.mark.long
@pytest.mark.ottla(process=True)
def test_many_kills_of_everything_count_once(ottla_broker: LocalBroker, tmp_path: Path, seed: int) -> None:
    """Also of the broker and of Python's daemon; a transaction that takes longer than transaction.timeout.ms, a state
    directory that is deleted, and a second copy of the app. One model for all rounds."""
    random = Random(seed)
    kinds = [kind for _ in range(-(-KILLS // len(KINDS))) for kind in random.sample(KINDS, len(KINDS))]
    run_rounds(ottla_broker, tmp_path, kinds[:KILLS], seed)


@pytest.mark.long
@pytest.mark.ottla(process=True)
def test_leaders_that_are_killed_count_once(ottla_cluster: LocalCluster, tmp_path: Path, seed: int) -> None:
    """Three brokers, of which the leader of an output's partition is killed, four times."""
    run_rounds(ottla_cluster, tmp_path, (BROKER,) * 4, seed)
