"""`ottla consume` of several topics, of topics that match a pattern, and as a member of a group."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import ottla.testing
from ottla.testing import LocalBroker
from tests.patience import PATIENCE_S
from tests.unit.cli.every_command import run

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalBroker]:
    with ottla.testing.broker() as started:
        for topic, values in (("orders-eu", "e1 e2 e3"), ("orders-us", "u1"), ("clicks", "c1")):
            fill(started, topic, *values.split())
        yield started


def fill(broker: LocalBroker, topic: str, *values: str) -> None:
    line = ["produce", topic, "--create", "-b", broker.bootstrap, "-X", "enable.idempotence=false"]
    assert run(line, "".join(f"{value}\n" for value in values).encode()).status == 0


def consume(broker: LocalBroker, *arguments: str) -> list[str]:
    ended = run(["consume", "-b", broker.bootstrap, *arguments])
    assert (ended.status, ended.errors) == (0, ""), ended
    return ended.output.splitlines()


def find_committed(broker: LocalBroker, group: str) -> dict[str, int]:
    ended = run(["group", "describe", group, "-b", broker.bootstrap])
    rows = [line.split() for line in ended.output.splitlines()[2:]]
    return {row[0]: int(row[2]) for row in rows if row[2] != "-"}


def test_several_topics_and_patterns(broker: LocalBroker) -> None:
    assert sorted(consume(broker, "orders-eu", "clicks", "--format", "%t %s\\n")) == [
        "clicks c1",
        *(f"orders-eu e{number}" for number in (1, 2, 3)),
    ]
    assert sorted(consume(broker, "--pattern", "orders-.*")) == ["e1", "e2", "e3", "u1"]
    assert sorted(consume(broker, "--include", "orders-eu|clicks", "-p", "0")) == ["c1", "e1", "e2", "e3"]
    assert len(consume(broker, "--pattern", ".*", "--last", "2")) == 2  # of all topics, and internal ones never match


def test_a_group_goes_on_where_it_was(broker: LocalBroker) -> None:
    # With a count, only what was printed is committed. A second command prints the rest, a third one nothing.
    assert consume(broker, "orders-eu", "--group", "readers", "-n", "2") == ["e1", "e2"]
    assert find_committed(broker, "readers") == {"orders-eu": 2}
    assert consume(broker, "orders-eu", "--group", "readers") == ["e3"]
    assert consume(broker, "orders-eu", "--group", "readers") == []
    described = run(["group", "describe", "readers", "-b", broker.bootstrap]).output
    assert "0 members" in described, described


def test_a_group_reads_topics_by_pattern_and_commits_what_a_filter_leaves_out(broker: LocalBroker) -> None:
    assert consume(broker, "--pattern", "orders-.*", "-g", "filtered", "--value-matches", "^u") == ["u1"]
    assert find_committed(broker, "filtered") == {"orders-eu": 3, "orders-us": 1}


def test_records_are_committed_when_they_are_printed_and_ctrl_c_leaves_the_group(broker: LocalBroker) -> None:
    # A process of its own, because it is given a signal. What it has printed is committed while it waits for more.
    fill(broker, "followed", "f1", "f2")
    command = [sys.executable, "-m", "ottla", "consume", "followed", "-f", "-g", "followers", "-b", broker.bootstrap]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as child:
        assert child.stdout is not None and child.stderr is not None
        assert [child.stdout.readline() for _ in range(2)] == [b"f1\n", b"f2\n"]
        deadline_s = time.monotonic() + PATIENCE_S
        while find_committed(broker, "followers") != {"followed": 2}:
            assert time.monotonic() < deadline_s
        child.send_signal(signal.SIGINT)
        assert (child.stdout.read(), child.stderr.read(), child.wait()) == (b"", b"", 0)
    assert "0 members" in run(["group", "describe", "followers", "-b", broker.bootstrap]).output


@pytest.mark.parametrize(
    ("arguments", "status", "reason"),
    [
        ([], 2, "name a topic, or give --pattern"),
        (["clicks", "--pattern", "x"], 2, "both topics and --pattern"),
        (["--pattern", "("], 2, "--pattern: "),
        (["--pattern", "(", "-g", "g"], 2, "--pattern: "),
        (["--pattern", "nothing.*"], 1, "no topic at .* matches 'nothing"),
        (["clicks", "clikcs"], 1, "there is no topic 'clikcs' .* did you mean 'clicks'"),
        (["clikcs", "-g", "g"], 1, "there is no topic 'clikcs' .* did you mean 'clicks'"),
        (["clicks", "-g", ""], 2, "--group cannot be empty"),
        (["clicks", "-g", "g", "-o", "1"], 2, "--offset cannot be used with --group.*ottla group reset"),
        (["clicks", "-g", "g", "-p", "0"], 2, "--partition cannot be used with --group"),
        (["clicks", "orders-us", "-p", "5"], 1, "has no partition 5"),
    ],
)
def test_mistakes_are_explained(broker: LocalBroker, arguments: list[str], status: int, reason: str) -> None:
    ended = run(["consume", "-b", broker.bootstrap, *arguments])
    assert ended.status == status, ended
    assert pytest.RaisesExc(ValueError, match=reason).matches(ValueError(ended.errors)), ended.errors
