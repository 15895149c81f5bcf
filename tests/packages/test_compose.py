"""The compose file, with a container engine: three brokers and three ZooKeeper servers, one of each killed."""

import json
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.needs import require_program, skip_without
from tests.patience import PATIENCE_S

ROOT = Path(__file__).parents[2]
IMAGE = "ottla-test"
BOOTSTRAP = "localhost:19092,localhost:29092,localhost:39092"
BROKERS = 3
RECORDS = 2_000

Compose = Callable[..., str]


def run(*command: str, given: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=ROOT, input=given, capture_output=True, text=True, timeout=PATIENCE_S * 4)


def run_ottla(*words: str, given: str | None = None) -> str:
    ended = run(sys.executable, "-m", "ottla", *words, "--bootstrap", BOOTSTRAP, given=given)
    assert ended.returncode == 0, f"{words}: {ended.stderr}"
    return ended.stdout


@pytest.fixture
def compose(tmp_path: Path) -> Iterator[Compose]:
    """Runs `docker compose`, with a project and an image of its own. The cluster is up; in the end it is removed."""
    docker = require_program("docker")
    if run(docker, "compose", "version").returncode != 0:
        skip_without("docker compose", "the plug-in is not installed")
    if run(docker, "info").returncode != 0:
        skip_without("a container engine", "docker finds none")
    project = f"ottla-test-{uuid.uuid4().hex[:8]}"
    file = str(tmp_path / "compose.yaml")
    generate = ("generate", "compose", "--image", IMAGE, "--source", str(ROOT), "--output", file)
    assert run(sys.executable, "-m", "ottla", *generate).returncode == 0

    def ask(*words: str) -> str:
        ended = run(docker, "compose", "-p", project, "-f", file, *words)
        assert ended.returncode == 0, f"docker compose {words}: {ended.stdout}{ended.stderr}"
        return ended.stdout + ended.stderr

    if run(docker, "compose", "-f", file, "pull", "--policy", "missing", "zk1").returncode != 0:
        skip_without("a container registry", "the image of ZooKeeper cannot be pulled")
    try:
        ask("up", "--build", "--detach")
        yield ask
    finally:
        ask("down", "--volumes", "--timeout", "10")
        run(docker, "rmi", IMAGE)


def await_brokers() -> None:
    """Wait until all brokers are alive and all replicas in sync."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        ended = run(sys.executable, "-m", "ottla", "cluster", "status", "--format", "json", "--bootstrap", BOOTSTRAP)
        if ended.returncode == 0:
            status = json.loads(ended.stdout)
            alive = [broker for broker in status["brokers"] if not broker["fenced"]]
            if len(alive) == BROKERS and not status["under_replicated"]:
                return
        assert time.monotonic() < deadline, f"{ended.stdout}{ended.stderr}"
        time.sleep(0.5)


@pytest.mark.long
def test_the_compose_file_starts_a_cluster_that_survives_kills(compose: Compose) -> None:
    await_brokers()
    run_ottla("topic", "create", "orders", "--partitions", "6")
    first = "".join(f"{number}\n" for number in range(RECORDS))
    run_ottla("produce", "orders", given=first)
    compose("kill", "broker1", "zk1")
    second = "".join(f"{number}\n" for number in range(RECORDS, 2 * RECORDS))
    run_ottla("produce", "orders", given=second)
    read = run_ottla("consume", "orders").split()
    assert sorted(map(int, read)) == list(range(2 * RECORDS))
    compose("start", "broker1", "zk1")
    await_brokers()
