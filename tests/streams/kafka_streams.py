"""Kafka Streams for the tests: its TopologyTestDriver, which runs the topologies in `KafkaTopologies.java`.

Maven resolves the jar of the driver into the project's cache, beside the jars of Apache Kafka.
"""

import json
import os
import subprocess
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import PROJECT
from benchmarks.peers.apache_kafka import SHORT_LIVED_JVM, VERSION, find_executable, find_jars, resolve
from tests.patience import PATIENCE_S

SOURCE = Path(__file__).with_name("KafkaTopologies.java")
DRIVER = ("org.apache.kafka", "kafka-streams-test-utils", VERSION)
FETCH_S = 60


class Input(NamedTuple):
    """A record that is written to a topic. The value is a JSON object, or None."""

    topic: str
    key: str
    timestamp_ms: int
    value: dict[str, Any] | None


class Written(NamedTuple):
    """A record that a topology writes while it processes the input record with this number."""

    number: int
    key: Any
    value: dict[str, Any] | None
    timestamp_ms: int


def find_class_path() -> str:
    """The jars of Kafka Streams and of its test driver. Raises Unavailable."""
    driver = PROJECT / ".cache" / f"kafka-streams-test-utils-{VERSION}" / "jars"
    if not driver.is_dir():
        resolve(driver, FETCH_S, [DRIVER], alone=True)
    return os.pathsep.join([f"{find_jars(FETCH_S)}/*", f"{driver}/*"])


def run_in_kafka_streams(
    scenarios: Mapping[str, tuple[str, Sequence[Input]]], directory: Path
) -> dict[str, list[Written]]:
    """What Kafka Streams writes in each scenario: a topology by name, and its input. Raises Unavailable.

    Java compiles the program when it starts it. The directory has the state.
    """
    java, libraries = find_executable("java"), find_class_path()
    find_executable("javac")  # a whole JDK, whose Java can run a program from its source
    lines = [
        "\t".join((name, topology, each.topic, each.key, str(each.timestamp_ms), _to_text(each.value)))
        for name, (topology, records) in scenarios.items()
        for each in records
    ]
    program = [java, *SHORT_LIVED_JVM, "-cp", libraries, str(SOURCE), str(directory / "state")]
    output = _run(program, "".join(f"{line}\n" for line in lines))
    written: dict[str, list[Written]] = defaultdict(list)
    for line in output.splitlines():
        name, *fields = json.loads(line)
        written[name].append(Written(*fields))
    return written


def _to_text(value: dict[str, Any] | None) -> str:
    return "" if value is None else json.dumps(value)


def _run(command: Sequence[str], stdin: str = "") -> str:
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    return done.stdout
