"""ZooKeeper of `ottla cluster up` on a machine that is short of something. tests/cluster starts whole clusters."""

import errno
import subprocess
from pathlib import Path
from typing import NoReturn

import pytest

from ottla.cli import main
from ottla.cli.cluster import local, zookeeper_server
from ottla.cli.cluster.zookeeper_server import ZooKeeperServer
from ottla.cli.command_error import USAGE_ERROR, CommandError
from ottla.cli.interruption import Interruption


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "/zookeeper.log"), "/zookeeper.log: No space left on device"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "Cannot allocate memory"),
    ],
)
def test_brokers_go_on_without_a_zookeeper_that_cannot_be_started_again(
    error: OSError,
    reason: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail() -> NoReturn:
        raise error

    server = ZooKeeperServer(tmp_path)
    monkeypatch.setattr(server, "launch", fail)
    with Interruption() as interruption:
        local._start_again(server, interruption)
    _, said = capsys.readouterr().out.splitlines()
    assert said.startswith(f"ZooKeeper cannot be started again: {reason}. The brokers go on without it")


def test_files_that_are_there_are_not_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zookeeper_server, "find_java", lambda: "java")
    monkeypatch.setattr(zookeeper_server, "find_classpath", lambda: "zookeeper.jar")
    monkeypatch.setattr(subprocess, "Popen", lambda *arguments, **options: None)
    server = ZooKeeperServer(tmp_path)
    server.launch()
    number, configuration = tmp_path / "data" / "myid", tmp_path / "zoo.cfg"
    assert number.read_text() == "1\n" and f"clientPort={server.port}\n" in configuration.read_text()

    def fail(path: Path, text: str) -> NoReturn:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_text", fail)
    server.launch()
    number.unlink()
    with pytest.raises(CommandError, match=f"^cannot write {number}: No space left on device$"):
        server.launch()


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("--set=-x=1", "unknown setting '-x'"),
        ("--host=-x", "PLAINTEXT://-x:9092"),
        ("--zookeeper=-x:port", "zookeeper.connect"),
    ],
)
def test_a_value_that_begins_with_a_hyphen_is_refused_by_its_name(
    option: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"
    assert main(["cluster", "up", option, "--data", str(data)]) == USAGE_ERROR
    printed = capsys.readouterr().err
    assert said in printed and printed.count("\n") == 1
    assert not data.exists()


def test_a_zookeeper_that_ends_at_its_start_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = tmp_path / "java"
    java.write_text(
        "#!/bin/sh\nprintf 'starting\\njava.io.IOException: No space left on device\\n\\tat Main.java\\n'\nexit 1\n"
    )
    java.chmod(0o755)
    monkeypatch.setattr(zookeeper_server, "find_java", lambda: str(java))
    monkeypatch.setattr(zookeeper_server, "find_classpath", lambda: "zookeeper.jar")
    server = ZooKeeperServer(tmp_path / "data")
    with pytest.raises(CommandError) as refusal:
        server.start()
    reason = "java.io.IOException: No space left on device"
    assert str(refusal.value) == f"ZooKeeper ended while it was starting: {reason} ({server.log})"
