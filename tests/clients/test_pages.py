"""The pages about starting and about the clients: their programs and commands run, and print what the pages say."""

import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

import ottla.testing
from ottla.cli import COMMANDS, command_parser
from ottla.cli.ports import pick_port
from ottla.testing import LocalBroker
from ottla.testing import broker as local_broker
from tests import excuses
from tests.clients.command_server import CommandServer
from tests.clients.test_command_line import CommandLine, examples
from tests.needs import require_program
from tests.pages import ROOT, fits, list_blocks, run_programs
from tests.patience import PATIENCE_S

DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def shared() -> Iterator[LocalBroker]:
    """One broker for all pages; their topics have different names."""
    with local_broker(group_initial_rebalance_delay_ms=0) as running:
        yield running


def test_the_programs_of_the_producer_page(shared: LocalBroker, tmp_path: Path) -> None:
    run_programs(DOCS / "producer.md", tmp_path, shared.bootstrap)


def test_the_programs_of_the_admin_page(shared: LocalBroker, tmp_path: Path) -> None:
    run_programs(DOCS / "admin.md", tmp_path, shared.bootstrap)


def test_the_programs_of_the_consumer_page(shared: LocalBroker, tmp_path: Path) -> None:
    # The last of them kills itself at a record, once in each of three ways, and prints what the page says.
    page = DOCS / "consumer.md"
    run_programs(page, tmp_path, shared.bootstrap)
    promised = dict(
        re.findall(r"^\| `([a-z]+-[a-z]+-once|exactly-once)` \| `([\d ]+)` \|", page.read_text(), re.MULTILINE)
    )
    assert list(promised) == ["at-most-once", "at-least-once", "exactly-once"]
    for run, wanted in (("killed", dict.fromkeys(promised, "")), ("whole", promised)):
        children = {mode: start_program(tmp_path, "deliver.py", mode) for mode in promised}
        printed = {mode: child.communicate(timeout=PATIENCE_S)[0].strip() for mode, child in children.items()}
        assert printed == wanted, run
        status = -signal.SIGKILL if run == "killed" else 0
        assert {child.returncode for child in children.values()} == {status}


def start_program(directory: Path, *arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen([sys.executable, *arguments], cwd=directory, stdout=subprocess.PIPE, text=True)


def test_the_start_page(tmp_path: Path, commands: CommandServer) -> None:
    # A broker and a console as processes. The command line, the page for the browser and Python see the records.
    ports = {"9092": str(pick_port()), "9280": str(pick_port())}
    page = tmp_path / "start.md"
    page.write_text(replace_ports((DOCS / "start.md").read_text(), ports))
    ottla = CommandLine(f"localhost:{ports['9092']}", tmp_path, commands)
    ottla.environment["XDG_DATA_HOME"] = str(tmp_path / "data")
    start, *steps = examples(page)
    with started(ottla, f"{start[0]} {ports['9280']} --port {ports['9092']}", start[1]):
        for command, expected in steps:
            if "activate" not in command:
                assert ottla.shell(command).splitlines() == expected, command
        with urlopen(f"http://localhost:{ports['9280']}/topics/greetings/records", timeout=PATIENCE_S) as answer:
            shown = answer.read().decode()
        assert ">hello<" in shown
        assert ">Follow live<" in shown
        run_programs(page, tmp_path, f"localhost:{ports['9092']}")


def replace_ports(text: str, ports: dict[str, str]) -> str:
    for name, port in ports.items():
        text = text.replace(f":{name}", f":{port}")
    return text


@contextmanager
def started(ottla: CommandLine, command: str, expected: list[str]) -> Iterator[None]:
    """A command that runs until the block ends, when it has printed the expected lines."""
    words = ["bash", "-c", f"exec {command}"]
    child = subprocess.Popen(words, cwd=ottla.directory, env=ottla.environment, stdout=subprocess.PIPE, text=True)
    with child:
        try:
            assert child.stdout is not None
            for wanted in expected:
                assert fits(child.stdout.readline().rstrip("\n"), wanted)
            yield
        finally:
            child.terminate()
            child.wait(PATIENCE_S)


def test_the_commands_for_people_from_kafka_exist() -> None:
    page = (DOCS / "coming-from-kafka.md").read_text()
    commands = [shlex.split(line)[1:] for line in re.findall(r"`(ottla [^`]+)`", page)]
    assert len(commands) > 15
    for arguments in commands:
        command_parser(COMMANDS).parse_args(arguments)


def test_the_site_has_every_page() -> None:
    listed = re.findall(r": ([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md"))


def test_the_short_commands_of_other_pages(tmp_path: Path, commands: CommandServer) -> None:
    # Those blocks that tests/excuses.py gives to this test, one after the other at one new broker.
    require_program("bash")
    ran = []
    with local_broker(group_initial_rebalance_delay_ms=0) as fresh:
        line_of = CommandLine(fresh.bootstrap, tmp_path, commands)
        for name, table in excuses.BLOCKS.items():
            begins = [each for each, test in table.items() if test == excuses.SHORT_BLOCKS]
            for block in list_blocks((ROOT / name).read_text()) if begins else ():
                for line in block.text.splitlines() if block.text.startswith(tuple(begins)) else ():
                    if not line.startswith(tuple(excuses.LINES)):
                        printed = line_of.shell(f"set -eo pipefail\n{line}\necho ok")
                        assert printed.endswith("ok\n"), f"{line}\n{printed}"
                        ran.append(line)
    assert len(ran) > 12


def test_the_programs_of_the_testing_page() -> None:
    # At a broker of its own, whose clock they move.
    page = list_blocks((DOCS / "testing.md").read_text())
    begins = [each for each, test in excuses.BLOCKS["docs/testing.md"].items() if test == excuses.TESTING]
    chosen = [block.text for block in page if block.text.startswith(tuple(begins))]
    assert len(chosen) == 5
    with local_broker() as disturbed:
        names: dict[str, Any] = {"broker": disturbed}
        for program in chosen:
            exec(program, names)
        for function in ("test_orders_are_sent", "test_orders_are_sent_securely"):
            names[function]()


def test_the_programs_of_the_reading_page(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pandas")
    (program,) = (b.text for b in list_blocks((DOCS / "reading.md").read_text()) if b.text.startswith("import ottla\n"))
    with local_broker() as fresh:
        fresh.create_topic("orders")
        fresh.create_topic("refunds")
        monkeypatch.setattr(ottla, "read", partial(ottla.read, bootstrap=fresh.bootstrap))
        exec(program.replace("localhost:9092", fresh.bootstrap), {})
