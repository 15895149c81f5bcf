"""The tool server when it cannot run: callers get an error at once, and can run the tool without it."""

import subprocess
from pathlib import Path

import pytest

from benchmarks.peers.tool_server import ToolServer, Unanswered


def server_of(directory: Path, script: str) -> ToolServer:
    """A tool server whose `java` is a shell script."""
    (directory / "kafka-tools-1.jar").touch()
    java = directory / "java"
    java.write_text(f"#!/bin/sh\n{script}\n")
    java.chmod(0o755)
    return ToolServer(str(java), (), directory)


def test_a_java_that_cannot_run_a_source_file_is_reported(tmp_path: Path) -> None:
    server = server_of(tmp_path, "exit 1")
    for _ in range(2):
        with pytest.raises(Unanswered):
            server.run(["a.Tool"], "", 20)
    server.close()


def test_a_tool_that_hangs_ends_with_its_server(tmp_path: Path) -> None:
    server = server_of(tmp_path, "exec sleep 60")
    with pytest.raises(subprocess.TimeoutExpired):
        server.run(["a.Tool", "--forever"], "", 0.05)
    with pytest.raises(Unanswered):
        server.run(["a.Tool"], "", 20)


def test_the_output_of_a_tool_is_returned(tmp_path: Path) -> None:
    # The answer has the status, stdout and stderr.
    server = server_of(tmp_path, r"head -c 23 > /dev/null; printf '\0\0\0\2\0\0\0\3out\0\0\0\1e'; exec sleep 60")
    try:
        assert server.run(["a.Tool", "x"], "in", 20) == (2, "out", "e")
    finally:
        server.close()
