"""Everything that can break a command, tried with every command: it ends with one line on stderr, never a traceback.

The commands and their arguments are found in the parsers, so a new command is tried without being named here.
"""

import argparse
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread

import pytest

from ottla.cli import main
from ottla.cli.command_error import explain_error
from ottla.testing import LocalBroker
from tests.samples import choose_sample
from tests.unit.cli.every_command import Command, Ended, every_command, run

ROOT = Path(__file__).parents[3]
COMMANDS = [command for command in every_command() if command.name != "doctor"]
"""All but `doctor`, whose output is about what is broken; test_doctor.py tries it."""
CLIENTS = [
    command for command in COMMANDS if command.takes_bootstrap and command.name not in ("connect up", "profile create")
]
"""`connect up` is a worker, which runs until it is stopped. Its errors are tested in test_connect.py. `profile create`
keeps an address without using it."""
WITH_A_BROKER = [command for command in CLIENTS if command.name not in ("sql", "console")]
"""`sql` starts Spark when a broker answers; its errors are tested in tests/spark. `console` serves until it is stopped;
its errors are tested in tests/unit/console."""

DONE_WITHOUT = (
    *("bench", "topic create", "topic list", "group list", "txn list", "txn find-hanging", "sink list"),
    *("stream list", "config list"),
    *("cluster status", "cluster health", "cluster brokers", "cluster elect"),
    *("quota set", "quota list", "quota delete"),
)
"""Commands that need no existing topic or group."""

ABOUT_SECURITY = ("acl", "user")
"""A broker without an authorizer refuses them as a whole; otherwise some of them need no existing name."""

ABOUT_A_BROKER = ("cluster drain", "cluster unregister")
"""Commands that are given the number of a broker, not a name."""

PATHS = ("FILE", "DIR", "PATH")
WRONG_NUMBERS = ("many", "", "-99999999999999999999", "99999999999999999999", "nan", "1e999", "0x10")
NOT_TEXT = b"\xff\xfe\x00\x80binary\n\x00" * 3

Answering = Callable[[bytes], str]


def failed(ended: Ended) -> str:
    """Check that a command failed with one line on stderr. Returns the line."""
    assert "Traceback" not in ended.errors
    assert ended.status in (1, 2), ended
    (line,) = ended.errors.splitlines()
    assert line.startswith("ottla"), line
    assert "internal error" not in line, line
    return line


def named(command: Command) -> str:
    return command.name


def test_a_command_that_needs_an_extra_names_it() -> None:
    missing = ModuleNotFoundError("No module named 'pyarrow'", name="pyarrow.compute")
    assert explain_error(missing) == "pyarrow is not installed, and this needs it: pip install 'ottla[spark]'"
    assert "internal error" in explain_error(ModuleNotFoundError("No module named 'x'", name="x"))


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.cli.client.REFUSED_S", 0.05)


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalBroker]:
    from ottla.testing import broker

    with broker() as local:
        yield local


@pytest.fixture
def answering() -> Iterator[Answering]:
    """A server that answers every request with the same bytes, and then closes the connection."""
    listening: list[socket.socket] = []
    threads: list[Thread] = []

    def start(answer: bytes) -> str:
        server = socket.create_server(("127.0.0.1", 0))
        listening.append(server)
        threads.append(Thread(target=_answer_all, args=(server, answer)))
        threads[-1].start()
        return f"127.0.0.1:{server.getsockname()[1]}"

    yield start
    for server in listening:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
    for thread in threads:
        thread.join()


def _answer_all(server: socket.socket, answer: bytes) -> None:
    while True:
        try:
            connection, _ = server.accept()
        except OSError:
            return
        with connection:
            try:
                connection.recv(1000)
                connection.sendall(answer)
            except OSError:
                pass


def test_every_command_is_found() -> None:
    names = {command.name for command in COMMANDS}
    assert {"up", "demo", "sql", "consume", "topic describe", "group reset", "txn abort", "log verify"} <= names
    assert set(DONE_WITHOUT) <= names


@pytest.mark.parametrize("command", CLIENTS, ids=named)
def test_no_broker_at_the_address(command: Command, hurried: None) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
    line = failed(run([*command.line(), "-b", address]))
    assert line == f"ottla: cannot connect to {address}: connection refused. Is a broker running there? (ottla up)"


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "the answer is not that of a Kafka broker"),
        (b"", "the connection was closed"),
    ],
    ids=["another protocol", "nothing"],
)
@pytest.mark.parametrize("command", CLIENTS, ids=named)
def test_something_else_at_the_address(
    command: Command, answer: bytes, said: str, answering: Answering, hurried: None
) -> None:
    address = answering(answer)
    line = failed(run([*command.line(), "-b", address]))
    assert line.startswith(f"ottla: cannot connect to {address}: {said}"), line
    assert "controller" not in line


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"\x00\x00\x00\x08\x00\x00\x00\x01\xff\xff\xff\xff", "malformed answer: "),
        (b"\x00\x00\x00\x0a\x00\x00\x00\x01\x7f\xff\x00\x00\x00\x00", "error code 32767"),
    ],
    ids=["half an answer", "an unknown error"],
)
def test_a_broker_that_answers_wrongly(answer: bytes, said: str, answering: Answering, hurried: None) -> None:
    address = answering(answer)
    line = failed(run(["topic", "list", "-b", address]))
    assert line.startswith(f"ottla: cannot connect to {address}: {said}"), line


@pytest.mark.parametrize("command", CLIENTS, ids=named)
@pytest.mark.parametrize("address", ["127.0.0.1:99999", ","])
def test_an_invalid_address(command: Command, address: str, hurried: None) -> None:
    failed(run([*command.line(), "-b", address]))


@pytest.mark.parametrize("command", choose_sample(CLIENTS, 2), ids=named)
def test_an_unknown_host(command: Command, hurried: None) -> None:
    failed(run([*command.line(), "-b", "nowhere.invalid:9092"]))  # takes seconds where no name server answers


@pytest.mark.parametrize("command", WITH_A_BROKER, ids=named)
def test_names_that_the_cluster_does_not_know(command: Command, broker: LocalBroker) -> None:
    ended = run([*command.line(), "-b", broker.bootstrap])
    if command.name in DONE_WITHOUT:
        assert (ended.status, ended.errors) == (0, "")
        main(["topic", "delete", "missing", "--if-exists", "-b", broker.bootstrap])
    elif command.name.split()[0] in ABOUT_SECURITY:
        assert ended.status == 0 or failed(ended)
    else:
        assert ("broker" if command.name in ABOUT_A_BROKER else "missing") in failed(ended)


@pytest.mark.parametrize(
    "text", ["\udcff", "a\nb", "a b", "x" * 1000, ""], ids=["bytes", "lines", "space", "long", "empty"]
)
@pytest.mark.parametrize("command", WITH_A_BROKER, ids=named)
def test_invalid_names(command: Command, text: str, broker: LocalBroker) -> None:
    # Not every such name is wrong everywhere: a group may have any name.
    for argument in command.arguments:
        if argument.option_strings or argument.choices or argument.type is not None:
            continue
        ended = run([*command.line(argument, text), "-b", broker.bootstrap])
        if ended.status or ended.errors:
            failed(ended)


def numbers() -> list[tuple[Command, argparse.Action]]:
    return [(command, each) for command in COMMANDS for each in command.arguments if each.type is not None]


@pytest.mark.parametrize(("command", "argument"), numbers(), ids=lambda each: getattr(each, "name", None) or each.dest)
def test_wrong_numbers(command: Command, argument: argparse.Action) -> None:
    for value in WRONG_NUMBERS:
        ended = run(command.line(argument, value))
        assert ended.status == 2, value
        assert (argument.option_strings or [str(argument.metavar)])[-1] in failed(ended)


def files() -> list[tuple[Command, argparse.Action]]:
    return [(command, each) for command in COMMANDS for each in command.arguments if each.metavar in PATHS]


@pytest.mark.parametrize(("command", "argument"), files(), ids=lambda each: getattr(each, "name", None) or each.dest)
def test_files_that_cannot_be_read(
    command: Command, argument: argparse.Action, broker: LocalBroker, tmp_path: Path
) -> None:
    broker.create_topic(f"files-{command.name}-{argument.dest}".replace(" ", "-"))
    binary = tmp_path / "binary"
    binary.write_bytes(NOT_TEXT)
    (tmp_path / "directory").mkdir()
    wrong = [str(tmp_path / "none"), str(binary / "within a file"), "/dev/null/x"]
    if argument.metavar == "FILE":
        wrong.append(str(tmp_path / "directory"))
    if argument.dest != "files":  # any bytes are valid records
        wrong.append(str(binary))
    for path in wrong:
        if argument.dest == "data" and path.endswith("none"):
            continue  # a broker creates its directory
        line = [
            word.replace("missing", f"files-{command.name}-{argument.dest}") for word in command.line(argument, path)
        ]
        bootstrap = ["-b", broker.bootstrap] if command.takes_bootstrap else []
        assert path in failed(run([*line, *bootstrap])), path


@pytest.mark.parametrize("command", WITH_A_BROKER, ids=named)
def test_input_that_is_no_text(command: Command, broker: LocalBroker) -> None:
    """Commands that read standard input report what is wrong with it; the others ignore it."""
    for argument in command.arguments:
        if argument.metavar == "FILE" and argument.dest != "command_config":  # settings are no input
            name = f"input-{command.name.replace(' ', '-')}-{argument.dest}"
            broker.create_topic(name)
            line = [word.replace("missing", name) for word in command.line(argument, "-")]
            if command.name == "produce":
                line += ["--format", "json"]
            assert "standard input" in failed(run([*line, "-b", broker.bootstrap], NOT_TEXT))


CLOSED_OUTPUT = """
import json, os, sys
from ottla.cli import main
statuses = {}
for name, line in json.load(sys.stdin).items():
    reader, writer = os.pipe()
    os.close(reader)
    sys.stdout = os.fdopen(writer, "w")
    try:
        statuses[name] = main(line)
    except SystemExit as left:
        statuses[name] = left.code
    sys.stdout.close()
print(json.dumps(statuses), file=sys.stderr)
"""


def test_a_closed_output_pipe(broker: LocalBroker) -> None:
    # Every command that prints something runs in one child process, with a closed pipe, which is no error.
    broker.create_topic("printed")
    lines = {
        command.name: [*(word.replace("missing", "printed") for word in command.line()), "-b", broker.bootstrap]
        for command in WITH_A_BROKER
        if command.name in {*DONE_WITHOUT, "topic describe", "config get", "topic trim"} - {"quota delete"}
    }
    lines |= {"completion": ["completion", "bash"], "log dump": ["log", "dump", broker.directory]}
    lines["topic create"][2] = "another"
    ended = subprocess.run(
        [sys.executable, "-c", CLOSED_OUTPUT],
        input=json.dumps(lines),
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
    )
    (line,) = ended.stderr.splitlines()
    assert json.loads(line) == dict.fromkeys(lines, 0)


def test_a_bug_is_one_line_and_a_traceback_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(options: argparse.Namespace) -> int:
        raise KeyError("nothing")

    monkeypatch.setattr("ottla.cli.completion.run", fail)
    ended = run(["completion", "bash"])
    assert ended == (1, "", "ottla: internal error: KeyError: 'nothing' (OTTLA_TRACEBACK=1 shows where)\n")
    monkeypatch.setenv("OTTLA_TRACEBACK", "1")
    ended = run(["completion", "bash"])
    assert ended.errors.startswith("Traceback (most recent call last):\n")
    assert ended.errors.endswith("\nottla: internal error: KeyError: 'nothing' (OTTLA_TRACEBACK=1 shows where)\n")
