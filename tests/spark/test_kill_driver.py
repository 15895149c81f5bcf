"""kill -9 of driver, JVM and workers while a query copies a topic: all records arrive once, no offset runs ahead.

`make spark-chaos` kills more often, and both kinds of sinks.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import psutil
import pytest

import ottla
from ottla.pipeline.cluster import LATEST, Cluster, TopicPartition
from ottla.testing import LocalBroker
from tests.spark.driver import BATCH
from tests.spark.topics import committed, send

KILLS = int(os.environ.get("OTTLA_KILLS", "1"))
KINDS = ["helper", "plain"] if "OTTLA_KILLS" in os.environ else ["helper"]
ROWS = 1000 if "OTTLA_KILLS" in os.environ else 300
SOURCES, SINKS = 2, 3
PATIENCE_S = 180


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.timeout(PATIENCE_S * (KILLS + 1))
def test_killed_drivers_lose_and_repeat_nothing(broker: LocalBroker, tmp_path: Path, seed: int, kind: str) -> None:
    source, sink, group = f"origin-{kind}", f"copy-{kind}", f"copiers-{kind}"
    broker.create_topic(source, partitions=SOURCES)
    broker.create_topic(sink, partitions=SINKS)
    send(broker, source, [{"value": f"{number}", "key": f"{number % 11}"} for number in range(ROWS)])
    random = Random(seed)
    arguments = [broker.bootstrap, source, sink, str(tmp_path), kind, group]
    cluster = Cluster({"bootstrap.servers": broker.bootstrap, "group.id": group})
    written = 0
    for _ in range(KILLS):
        driver = start(arguments)
        try:
            written = wait_for_rows(cluster, sink, written + random.randrange(1, BATCH * 2), driver)
        finally:
            kill(driver)
        if kind == "helper":
            ahead = sum(offset for offset in committed(broker, group, source, SOURCES) if offset > 0)
            assert ahead <= len(copied(broker, sink)), "the group's offsets are ahead of the copy"
    driver = start(arguments)
    try:
        assert driver.wait(PATIENCE_S) == 0
    finally:
        kill(driver)
        cluster.close()
    assert sorted(map(int, copied(broker, sink))) == list(range(ROWS))
    if kind == "helper":
        assert sum(committed(broker, group, source, SOURCES)) == ROWS


def start(arguments: list[str]) -> "subprocess.Popen[bytes]":
    home = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(home / "src"), str(home)))}
    command = [sys.executable, "-m", "tests.spark.driver", *arguments]
    return subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL, start_new_session=True)


def kill(driver: "subprocess.Popen[bytes]") -> None:
    """With all that it has started: the JVM has a group of its own, and so have Python's workers."""
    if driver.poll() is None:
        own = psutil.Process(driver.pid)
        processes = [own, *own.children(recursive=True)]
        for process in processes:
            process.send_signal(signal.SIGKILL)
        driver.wait(PATIENCE_S)
        psutil.wait_procs(processes, PATIENCE_S)


def wait_for_rows(cluster: Cluster, topic: str, wanted: int, driver: "subprocess.Popen[bytes]") -> int:
    """How many records the topic has when there are at least as many as wanted, committed or not, or all."""
    partitions = [TopicPartition(topic, each) for each in range(SINKS)]
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        found = sum(each.offset for each in cluster.offsets(dict.fromkeys(partitions, LATEST)).values())
        if found >= wanted or driver.poll() is not None:
            return found
        time.sleep(0.02)
    raise AssertionError(f"{topic} has only {found} records, and the driver is still running")


def copied(broker: LocalBroker, topic: str) -> list[str]:
    """What a reader of committed records sees."""
    table = ottla.read(topic, bootstrap=broker.bootstrap, columns=("value",), isolation="read_committed").to_arrow()
    return [value.decode() for value in table.column("value").to_pylist()]
