"""Runs a broker in a child process and controls it over pipes.

Messages in both directions are lines of JSON. The first line to the child is the `Launch`. After it come commands, each
of which waits for the reply to the one before:

    to the child      ["advance", 1000]
    from the child    {"result": ...}   or   {"error": "what went wrong"}

The child is __main__.py. It ends when its standard input does, so it never outlives the test.
"""

import json
import os
import selectors
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import IO, Any

from ottla.testing.launch import PATIENCE_S, FaultOrder, Launch, NetworkState


class ChildFailure(RuntimeError):
    """The child could not execute a command, or has ended."""


class BrokerProcess:
    """A running broker. The constructor starts it and returns when it accepts connections."""

    def __init__(self, launch: Launch) -> None:
        command = [sys.executable, "-P", "-m", "ottla.testing"]
        self._child = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},  # same ottla
            start_new_session=True,  # Ctrl-C goes to the test only; the child ends with the test
            text=True,
        )
        try:
            self.ports: Mapping[str, int] = self._exchange(launch._asdict())
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        try:
            self._send_command("stop")
            self._child.wait(PATIENCE_S)
        finally:
            self.kill()

    def kill(self) -> None:
        self._child.kill()
        self._child.wait()
        for pipe in (self._child.stdin, self._child.stdout):
            assert pipe is not None
            with suppress(BrokenPipeError):  # the child ended before it read the last message
                pipe.close()

    def pause(self) -> None:
        self._child.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._child.send_signal(signal.SIGCONT)

    def set_network(self, state: NetworkState) -> None:
        """Make the cuts of the cluster's network those of `state`."""
        self._send_command("set_network", state)

    def ask(self, question: str, *arguments: Any) -> Any:
        return self._exchange(["ask", question, *arguments])

    def add_fault(self, order: FaultOrder) -> None:
        self._send_command("add_fault", order)

    def clear_faults(self) -> None:
        self._send_command("clear_faults")

    def advance(self, ms: int) -> None:
        self._send_command("advance", ms)

    def copy_data(self, target: str) -> None:
        self._send_command("copy_data", target)

    def _send_command(self, *message: Any) -> None:
        self._exchange(message)

    def _exchange(self, message: Any) -> Any:
        requests, replies = self._child.stdin, self._child.stdout
        assert requests is not None and replies is not None
        try:
            requests.write(json.dumps(message) + "\n")
            requests.flush()
        except BrokenPipeError:
            raise ChildFailure("the broker's process has ended") from None
        if not _wait_until_readable(replies):
            raise ChildFailure(f"no answer from the broker's process in {PATIENCE_S:.0f} s")
        line = replies.readline()
        if not line:
            raise ChildFailure("the broker's process has ended")
        reply = json.loads(line)
        if "error" in reply:
            raise ChildFailure(reply["error"])
        return reply["result"]


def _wait_until_readable(pipe: IO[str]) -> bool:
    """Waits for input; returns whether it came in time. select() would fail for descriptors above 1023."""
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        return bool(selector.select(PATIENCE_S))
