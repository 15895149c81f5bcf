"""What people type first: other words for commands, misspelt names, and the flags of Kafka's console consumer."""

from collections.abc import Iterator

import pytest

import ottla.testing
from ottla.cli import COMMANDS, resolve_alias
from ottla.testing import LocalBroker
from tests.unit.cli.every_command import Command, every_command, run


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalBroker]:
    with ottla.testing.broker() as running:
        running.create_topic("orders")
        yield running


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        (["topics", "ls"], ["topic", "ls"]),
        (["--version", "groups"], ["--version", "group"]),
        (["topic", "topics"], ["topic", "topics"]),
        (["nothing"], ["nothing"]),
        (["--help"], ["--help"]),
    ],
)
def test_the_plural_of_a_command_stands_for_it(typed: list[str], meant: list[str]) -> None:
    assert resolve_alias(typed, COMMANDS) == meant


def test_aliases_run(broker: LocalBroker) -> None:
    listed = run(["topic", "list", "-b", broker.bootstrap])
    assert listed.status == 0
    assert run(["topics", "ls", "-b", broker.bootstrap]) == listed
    assert run(["topics", "show", "orders", "-b", broker.bootstrap]).status == 0
    assert run(["cluster", "health", "-b", broker.bootstrap]).status == 0
    assert run(["cluster", "info", "-b", broker.bootstrap]).output.startswith("cluster ")


def test_the_replication_factor_has_the_name_that_kafka_gives_it(broker: LocalBroker) -> None:
    create = ["topic", "create", "payments", "--dry-run", "-b", broker.bootstrap]
    assert run([*create, "--replication-factor", "1"]).status == 0
    assert "2 replicas need 2 brokers" in run([*create, "--replication-factor", "2"]).errors


def test_misspelt_commands() -> None:
    ended = run(["topik", "list"])
    assert (ended.status, ended.errors) == (
        2,
        "ottla: there is no command 'topik'; did you mean 'topic'? (see ottla --help)\n",
    )
    assert "there is no action 'lisst'; did you mean 'list'?" in run(["topic", "lisst"]).errors
    assert "there is no action 'xyzzy'; there are create" in run(["topic", "xyzzy"]).errors


def test_misspelt_names(broker: LocalBroker) -> None:
    for line in (["consume", "order"], ["topic", "describe", "order"], ["produce", "order"]):
        assert "; did you mean 'orders'?" in run([*line, "-b", broker.bootstrap]).errors
    run(["group", "reset", "readers", "--topic", "orders", "--to-earliest", "-b", broker.bootstrap])
    assert "did you mean 'readers'?" in run(["group", "describe", "reader", "-b", broker.bootstrap]).errors


def test_from_the_beginning(broker: LocalBroker) -> None:
    """The flag of Kafka's console consumer is no error, and a hint says what differs."""
    ended = run(["consume", "orders", "--from-beginning", "-b", broker.bootstrap])
    assert (ended.status, ended.errors.count("\n"), "--follow" in ended.errors) == (0, 1, True)
    assert run(["consume", "orders", "--from-beginning", "--last", "1", "-b", broker.bootstrap]).status == 2


@pytest.mark.parametrize("command", every_command(), ids=lambda command: command.name)
def test_every_command_has_a_help(command: Command) -> None:
    ended = run([*command.name.split(), "--help"])
    assert (ended.status, ended.errors) == (0, ""), ended.errors
    assert ended.output.startswith("usage: ottla ")
