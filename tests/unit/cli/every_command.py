"""Every command of `ottla`, found in its parser, with the arguments that it needs to run at all."""

import argparse
import io
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from typing import NamedTuple

from ottla.cli import COMMANDS, command_parser, main

MISSING = "missing"
"""The value for every name of a topic, group, query or transactional id, and for every text without a format."""

VALUES = {
    "SCHEMA": "a INT",
    "TIME": "1h",
    "KEY=VALUE": "a=b",
    "NAME=VALUE": "a=b",
    "REGEX": "a",
    "QUOTA=VALUE": "producer_byte_rate=1000000000",
    "QUOTA": "producer_byte_rate",
}
"""Values for arguments that need a format, by their names in the parser."""

FURTHER = {
    "topic alter": ("--partitions", "2"),
    "config set": ("a=b",),
    "config delete": ("--all",),
    "group reset": ("--topic", MISSING),
    "bench": ("--seconds", "0.1"),
    "acl add": ("--topic", MISSING, "--operation", "read"),
    "acl remove": ("--all",),
    "quota set": ("--user", MISSING),
    "quota delete": ("--user", MISSING),
    "user create": ("--generate",),
    "user alter": ("--generate",),
    "consume": (MISSING,),
}
"""Options that a command needs although its parser does not say so, or that let it end soon."""


class Ended(NamedTuple):
    status: int
    output: str
    errors: str


class Command:
    def __init__(self, words: tuple[str, ...], parser: argparse.ArgumentParser) -> None:
        self.name = " ".join(words)
        self._words = words
        self._parser = parser
        self.arguments = [action for action in parser._actions if action.dest != "help"]
        """Options and positional arguments."""

    @property
    def takes_bootstrap(self) -> bool:
        return any(argument.dest == "bootstrap" for argument in self.arguments)

    def line(self, chosen: argparse.Action | None = None, value: str = "") -> list[str]:
        """The words of the command line. The chosen argument has this value."""
        typed = [*self._words]
        for argument in self.arguments:
            if argument is chosen and not argument.option_strings:
                typed.append(value)
            elif not argument.option_strings and argument.nargs != "*":
                typed.append(_value(argument))
        needed = [argument for argument in self.arguments if argument.option_strings and argument.required]
        for group in self._parser._mutually_exclusive_groups:
            if group.required and chosen not in group._group_actions:
                needed.append(group._group_actions[0])
        for argument in needed:
            if argument is not chosen:
                typed += [argument.option_strings[-1], *([] if argument.nargs == 0 else [_value(argument)])]
        typed += FURTHER.get(self.name, ())
        if chosen is not None and chosen.option_strings:
            typed.append(f"{chosen.option_strings[-1]}={value}")
        return typed


def every_command() -> list[Command]:
    return [Command(words, parser) for words, parser in _leaves()]


def _leaves() -> Iterator[tuple[tuple[str, ...], argparse.ArgumentParser]]:
    waiting: list[tuple[tuple[str, ...], argparse.ArgumentParser]] = [((), command_parser(COMMANDS))]
    while waiting:
        words, parser = waiting.pop(0)
        inner = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
        if not inner:
            yield words, parser
        for action in inner:
            waiting += [((*words, name), each) for name, each in action.choices.items()]


def _value(argument: argparse.Action) -> str:
    if argument.choices:
        return str(next(iter(argument.choices)))
    return "1" if argument.type is not None else VALUES.get(str(argument.metavar), MISSING)


def run(line: list[str], standard_input: bytes = b"") -> Ended:
    """Run a command in this process."""
    output, errors = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True), io.StringIO()
    kept, sys.stdin = sys.stdin, io.TextIOWrapper(io.BytesIO(standard_input), encoding="utf-8")
    try:
        with redirect_stdout(output), redirect_stderr(errors):
            try:
                status = main(line)
            except SystemExit as left:
                status = int(left.code or 0)
    finally:
        sys.stdin = kept
    written = output.buffer
    assert isinstance(written, io.BytesIO)
    return Ended(status, written.getvalue().decode(errors="replace"), errors.getvalue())
