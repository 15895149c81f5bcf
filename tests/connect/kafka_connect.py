"""Kafka Connect's own transformations and converters for the tests: a JVM that runs `KafkaConnectData.java`."""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.peers.apache_kafka import SHORT_LIVED_JVM, find_executable, find_jars
from tests.patience import PATIENCE_S

SOURCE: Final = Path(__file__).with_name("KafkaConnectData.java")
FETCH_S: Final = 60


def ask_kafka_connect(requests: Sequence[dict[str, Any]]) -> list[Any]:
    """The answer to each request. Raises Unavailable."""
    java, libraries = find_executable("java"), f"{find_jars(FETCH_S)}/*"
    find_executable("javac")  # a whole JDK, whose Java can run a program from its source
    command = [java, *SHORT_LIVED_JVM, "-Duser.timezone=UTC", "-Duser.language=en", "-Duser.country=US"]
    lines = "".join(f"{json.dumps(each)}\n" for each in requests)
    output = _run([*command, "-cp", libraries, str(SOURCE)], lines)
    answers = [json.loads(line) for line in output.splitlines()]
    assert len(answers) == len(requests), output[:1000]
    return answers


def _run(command: Sequence[str], stdin: str = "") -> str:
    done = subprocess.run(command, input=stdin.encode(), capture_output=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr.decode()[:2000]
    return done.stdout.decode()
