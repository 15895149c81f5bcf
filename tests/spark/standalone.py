"""A standalone Spark cluster on this machine, from the PyPI package, which has no scripts to start one."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from random import Random
from typing import IO

import psutil
from pyspark.find_spark_home import _find_spark_home

from benchmarks.peers.broker_process import HOST
from ottla.cli.ports import pick_port
from ottla.spark.java import java_environment
from tests.patience import PATIENCE_S
from tests.spark.killing import HOME, kill, signal_quietly
from tests.spark.settings import QUICK_JAVA

WORKERS = 2


class Standalone:
    """A master, and workers with one core each."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._log: IO[bytes] = (directory / "cluster.log").open("ab")
        self._port = pick_port()
        self._processes: list[subprocess.Popen[bytes]] = []
        self.master = f"spark://{HOST}:{self._port}"

    def start(self) -> None:
        self._launch("master.Master", "--port", str(self._port))
        deadline = time.monotonic() + PATIENCE_S
        while not _listens(self._port):
            assert time.monotonic() < deadline, "no master"
            time.sleep(0.05)
        for number in range(WORKERS):
            directory = str(self._directory / f"worker-{number}")
            self._launch("worker.Worker", "-c", "1", "-m", "600m", "-d", directory, self.master)

    def kill_executor(self, random: Random) -> None:
        """Kill one of the running executors."""
        deadline = time.monotonic() + PATIENCE_S
        while not (found := [*self._executors()]):
            assert time.monotonic() < deadline, "no executor"
            time.sleep(0.05)
        signal_quietly(random.choice(found))

    def kill_worker(self, number: int) -> None:
        """Kill a worker and all that it has started: its executor, and what that has started."""
        worker = self._processes.pop(1 + number)
        kill(psutil.Process(worker.pid))
        worker.wait(PATIENCE_S)

    def close(self) -> None:
        for process in reversed(self._processes):
            kill(psutil.Process(process.pid))
            process.wait(PATIENCE_S)
        self._log.close()

    def _executors(self) -> Iterator[psutil.Process]:
        for worker in self._processes[1:]:
            for child in psutil.Process(worker.pid).children():
                try:
                    if any("CoarseGrainedExecutorBackend" in word for word in child.cmdline()):
                        yield child
                except psutil.NoSuchProcess:
                    continue

    def _launch(self, role: str, *arguments: str) -> None:
        """Start a master or a worker. Executors and Python's workers inherit the path of our package from it."""
        environment = {
            **os.environ,
            **java_environment(os.environ),
            "PYTHONPATH": os.pathsep.join((str(HOME / "src"), str(HOME))),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": QUICK_JAVA,
        }
        command = [f"{_find_spark_home()}/bin/spark-class", f"org.apache.spark.deploy.{role}"]
        place = ["--host", HOST, "--webui-port", "0"]
        process = subprocess.Popen(
            [*command, *place, *arguments],
            env=environment,
            cwd=self._directory,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
        )
        self._processes.append(process)


@contextmanager
def standalone(directory: Path) -> Iterator[Standalone]:
    cluster = Standalone(directory)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()


def _listens(port: int) -> bool:
    with closing(socket.socket()) as probe:
        return probe.connect_ex((HOST, port)) == 0
