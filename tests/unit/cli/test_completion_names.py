"""Completion of names: real shells ask a real broker what they could offer, and get nothing, soon, if there is none."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

import ottla.testing
from ottla.cli import COMMANDS, command_parser, main
from ottla.cli.completion import SCRIPTS, commands_of
from ottla.cli.completion_names import COMPLETE, LIMIT_S, find_names, read_limit, split_line
from ottla.cli.ports import pick_port
from ottla.testing import LocalBroker
from tests.needs import require_program
from tests.patience import PATIENCE_S
from tests.unit.connect.rest.conftest import serve

ROOT = Path(__file__).parents[3]
TOPICS = ["orders", "orders-late", "payments"]
ODD_GROUP = "a group: b"

BASH = """
source "$1"; line="$2"
COMP_WORDS=($line); [[ $line == *" " ]] && COMP_WORDS+=("")
COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); COMP_LINE="$line"; COMP_POINT=${#line}
_ottla
printf '%s\\n' "${COMPREPLY[@]}"
"""
ZSH = """
compdef() { :; }
_files() { print -- FILES }
_describe() { :; }
compadd() { [[ $1 == -a ]] && print -l -- ${(P)2} || print -l -- ${@:2} }
source $1
words=(${(z)2}); [[ $2 == *" " ]] && words+=("")
CURRENT=$#words; PREFIX=$words[CURRENT]
_ottla
"""
FISH = "source $argv[1]; complete -C $argv[2]"


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalBroker]:
    with ottla.testing.broker(group_initial_rebalance_delay_ms=0) as running:
        for topic in TOPICS:
            running.create_topic(topic)
        for group in ("readers", ODD_GROUP):
            client = Consumer({"bootstrap.servers": running.bootstrap, "group.id": group})
            client.commit(offsets=[TopicPartition("orders", 0, 0)], asynchronous=False)
            client.close()
        yield running


@pytest.fixture
def here(broker: LocalBroker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> LocalBroker:
    """The broker as that of the environment."""
    monkeypatch.setenv("OTTLA_BOOTSTRAP", broker.bootstrap)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return broker


Offer = Callable[[str], list[str]]


@pytest.fixture(params=["bash", "zsh", "fish"])
def shell(request: pytest.FixtureRequest, tmp_path: Path, here: LocalBroker) -> Offer:
    """What a shell offers for a line that is being typed."""
    name: str = request.param
    require_program(name)
    script = tmp_path / "script"
    script.write_text(SCRIPTS[name](list(commands_of(command_parser(COMMANDS)))))
    program = tmp_path / "ottla"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m ottla "$@"\n')
    program.chmod(0o755)
    paths = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT / "src"), "HOME": str(tmp_path)}
    words = {
        "bash": ["bash", "-c", BASH, "ask"],
        "zsh": ["zsh", "-f", "-c", ZSH, "ask"],
        "fish": ["fish", "--no-config", "-c", FISH],
    }

    def offer(line: str) -> list[str]:
        done = subprocess.run(
            [*words[name], str(script), line],
            env={**os.environ, **paths, "OTTLA_COMPLETION_SECONDS": "60"},
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        assert done.stderr == ""
        return [word.partition("\t")[0] for word in done.stdout.splitlines() if word]

    return offer


def test_shells_offer_names(shell: Offer, here: LocalBroker) -> None:
    assert shell("ottla topic describe ") == TOPICS
    assert shell("ottla consume orders or") == ["orders", "orders-late"]
    assert shell("ottla group describe r") == ["readers"]
    assert shell("ottla consume orders --group r") == ["readers"]
    assert shell(f"ottla topic delete -b {here.bootstrap} pay") == ["payments"]


def test_shells_offer_what_fits_the_place(shell: Offer) -> None:
    assert shell("ottla config get bro") == ["broker", "broker-logger"]
    assert shell("ottla config get topic pay") == ["payments"]
    assert shell("ottla config get topic payments retention.m") == ["retention.ms"]
    assert not set(shell("ottla produce payments o")) & set(TOPICS)  # files
    assert not set(shell("ottla topic create o")) & set(TOPICS)


def test_shells_offer_connectors(shell: Offer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the worker that the line, or OTTLA_CONNECT, names; nothing where no worker answers."""
    with serve({}) as worker:
        worker.create("lines")
        worker.create("links")
        worker.create("orders to files")
        url = f"http://127.0.0.1:{worker.port}"
        assert shell(f"ottla connect status --url {url} li") == ["lines", "links"]
        monkeypatch.setenv("OTTLA_CONNECT", url)
        assert shell("ottla connect pause l") == ["lines", "links"]
        assert shell("ottla connect delete o")[0].replace("\\", "") == "orders to files"
        assert not set(shell("ottla connect create l")) & {"lines", "links"}
    assert not set(shell(f"ottla connect status --url http://127.0.0.1:{pick_port()} ")) & {"lines", "links"}


def test_shells_offer_nothing_without_a_broker(shell: Offer, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not set(shell(f"ottla topic describe -b 127.0.0.1:{pick_port()} ")) & set(TOPICS)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("ottla topic describe ", TOPICS),
        ("ottla topics show o", ["orders", "orders-late"]),
        ("/usr/bin/ottla topic trim pay", ["payments"]),
        ("ottla topic describe orders payments ", TOPICS),
        ("ottla topic trim orders ", []),
        ("ottla topic describe __co", ["__consumer_offsets"]),
        ("ottla consume --last 3 --format json p", ["payments"]),
        ("ottla group reset readers --topic ord", ["orders", "orders-late"]),
        ("ottla group reset readers --topic=ord", ["orders", "orders-late"]),
        ("ottla group describe 'a gr", [ODD_GROUP]),
        ("ottla bench --topic pay", ["payments"]),
        ("ottla config set topic orders cleanup", ["cleanup.policy"]),
        ("ottla config get group ", [ODD_GROUP, "readers"]),
        ("ottla config get broker ", ["1"]),
        ("ottla config set user alice producer", ["producer_byte_rate"]),
        ("ottla cluster drain ", ["1"]),
        ("ottla produce orders --acks ", ["0", "1", "all"]),
        ("ottla produce orders x", []),
        ("ottla topic create o", []),
        ("ottla topic ", []),
        ("ottla topic", []),
        ("ottla nothing o", []),
        ("ottla", []),
        ("", []),
    ],
)
def test_which_names_fit(here: LocalBroker, line: str, expected: list[str]) -> None:
    assert find_names(line) == expected


def test_names_that_are_kept_on_this_machine(here: LocalBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["profile", "create", "laptop", "--bootstrap", here.bootstrap]) == 0
    monkeypatch.setenv("OTTLA_BOOTSTRAP", f"127.0.0.1:{pick_port()}")
    assert find_names("ottla profile use l") == ["laptop"]
    assert find_names("ottla topic list --profile ") == ["laptop"]
    assert find_names("ottla topic describe --profile laptop pay") == ["payments"]
    assert find_names("ottla profile create l") == []


def test_users_of_the_cluster(here: LocalBroker, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["user", "create", "alice", "--generate"]) == 0
    assert find_names("ottla user delete a") == ["alice"]
    assert find_names("ottla quota set --user a") == ["alice"]
    assert find_names("ottla user create a") == []


def ask(line: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), **variables}
    return subprocess.run(
        [sys.executable, "-m", "ottla", COMPLETE, line],
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )


def test_a_broker_that_never_answers_ends_the_process() -> None:
    # The listener accepts and says nothing: the process is ended by its own alarm, and prints nothing.
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        done = ask(f"ottla topic describe -b {address} ", OTTLA_COMPLETION_SECONDS="0.5")
    assert (done.stdout, done.stderr) == ("", "")


@pytest.mark.parametrize("line", ["ottla topic describe -b nonsense ", "ottla topic describe --profile none ", ""])
def test_failures_print_nothing(line: str) -> None:
    done = ask(line, OTTLA_COMPLETION_SECONDS="60")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("text", "expected"), [("2.5", 2.5), ("", LIMIT_S), ("no", LIMIT_S), ("0", LIMIT_S), ("1e9", LIMIT_S)]
)
def test_the_limit(text: str, expected: float) -> None:
    assert read_limit({"OTTLA_COMPLETION_SECONDS": text}) == expected


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("a b", ["a", "b"]),
        ("a b ", ["a", "b", ""]),
        ("a 'b c", ["a", "b c"]),
        ('a "b c ', ["a", "b c "]),
        ("", []),
    ],
)
def test_words_of_a_line(line: str, words: list[str]) -> None:
    assert split_line(line) == words
