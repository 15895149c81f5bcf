"""What the console offers to copy runs as it is: the commands of `ottla`, and the programs in Python."""

import contextlib
import io
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import ottla.testing
from ottla.cli import main
from ottla.console.console import Console, Options
from ottla.console.snippets import Copies, variable_of
from ottla.testing import LocalBroker
from tests.unit.console.conftest import now_ms, patient
from tests.unit.console.copied import GROUP, TOPIC, WRITTEN, make_copies
from tests.unit.console.seeding import commit, make_topic, put

EXPECTED = {
    "cluster": "127.0.0.1",
    "broker": "log.retention.hours",
    "topics": TOPIC,
    "topic": "1",
    "settings": "retention.ms",
    "groups": GROUP,
    "group": TOPIC,
    "topic groups": "4",
    "newest": "it's [5]",
    "oldest": "it's [0]",
    "offset": "it's [2]",
    "time": "it's [0]",
    "search": "it's [5]",
    "search in keys": "it's [0]",
    "pattern": "it's [4]",
    "access": "User:ann",
}
"""What each view shows, in every form."""
UNSEEN = {"oldest": "it's [5]", "offset": "it's [1]", "search": "it's [4]", "pattern": "it's [3]"}


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalBroker]:
    """With logins, so that the copies must find a password."""
    with ottla.testing.broker(security="sasl_plaintext", acls=True) as local:
        yield local


@pytest.fixture(scope="module")
def copies(broker: LocalBroker) -> Iterator[dict[str, Copies]]:
    from ottla.console.facts.access import Acl, create_acl

    console = Console(Options({**patient(broker.bootstrap), **broker.client_settings}), now_ms, time.monotonic)
    make_topic(console, TOPIC)
    make_topic(console, WRITTEN)
    put(console, TOPIC, [b"it's [%d]" % number for number in range(6)], key=b"k", time=now_ms())
    commit(console, GROUP, TOPIC, {0: 2})
    with console.clients.borrow() as client:
        create_acl(client, Acl(2, "t", 3, "User:ann", "*", 3, 3))
    yield make_copies(console.options)
    console.close()


@pytest.fixture(scope="module")
def environment(broker: LocalBroker) -> dict[str, str]:
    """The password is where every copy looks for it."""
    secret = {variable_of("sasl.password"): broker.client_settings["sasl.password"]}
    kept = {name: value for name, value in os.environ.items() if not name.startswith("OTTLA_CLIENT")}
    return {**kept, **secret, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


def text_of(copies: Copies, form: str) -> str:
    return next(copy.text for copy in copies if copy.name == form)


def check(view: str, printed: str) -> None:
    assert EXPECTED.get(view, "") in printed, (view, printed)
    if view in UNSEEN:
        assert UNSEEN[view] not in printed, (view, printed)


def test_programs_in_python_run(
    copies: dict[str, Copies], environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    for view in copies:
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(text_of(copies[view], "Python"), view, "exec"), {"__name__": view})
        check(view, printed.getvalue())


def test_commands_run(
    copies: dict[str, Copies],
    environment: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    # In this process, since each start of Python takes a while; pipes in a shell.
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    for view in copies:
        command = text_of(copies[view], "ottla")
        if "|" in command:
            shell = ["bash", "-eo", "pipefail", "-c", command]
            printed = subprocess.run(shell, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout
        else:
            for line in command.splitlines():
                assert main(shlex.split(line)[1:]) == 0, capsys.readouterr()
            printed = capsys.readouterr().out
        check(view, printed)
