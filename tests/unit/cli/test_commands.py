"""What all commands have in common: they import only what they need, and report an error in one line."""

import argparse
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import KafkaError

from ottla.cli import COMMANDS, command_parser, main
from ottla.cli.client import explain
from ottla.cli.command_error import CommandError
from ottla.cli.pairs import parse_pairs
from ottla.cli.ports import pick_port
from ottla.testing import LocalBroker
from tests.patience import PATIENCE_S
from tests.unit.cli.every_command import run

SOURCE = str(Path(__file__).parents[3] / "src")
IMPORTED = """
import os, sys
sys.path.insert(0, sys.argv[1])
for command in sys.argv[2:]:
    if os.fork() == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        from ottla.cli import main
        try:
            main([command, "--help"])
        except SystemExit:
            pass
        os.write(2, f"{command} {' '.join(sys.modules)}\\n".encode())
        os._exit(0)
    os.wait()
"""
"""Prints the modules that each command has imported, in a fork of an interpreter that had imported nothing."""
COMMANDS_THAT_IMPORT_LITTLE = [command for command in COMMANDS if command != "demo"]


@pytest.fixture(scope="module")
def imported() -> dict[str, set[str]]:
    """Command -> the modules that its help needs."""
    command = [sys.executable, "-c", IMPORTED, SOURCE, *COMMANDS_THAT_IMPORT_LITTLE]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    lines = [line.split() for line in done.stderr.splitlines()]
    return {name: set(modules) for name, *modules in lines}


def run_refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """Run a command that must fail. Returns the exit status and the one line on stderr."""
    try:
        status = main(arguments)
    except SystemExit as left:
        status = int(left.code or 0)
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    return status, line


@pytest.mark.parametrize(
    ("name", "status", "said"),
    [
        ("", 2, "the name of a topic is empty"),
        ("a b", 1, "topic 'a b': no topic can have this name"),
        ("odrers", 1, "there is no topic 'odrers' at {address}; did you mean 'orders'?"),
    ],
)
@pytest.mark.parametrize(
    "line",
    [
        "topic describe {}",
        "topic alter {} -p 9",
        "topic trim {} --all",
        "config get topic {}",
        "group reset readers --to-latest -t {}",
        "group delete readers -t {}",
        "txn find-hanging -t {}",
        "txn abort {} 0 --start-offset 0",
        "cluster elect -t {}",
        "kafka transactions find-hanging --topic {}",
    ],
)
def test_a_wrong_name_of_a_topic_is_explained(
    line: str, name: str, status: int, said: str, ottla_broker: LocalBroker
) -> None:
    ottla_broker.create_topic("orders")
    words = [name if word == "{}" else word for word in line.split()]
    if words[0] == "kafka":
        words = [*words[:2], "--bootstrap-server", ottla_broker.bootstrap, *words[2:]]
    else:
        words += ["-b", ottla_broker.bootstrap]
    ended = run(words)
    if not name and words[0] == "config":
        said = "config: name a topic"
    assert (ended.status, ended.errors) == (status, f"ottla: {said.format(address=ottla_broker.bootstrap)}\n")


@pytest.mark.parametrize("command", COMMANDS_THAT_IMPORT_LITTLE)
def test_a_command_imports_nothing_it_does_not_need(command: str, imported: dict[str, set[str]]) -> None:
    # Neither the broker, nor the client library, nor the other commands are imported before the arguments are parsed.
    modules = imported[command]
    assert f"ottla.cli.{command}" in modules
    assert not modules & {"ottla.broker.broker", "ottla.cli.broker_process", "confluent_kafka", "asyncio", "uvloop"}


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ([], "COMMAND"),
        (["fly"], "fly"),
        (["topic", "alter"], "TOPIC"),
        (["topic", "alter", "orders"], "nothing to change"),
        (["topic", "create", "orders", "--set", "x"], "'x' is not key=value"),
        (["topic", "create", "orders", "-p", "many"], "many"),
        (["config", "set", "topic", "orders"], "nothing to change"),
        (["config", "get", "broker", "one"], "not a broker's id"),
        (["config", "get", "planet", "earth"], "planet"),
        (["produce", "orders", "--acks", "2"], "2"),
        (["produce", "orders", "-D", ""], "--delimiter"),
        (["produce", "orders", "-D", "\\q"], "backslash"),
        (["produce", "orders", "-n", "-1"], "--count"),
        (["produce", "orders", "-H", "x"], "NAME=VALUE"),
        (["consume", "orders", "--format", "x"], "--format"),
        (["consume", "orders", "--key-matches", "("], "--key-matches"),
        (["consume", "orders", "--last", "-1"], "--last"),
        (["consume", "orders", "--last", "1", "--offset", "1"], "--offset"),
        (["bench", "--only", "consume"], "--topic"),
        (["bench", "--seconds", "0"], "--seconds"),
        (["topic", "list", "-b", ","], "--bootstrap"),
        (["topic", "list", "-X", "colour=red"], "colour"),
        (["topic", "list", "-X", "colour"], "-X"),
    ],
)
def test_wrong_usage_is_reported_in_one_line(
    arguments: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status, line = run_refused(capsys, *arguments)
    assert status == 2
    assert line.startswith("ottla")
    assert named in line


@pytest.mark.parametrize(
    ("arguments", "field", "expected"),
    [
        (["produce", "orders", "--acks", "1", "a", "-n", "3", "b"], "files", ["a", "b"]),
        (["produce", "--acks", "1", "orders"], "files", []),
        (["topic", "create", "a", "-p", "1", "b", "--dry-run"], "names", ["a", "b"]),
        (["config", "set", "topic", "orders", "--dry-run", "a=b"], "assignments", ["a=b"]),
        (["config", "get", "topic", "orders", "--changed", "a"], "keys", ["a"]),
    ],
)
def test_options_may_stand_between_names(arguments: list[str], field: str, expected: list[str]) -> None:
    assert getattr(command_parser({arguments[0]}).parse_args(arguments), field) == expected


@pytest.mark.parametrize(
    "arguments",
    [["topic", "list"], ["consume", "orders"], ["produce", "orders"]],
    ids=lambda arguments: arguments[0],
)
def test_a_stopped_broker_is_reported_within_seconds(
    arguments: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # The error comes long before the connection time-out. One case waits as long as a refused connection takes; the
    # others would only repeat that.
    monkeypatch.setattr("ottla.cli.client.CONNECT_S", 2 * PATIENCE_S)
    if arguments[0] != "topic":
        monkeypatch.setattr("ottla.cli.client.REFUSED_S", 0.1)
    address = f"127.0.0.1:{pick_port()}"
    assert run_refused(capsys, *arguments, "-b", address) == (
        1,
        f"ottla: cannot connect to {address}: connection refused. Is a broker running there? (ottla up)",
    )


def test_a_listener_that_never_answers_is_reported(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.cli.client.CONNECT_S", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        status, line = run_refused(capsys, "topic", "list", "-b", address)
    assert status == 1
    assert line == f"ottla: cannot connect to {address}: no answer in time. Is that the address of a Kafka broker?"


def test_the_cluster_can_be_named_in_the_environment(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.cli.client.REFUSED_S", 0.1)
    monkeypatch.setenv("OTTLA_BOOTSTRAP", f"127.0.0.1:{pick_port()}")
    status, line = run_refused(capsys, "topic", "list")
    assert status == 1
    assert "127.0.0.1:" in line


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Broker: Unknown topic or partition", "Unknown topic or partition"),
        ("Topic 'a' already exists.", "Topic 'a' already exists"),
        (
            "h:1/bootstrap: Connect to ipv4#1.2.3.4:1 failed: refused (after 0ms in state CONNECT)",
            "Connect to ipv4#1.2.3.4:1 failed: refused",
        ),
        ("two\nlines", "two lines"),
    ],
)
def test_an_error_of_the_library_becomes_one_plain_line(text: str, expected: str) -> None:
    assert explain(KafkaError(KafkaError._TRANSPORT, text)) == expected


def test_the_last_setting_wins_and_values_may_have_equals_signs() -> None:
    assert parse_pairs(["a=1", "b = x=y", "a=2"], "-X") == {"a": "2", "b": " x=y"}
    with pytest.raises(CommandError):
        parse_pairs(["=1"], "-X")


def test_an_interrupt_prints_nothing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def run(options: argparse.Namespace) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("ottla.cli.completion.run", run)
    assert main(["completion", "bash"]) == 130
    assert capsys.readouterr() == ("", "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device here is always full")
def test_output_that_cannot_be_written_is_reported() -> None:
    command = [sys.executable, "-m", "ottla", "completion", "bash"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, env={"PYTHONPATH": SOURCE}, stdout=full, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (1, "ottla: standard output: No space left on device\n")


def test_a_command_may_be_started_without_input_and_output() -> None:
    done = subprocess.run(
        ["sh", "-c", f'"{sys.executable}" -m ottla completion bash <&- >&-'],
        env={"PYTHONPATH": SOURCE},
        stderr=subprocess.PIPE,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    "line",
    [
        "topic trim orders --all",
        "topic alter orders -p 2",
        "group reset readers -t orders --to-latest",
        "group list",
        "group describe readers",
        "group delete readers",
        "txn find-hanging",
        "cluster elect -t orders",
    ],
)
def test_a_command_without_records_does_not_load_the_client_library(line: str, ottla_broker: LocalBroker) -> None:
    ottla_broker.create_topic("orders")
    assert run(["group", "reset", "readers", "-t", "orders", "--to-latest", "-b", ottla_broker.bootstrap]).status == 0
    code = (
        "import sys; from ottla.cli import main; status = main(sys.argv[1:]);"
        "print(status, sys.modules.keys() & {'confluent_kafka'}, file=sys.stderr)"
    )
    command = [sys.executable, "-c", code, *line.split(), "-b", ottla_broker.bootstrap]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.stderr == "0 set()\n"


def test_what_commands_ask_with_loads_no_columns() -> None:
    """numpy, numba and pandas take longer to import than a command may take. A question needs no TLS either, and none
    of a broker's settings."""
    code = (
        "import sys, ottla.client.client, ottla.cli.client, ottla.cli.cluster, ottla.cli.config, ottla.cli.topic;"
        "print(sys.modules.keys() & {'ssl', 'dataclasses', 'subprocess', 'ottla.config', 'ottla.wire.fetch'} or '{}');"
        "import ottla.client.fetching, ottla.streams.running.registration;"
        "print(sys.modules.keys() & {'numpy', 'numba', 'pandas', 'pyarrow', 'confluent_kafka', 'asyncio'} or '{}')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE_S)
    assert (done.stdout, done.stderr) == ("{}\n{}\n", "")
