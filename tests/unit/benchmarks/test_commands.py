"""The benchmark of commands: every command is measured, and a broker with topics answers those that ask it."""

import os

import ottla.testing
from benchmarks import PROJECT, commands
from ottla.cli import COMMANDS
from ottla.client.client import Client


def test_every_command_is_measured() -> None:
    measured = list(commands.list_commands(1))
    assert [words[0] for words in measured if words[1:] == ("--help",)] == list(COMMANDS)
    assert len(set(measured)) == len(measured)
    assert len(list(commands.list_commands(0))) == len(COMMANDS)


def test_a_command_is_measured_at_a_broker() -> None:
    with ottla.testing.broker() as broker:
        commands.create_topics(broker.bootstrap, 3)
        client = Client({"bootstrap.servers": broker.bootstrap})
        assert client.count_partitions(pattern="topic-.*") == {f"topic-0000{number}": 1 for number in range(3)}
        client.close()
        environment = {**os.environ, "PYTHONPATH": str(PROJECT / "src"), "OTTLA_BOOTSTRAP": broker.bootstrap}
        timing = commands.measure(("topic", "list"), 1, environment)
    assert (timing.command, timing.status) == ("topic list", 0)
    assert timing.processor_s > 0
    assert timing.elapsed_s > 0
