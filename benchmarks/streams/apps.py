"""An app of either side as a child process: how far it has come, what CPU it took, how long a record takes."""

import itertools
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

from benchmarks.loads.topics import Mismatch, create_topic
from benchmarks.peers.apache_kafka import CACHE, find_executable, find_jars
from benchmarks.peers.broker_process import read_usage
from benchmarks.peers.ottla_broker import build_environment
from ottla.client.client import LATEST, READ_COMMITTED, Client
from ottla.client.groups import fetch_offsets
from ottla.topic_partition import TopicPartition as Partition

SOURCE = Path(__file__).with_name("KafkaStreamsApp.java")
CLASSES = CACHE / "streams-benchmark"
PAUSE_SECONDS = 0.02
DEADLINE_SECONDS = 120.0
WARM_UP_RECORDS = 30
"""Records that do not count for the latency, because the first ones are compiled."""
_numbers = itertools.count()


@dataclass(frozen=True)
class Trial:
    """The steady part of a run: rows, and the time and CPU they took."""

    rows: int
    seconds: float
    cpu_seconds: float


def compile_kafka_streams_app() -> None:
    CLASSES.mkdir(parents=True, exist_ok=True)
    command = [find_executable("javac"), "-cp", str(find_jars() / "*"), "-d", str(CLASSES), str(SOURCE)]
    subprocess.run(command, check=True)


def build_command(side: int) -> list[str]:
    """The program of a side: 0 is Ottla, 1 is Kafka Streams. Both take the same arguments."""
    if side == 0:
        return [sys.executable, "-m", "benchmarks.streams.ottla_app"]
    path = f"{CLASSES}:{find_jars() / '*'}"
    return [find_executable("java"), "-Xmx1G", "-cp", path, "KafkaStreamsApp"]


class RunningApp:
    """The app of one topology, with a state directory of its own. `name` is that of an app that ran before and goes on
    without its state directory; without it, the app gets a new name and output topic."""

    def __init__(
        self,
        side: int,
        topology: str,
        bootstrap: str,
        input_topic: str,
        table_topic: str,
        pace: str,
        partitions: int,
        *,
        name: str | None = None,
    ) -> None:
        self.name = name or f"{topology}-{side}-{next(_numbers)}"
        self.output = f"{self.name}-output"
        self._bootstrap = bootstrap
        self._input = input_topic
        self._partitions = partitions
        if name is None:
            create_topic(bootstrap, self.output, partitions)
        self._temporary = tempfile.TemporaryDirectory(prefix="streams-benchmark-", ignore_cleanup_errors=True)
        directory = Path(self._temporary.name)
        arguments = [topology, self.name, bootstrap, str(directory), pace, input_topic, table_topic, self.output]
        self._printed = directory / "printed.txt"
        with self._printed.open("wb") as printed:
            self.began = time.perf_counter()
            self._process = subprocess.Popen(
                [*build_command(side), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=subprocess.STDOUT,
                env=build_environment(),
            )

    def drain(self, rows: int, uncounted: int, is_done: Callable[[], bool] = lambda: True) -> Trial:
        """Wait until the app has committed all rows of its input and `is_done`, for an app that goes on behind an
        exchange. The clock starts when `uncounted` rows are committed."""
        client = Client({"bootstrap.servers": self._bootstrap})
        try:
            first = self._await_committed(client, uncounted)
            if first >= rows:
                raise Mismatch(f"{self.name}: {rows} rows are done at once; it takes more (--input) to measure")
            began, before = time.perf_counter(), self._cpu_seconds()
            self._await_committed(client, rows)
            deadline = time.monotonic() + DEADLINE_SECONDS
            while not is_done():
                self._check(deadline, "the results are not complete")
                time.sleep(PAUSE_SECONDS)
            return Trial(rows - first, time.perf_counter() - began, self._cpu_seconds() - before)
        finally:
            client.close()

    def measure_restart(self) -> float:
        """Seconds from the start of the program until it has committed a result."""
        client = Client({"bootstrap.servers": self._bootstrap})
        wanted = {Partition(self.output, number): LATEST for number in range(self._partitions)}

        def find_ends() -> list[int]:
            return [each.offset for each in client.list_offsets(wanted, READ_COMMITTED).values()]

        deadline, before = time.monotonic() + DEADLINE_SECONDS, find_ends()
        try:
            while find_ends() == before:
                self._check(deadline, "nothing came out")
                time.sleep(PAUSE_SECONDS)
            return time.perf_counter() - self.began
        finally:
            client.close()

    def measure_latencies(self, records: int) -> tuple[float, list[float]]:
        """Seconds from the start of the program to the first result, and the milliseconds of each of `records` records
        thereafter. Each is sent only when the one before it has come out."""
        producer = Producer({"bootstrap.servers": self._bootstrap, "linger.ms": 0})
        settings = {"group.id": "benchmark", "isolation.level": "read_committed", "enable.auto.commit": False}
        hurry = {"fetch.wait.max.ms": 10, "fetch.queue.backoff.ms": 1}
        consumer = Consumer({"bootstrap.servers": self._bootstrap, **settings, **hurry})
        consumer.assign([TopicPartition(self.output, 0, 0)])
        try:
            self._poll(consumer)
            start_seconds = time.perf_counter() - self.began
            found = []
            for number in range(WARM_UP_RECORDS + records):
                began = time.perf_counter()
                value = f"record {number}."
                producer.produce(self._input, value.encode(), key=b"key", partition=0)
                producer.flush(DEADLINE_SECONDS)
                message = self._poll(consumer)
                found.append(1000 * (time.perf_counter() - began))
                if message.value() != value.upper().encode():
                    raise Mismatch(f"{self.name}: {message.value()!r} came where {value.upper()!r} was due")
            return start_seconds, found[WARM_UP_RECORDS:]
        finally:
            consumer.close()

    def _poll(self, consumer: Consumer) -> Message:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while (message := consumer.poll(1.0)) is None:
            self._check(deadline, "nothing came out")
        if (error := message.error()) is not None:
            raise KafkaException(error)
        return message

    def _await_committed(self, client: Client, rows: int) -> int:
        deadline = time.monotonic() + DEADLINE_SECONDS
        wanted = {Partition(self._input, number): LATEST for number in range(self._partitions)}
        while (found := sum(each.offset for each in fetch_offsets(client, self.name, wanted).values())) < rows:
            self._check(deadline, f"{found} of {rows} rows are committed")
            time.sleep(PAUSE_SECONDS)
        return found

    def _check(self, deadline: float, state: str) -> None:
        if self._process.poll() is not None or time.monotonic() > deadline:
            last = "\n".join(self._printed.read_text(errors="replace").splitlines()[-12:])
            raise Mismatch(f"{self.name}: {state}, and the app has ended or is too slow: {last}")

    def _cpu_seconds(self) -> float:
        return read_usage(self._process.pid).cpu_seconds

    def __enter__(self) -> "RunningApp":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._temporary.cleanup()
