"""An app that runs as a program of its own while parts of it are killed, and the rounds of such a test.

OTTLA_KILLS=50     how often something dies in the long tests; `make streams-chaos` sets it
"""

import os
import re
import shutil
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from random import Random

import psutil

from ottla.client.client import LATEST, READ_COMMITTED, Client
from ottla.client.transaction_states import list_transactional_ids
from ottla.streams.queries import Query, QueryFailed
from ottla.streams.running.registration import find_registration
from ottla.testing import LocalBroker, LocalCluster
from ottla.topic_partition import TopicPartition
from tests.cluster.coordination import find_leader
from tests.patience import PATIENCE_S
from tests.spark.killing import signal_quietly
from tests.streams.apps import is_read, wait_until
from tests.streams.driver_process import DriverProcess
from tests.streams.striking import POINTS, is_struck, order_strike

STATE = "state"
"""The directory of the state, below that of the test."""
PARTITIONS = 2

DRIVER, WORKER, DAEMON, STATE_SERVER, BROKER, PAUSE = "driver", "worker", "daemon", "state server", "broker", "pause"
STATE_DIRECTORY, COPY = "state directory", "copy"
KILLS_IN_A_ROUND = 10
"""After so many, everything is compared with the model, and the app goes on."""
MODULES = {DAEMON: "ottla.streams.running.daemon", STATE_SERVER: "ottla.streams.state.server"}
"""What runs in the processes that can be killed. A Python worker is a child of the daemon that looks like it."""


class Driver(DriverProcess):
    """The process of `ottla stream run`, and those that it has started."""

    def __init__(self, file: Path, bootstrap: str, directory: Path) -> None:
        settings = f"bootstrap={bootstrap}", f"state_dir={directory / STATE}"
        given = [word for setting in settings for word in ("--set", setting)]
        super().__init__("ottla", directory, "stream", "run", str(file), *given)

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


class Model(ABC):
    """What is sent to an app, and what must come out of it."""

    def __init__(self, broker: LocalBroker | LocalCluster, seed: int) -> None:
        self.broker = broker
        self.random = Random(seed)

    file: Path
    """The program of the app."""
    app: str
    sources: Sequence[str]
    exchanges: Sequence[str]
    """Topics between steps that must have been read in the end."""
    sinks: Sequence[str]

    @abstractmethod
    def send(self) -> None:
        """Send more: enough for eleven results at least, in several batches."""

    @abstractmethod
    def is_reached(self) -> bool:
        """Whether the sinks have what must come out of everything that was sent."""

    @abstractmethod
    def answers_fit(self, address: str) -> bool:
        """Whether the stores of the app answer queries as they must. Raises QueryFailed if they cannot."""

    @abstractmethod
    def check(self) -> None:
        """Look into topics once the app has stopped."""


class Rounds:
    """An app, what was sent to it, and what becomes of it."""

    def __init__(self, model: Model, directory: Path, random: Random) -> None:
        self._model = model
        self._broker = model.broker
        self._directory = directory
        self._random = random
        self._driver = self._make_driver()
        self._client = Client({"bootstrap.servers": self._broker.bootstrap})
        for topic in (*model.sources, *model.sinks):
            self._broker.create_topic(topic, partitions=PARTITIONS)

    def close(self) -> None:
        self._driver.kill()
        self._client.close()

    def _make_driver(self) -> Driver:
        return Driver(self._model.file, self._broker.bootstrap, self._directory)

    def send_and(self, kind: str) -> None:
        """Send more records, and do something to the app while it computes."""
        self._model.send()
        self._driver.start()
        wanted = self._count_written() + self._random.randrange(1, 11)
        deadline = time.monotonic() + PATIENCE_S
        while self._count_written() < wanted:
            self._driver.check()
            assert time.monotonic() < deadline
            time.sleep(self._random.random() / 50)
        self._hit(kind)

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
        self._model.send()

        def is_done() -> bool:
            self._driver.check()
            return is_struck(self._directory, victim)

        wait_until(is_done)

    def _start_a_copy(self) -> None:
        """A second copy of the app takes over from the first one, which ends."""
        copy = self._make_driver()
        copy.start()
        try:
            assert self._driver.wait() != 0
        finally:
            self._driver.kill()
            self._driver = copy

    def _kill_broker(self) -> None:
        broker = self._broker
        victim = broker if isinstance(broker, LocalBroker) else find_leader(broker, self._model.sinks[0], 0)
        victim.kill()
        victim.restart()

    def _pause_a_transaction(self) -> None:
        """All workers stand still, one of them at least within a transaction, until the broker has given it up."""
        assert isinstance(self._broker, LocalBroker)
        app, before = self._model.app, set[str]()
        while not before:
            workers = self._driver.find(WORKER)
            _signal(workers, signal.SIGSTOP)
            before = set(list_transactional_ids(self._client, f"{app}-", only_open=True))
            if not before:
                _signal(workers, signal.SIGCONT)
                self._driver.check()
                if is_read(self._client, app, self._model.sources):
                    self._model.send()
        try:
            self._broker.advance(minutes=2)
            wait_until(lambda: not before & set(list_transactional_ids(self._client, f"{app}-", only_open=True)))
        finally:
            _signal(workers, signal.SIGCONT)

    def finish(self) -> None:
        """Wait until everything is computed, and compare topics, answers and the group's lag with the model."""
        self._driver.start()
        model = self._model

        def is_reached() -> bool:
            self._driver.check()
            return model.is_reached()

        wait_until(is_reached)
        wait_until(lambda: is_read(self._client, model.app, [*model.sources, *model.exchanges]))
        wait_until(self._answers_fit)
        wait_until(lambda: re.search(rf"{model.app}: [\d,]+ rows/s, lag 0", self._driver.printed) is not None)
        assert self._driver.stop() == 0
        assert model.is_reached()
        model.check()
        assert list_transactional_ids(self._client, f"{model.app}-", only_open=True) == []

    def _answers_fit(self) -> bool:
        found = find_registration(self._client, self._model.app)
        assert found is not None
        try:
            return self._model.answers_fit(found.address)
        except QueryFailed:
            return False

    def _count_written(self) -> int:
        wanted = {TopicPartition(sink, number): LATEST for sink in self._model.sinks for number in range(PARTITIONS)}
        return sum(each.offset for each in self._client.list_offsets(wanted, READ_COMMITTED).values())


def query_all(address: str, store: str) -> list[dict[str, object]]:
    """All rows of a store, asked for over HTTP."""
    return list(Query(address, store).all())


def run_rounds(model: Model, directory: Path, kinds: Sequence[str], seed: int) -> None:
    rounds = Rounds(model, directory, Random(seed))
    try:
        for number, kind in enumerate(kinds, 1):
            print(f"{number}: {kind}", flush=True)
            rounds.send_and(kind)
            if number == len(kinds) or number % KILLS_IN_A_ROUND == 0:
                rounds.finish()
    finally:
        rounds.close()


def choose_kinds(kinds: Sequence[str], seed: int) -> list[str]:
    """As many as OTTLA_KILLS says, by default each kind once, in a random order."""
    kills, random = int(os.environ.get("OTTLA_KILLS", len(kinds))), Random(seed)
    return [kind for _ in range(-(-kills // len(kinds))) for kind in random.sample(kinds, len(kinds))][:kills]


def _signal(processes: Sequence[psutil.Process], number: signal.Signals) -> None:
    for each in processes:
        try:
            each.send_signal(number)
        except psutil.NoSuchProcess:
            continue
