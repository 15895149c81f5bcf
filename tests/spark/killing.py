"""A job (`driver.py`) that a test kills parts of, and what its output must be at every moment and at the end.

Keys are numbers below KEYS, values count from 0, and each key has its own partition in the source. So a copy has the
values of a key in their order, and counts by key tell how much has been counted.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import psutil

import ottla
from ottla.client.client import LATEST, READ_COMMITTED, READ_UNCOMMITTED, Client
from ottla.client.groups import fetch_offsets
from ottla.client.transaction_states import list_transactional_ids
from ottla.testing import LocalBroker
from ottla.topic_partition import TopicPartition
from tests.patience import PATIENCE_S
from tests.spark.driver import BATCH
from tests.spark.topics import send
from tests.unit.client.reading_back import await_markers

HOME = Path(__file__).parents[2]
KEYS = 7
SOURCES, SINKS = 2, 3
STARTS_MAX = 4
"""How often a driver may end by itself after each kill: a query that cannot continue ends, and is started again."""


class Job:
    def __init__(
        self, broker: LocalBroker, kind: str, directory: Path, python: str, master: str = "local[2,4]"
    ) -> None:
        """`python` is the fixture early_python."""
        self.kind = kind
        self.sent = 0
        self._broker = broker
        self._source, self._sink, self._group = f"origin-{kind}", f"result-{kind}", f"group-{kind}"
        broker.create_topic(self._source, partitions=SOURCES)
        broker.create_topic(self._sink, partitions=SINKS)
        checkpoint = directory / f"checkpoint-{kind}"
        self._arguments = [broker.bootstrap, self._source, self._sink, str(checkpoint), kind, self._group, master]
        self._log = directory / f"driver-{kind}.log"
        self._python = python
        self._driver: subprocess.Popen[bytes] | None = None
        self._ends = 0
        self._last_done: tuple[list[int], int] = [], 0
        self._client = Client({"bootstrap.servers": broker.bootstrap})

    def close(self) -> None:
        self.kill_driver()
        self._client.close()

    # What happens to it

    def send(self, rows: int) -> None:
        numbers = range(self.sent, self.sent + rows)
        send(
            self._broker,
            self._source,
            [{"value": f"{each}", "key": f"{each % KEYS}", "partition": each % KEYS % SOURCES} for each in numbers],
        )
        self.sent += rows

    def run(self) -> None:
        """Start the driver, or start it again if it has ended."""
        if self._driver is not None and self._driver.poll() is None:
            return
        paths = os.pathsep.join((str(HOME / "src"), str(HOME)))
        environment = {**os.environ, "PYTHONPATH": paths, "PYSPARK_PYTHON": self._python}
        command = [sys.executable, "-m", "tests.spark.driver", *self._arguments]
        with self._log.open("ab") as log:
            self._driver = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)

    def wait_for_writes(self, random: Random) -> None:
        """Wait until more was written, committed or not. The wait ends at a random moment within the next two
        batches."""
        self._ends = 0
        rows = BATCH if self.kind in ("plain", "append") else KEYS
        wanted = self._written() + random.randrange(1, 2 * rows)
        self._wait(lambda: self._written() >= wanted or self._count_done() >= self.sent)

    def wait_for_all(self) -> None:
        self._wait(lambda: self._count_done() >= self.sent)

    def kill_driver(self) -> None:
        """Kill the driver and all its children: the JVM and Python's workers have process groups of their own."""
        if self._driver is not None and self._driver.poll() is None:
            kill(psutil.Process(self._driver.pid))
            self._driver.wait(PATIENCE_S)
        self._driver = None

    def kill_worker(self, random: Random) -> None:
        """Kill one of Python's workers, whatever it is doing."""
        if self._driver is None or self._driver.poll() is not None:
            return
        workers = [each for each in psutil.Process(self._driver.pid).children(recursive=True) if _is_worker(each)]
        if workers:
            signal_quietly(random.choice(workers))

    def kill_broker(self) -> None:
        self._broker.kill()
        self._broker.restart()

    # What it has done

    def check(self) -> None:
        """Check the output at any moment: it matches the model, and the group's offset is not ahead of it.

        A committed transaction becomes visible in one partition after the other, so the check first waits for
        transactions that are about to end.
        """
        ahead = self._committed()
        await_markers(self._client)
        output = self._output()
        done = self._total(output)
        assert ahead <= done, f"the group has committed {ahead} records, and the output has only {done}"
        self._check_order(output)

    def check_all(self) -> None:
        """Check the output at the end: everything is there once, and no transaction is open."""
        await_markers(self._client)
        output = self._output()
        self._check_order(output)
        assert self._total(output) == self.sent
        if self.kind != "plain":
            assert self._committed() == self.sent
        assert list_transactional_ids(self._client, "", only_open=True) == []
        assert self._ends_of_sink(READ_COMMITTED) == self._ends_of_sink(READ_UNCOMMITTED)

    def _check_order(self, output: dict[str, list[int]]) -> None:
        for key, values in output.items():
            if self.kind in ("plain", "append"):
                assert values == list(range(int(key), self.sent, KEYS))[: len(values)], f"key {key}"
            else:
                assert values == sorted(values), f"key {key}"
                assert self.kind == "complete" or len(set(values)) == len(values), f"key {key}"
        if self.kind == "complete":
            self._check_whole_batches(output)

    def _check_whole_batches(self, output: dict[str, list[int]]) -> None:
        """Check that each batch has all keys, and counts more rows than the batch before."""
        totals = [sum(batch) for batch in zip(*(output[key] for key in sorted(output)), strict=False)]
        assert len(set(totals)) == len(totals), "a batch was written twice"

    def _total(self, output: dict[str, list[int]]) -> int:
        """How many records of the source have reached the output."""
        if self.kind in ("plain", "append"):
            return sum(map(len, output.values()))
        return sum(values[-1] for values in output.values())

    def _output(self) -> dict[str, list[int]]:
        """The committed values of each key, in the order of the topic."""
        table = ottla.read(
            self._sink, bootstrap=self._broker.bootstrap, columns=("key", "value"), isolation="read_committed"
        ).to_arrow()
        found: dict[str, list[int]] = {}
        for key, value in zip(table.column("key").to_pylist(), table.column("value").to_pylist(), strict=True):
            found.setdefault(key.decode(), []).append(int(value))
        return found

    def _count_done(self) -> int:
        """How many records have reached the output. The topic is read only when it has grown, because this is called
        often on a busy machine."""
        ends = self._ends_of_sink(READ_COMMITTED)
        if self._last_done[0] != ends:
            self._last_done = ends, self._total(self._output())
        return self._last_done[1]

    def _committed(self) -> int:
        places = [TopicPartition(self._source, each) for each in range(SOURCES)]
        return sum(each.offset for each in fetch_offsets(self._client, self._group, places).values())

    def _written(self) -> int:
        return sum(self._ends_of_sink(READ_UNCOMMITTED))

    def _ends_of_sink(self, isolation: int) -> list[int]:
        places = [TopicPartition(self._sink, each) for each in range(SINKS)]
        found = self._client.list_offsets(dict.fromkeys(places, LATEST), isolation)
        return [found[place].offset for place in places]

    def _wait(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline, (
                f"{self.kind}: {self._count_done()} of {self.sent}; {self._last_words()}"
            )
            if self._driver is not None and self._driver.poll() is not None:
                self._ends += 1
                assert self._ends <= STARTS_MAX, self._last_words()
                self.run()
                deadline = time.monotonic() + PATIENCE_S  # on a busy machine, starts take most of the time
            time.sleep(0.05)

    def _last_words(self) -> str:
        return self._log.read_text(errors="replace")[-3000:]


def kill(process: psutil.Process) -> None:
    """Kill a process and all its children."""
    processes = [process, *process.children(recursive=True)]
    for each in processes:
        signal_quietly(each)
    psutil.wait_procs(processes, PATIENCE_S)


def signal_quietly(process: psutil.Process, number: int = signal.SIGKILL) -> None:
    try:
        process.send_signal(number)
    except psutil.NoSuchProcess:
        return


def _is_worker(process: psutil.Process) -> bool:
    try:
        parent = process.parent()
        return "pyspark.daemon" in process.cmdline() and parent is not None and "pyspark.daemon" in parent.cmdline()
    except psutil.NoSuchProcess:
        return False
