"""A broker in a child process, told what to do over a pipe.

Both directions carry JSON, one line per message. The first line is the launch. Then, one at a time:

    to the child      ["advance", 1000]
    from the child    {"result": ...}   or   {"error": "what went wrong"}

The child is __main__.py. It ends when its standard input does, so it never outlives the test.
"""

import json
import os
import selectors
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import IO, Any

from ottla.testing.launch import PATIENCE_S, FaultOrder, Launch


class ChildFailure(RuntimeError):
    """The child could not do what it was told, or is not there any more."""


class BrokerProcess:
    """Started by its constructor, which returns when the broker accepts connections."""

    def __init__(self, launch: Launch) -> None:
        command = [sys.executable, "-P", "-m", "ottla.testing"]
        self._child = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},  # ottla is where we found it
            start_new_session=True,  # Ctrl-C is for the test; the child ends with it
            text=True,
        )
        try:
            self.ports: Mapping[str, int] = self._exchange(launch._asdict())
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        try:
            self._tell("stop")
            self._child.wait(PATIENCE_S)
        finally:
            self.kill()

    def kill(self) -> None:
        self._child.kill()
        self._child.wait()
        for pipe in (self._child.stdin, self._child.stdout):
            assert pipe is not None
            with suppress(BrokenPipeError):  # a message that the child did not live to read
                pipe.close()

    def add_fault(self, order: FaultOrder) -> None:
        self._tell("add_fault", order)

    def clear_faults(self) -> None:
        self._tell("clear_faults")

    def advance(self, ms: int) -> None:
        self._tell("advance", ms)

    def copy_data(self, target: str) -> None:
        self._tell("copy_data", target)

    def _tell(self, *message: Any) -> None:
        self._exchange(message)

    def _exchange(self, message: Any) -> Any:
        requests, replies = self._child.stdin, self._child.stdout
        assert requests is not None and replies is not None
        try:
            requests.write(json.dumps(message) + "\n")
            requests.flush()
        except BrokenPipeError:
            raise ChildFailure("the broker's process has ended") from None
        if not _readable(replies):
            raise ChildFailure(f"no answer from the broker's process in {PATIENCE_S:.0f} s")
        line = replies.readline()
        if not line:
            raise ChildFailure("the broker's process has ended")
        reply = json.loads(line)
        if "error" in reply:
            raise ChildFailure(reply["error"])
        return reply["result"]


def _readable(pipe: IO[str]) -> bool:
    """Whether something comes in time. Not select(), which fails in a process with a thousand open files."""
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        return bool(selector.select(PATIENCE_S))
