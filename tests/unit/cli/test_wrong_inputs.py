"""Mistakes that people make: each command says in one line what is wrong and, where it can, what was meant."""

from collections.abc import Iterator

import pytest

import ottla.testing
from ottla.testing import LocalBroker
from tests.unit.cli.every_command import run


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalBroker]:
    with ottla.testing.broker() as running:
        running.create_topic("orders")
        where = ["-b", running.bootstrap]
        assert run(["group", "reset", "readers", "--topic", "orders", "--to-earliest", *where]).status == 0
        assert run(["user", "create", "alice", "--generate", *where]).status == 0
        yield running


@pytest.mark.parametrize(
    ("line", "status", "said"),
    [
        ("consume orders --from-begining", 2, "ottla consume: there is no option --from-begining; did you mean"),
        ("consume orders --xyzzy=5", 2, "ottla consume: there is no option --xyzzy (see ottla consume --help)"),
        ("topic list extra", 2, "ottla topic list: one argument too many: 'extra'"),
        ("topic delete orders --dryrun", 2, "ottla topic delete: there is no option --dryrun"),
        ("topic list --format yaml", 2, "argument --format: 'yaml' is not possible; it can be table, json"),
        ("produce orders --codec zip", 2, "'zip' is not possible; did you mean 'gzip'?"),
        ("config get topics orders", 2, "did you mean 'topic'?"),
        ("topic rename orders x", 2, "there is no action 'rename'; there are create"),
        ("consume orders --offset latest", 2, "--last 0 begins at the end"),
        ("topic delete ordrs", 1, "did you mean 'orders'?"),
        (
            "topic delete orders __consumer_offsets",
            2,
            "is internal: the cluster would lose the committed offsets of all",
        ),
        (
            "topic delete __transaction_state",
            2,
            "would lose the state of all transactions. To delete it all the same, add",
        ),
        ("topic delete __mine --if-exists", 2, "topic '__mine' is internal"),
        ("topic alter orders --unset retenton.ms", 1, "has no setting 'retenton.ms'; did you mean 'retention.ms'?"),
        ("config delete topic orders retenton.ms", 1, "did you mean 'retention.ms'?"),
        ("config set topic orders retenton.ms=5", 1, "did you mean 'retention.ms'?"),
        ("config set user alice producer_rate=5", 2, "did you mean 'producer_byte_rate'?"),
        ("config set user alice SCRAM-SHA-256=x", 2, "`ottla user`"),
        ("config delete broker-logger 1 --all", 2, "name the loggers"),
        ("group delete reders", 1, "did you mean 'readers'?"),
        ("group reset reders --all-topics --to-earliest", 1, "has committed no offsets; did you mean 'readers'?"),
        ("user delete alise", 1, "did you mean 'alice'?"),
        ("cluster reassign --topic ordrs --to 1", 1, "did you mean 'orders'?"),
        ("cluster reassign --over 1", 2, "--over needs --topic or --all-topics"),
        ("cluster reassign --topic orders --to 1 --replicas 1", 2, "--replicas goes with --over"),
        (
            "cluster reassign --topic orders --over 1 --replicas 3",
            1,
            "3 replicas need as many brokers, and --over names",
        ),
        ("cluster reassign --list --all-topics", 2, "--all-topics goes with --to and --over"),
        ("cluster reassign --cancel --throttle 5M", 2, "--throttle is for moves that begin"),
        ("txn find-hanging --topic ordrs", 1, "did you mean 'orders'?"),
        ("bench --topic ordrs", 1, "did you mean 'orders'?"),
        ("topic list -X securty.protocol=ssl", 2, "did you mean 'security.protocol'?"),
        ("doctor --offline --bundle /nowhere/at/all.zip", 1, "ottla: /nowhere/at/all.zip: No such file or directory"),
    ],
)
def test_a_mistake_is_explained(broker: LocalBroker, line: str, status: int, said: str) -> None:
    ended = run([*line.split(), "-b", broker.bootstrap])
    assert ended.status == status, ended
    assert ended.errors.count("\n") == 1, ended.errors
    assert said in ended.errors


def test_an_address_that_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.cli.client.REFUSED_S", 0.05)
    ended = run(["topic", "list", "-b", "127.0.0.1:x1"])
    assert (ended.status, ended.errors) == (2, "ottla: bootstrap.servers: '127.0.0.1:x1' is not host:port\n")
    ended = run(["consume", "orders", "-b", "127.0.0.1:x1"])
    assert ended.status == 1
    assert "An address is HOST:PORT" in ended.errors


def test_internal_topics_are_deleted_with_force(broker: LocalBroker) -> None:
    where = ["-b", broker.bootstrap]
    assert run(["topic", "create", "__mine", *where]).status == 0
    assert run(["topic", "delete", "__mine", *where]).status == 2
    assert run(["topic", "delete", "__mine", "--force", *where]).output == "topic '__mine' deleted\n"
    assert "orders" in run(["topic", "list", *where]).output  # the topic that was named beside an internal one is there


def test_words_of_other_tools(broker: LocalBroker) -> None:
    """`del` and `rm` are `delete`, `--offset earliest` is the beginning."""
    where = ["-b", broker.bootstrap]
    assert run(["topic", "create", "short", *where]).status == 0
    assert run(["consume", "short", "--offset", "earliest", *where]).status == 0
    assert run(["topic", "del", "short", *where]).output == "topic 'short' deleted\n"
