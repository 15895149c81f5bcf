"""Writes docs/reference/commands.md from the parser of `ottla`: every command with its arguments and options.

python tools/write_commands.py         # writes the page; a test fails when it is out of date
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

from ottla.cli import COMMANDS, command_parser
from ottla.cli.client_settings import add_client_arguments

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "commands.md"

INTRODUCTION = """\
# Commands

Every command of `ottla` with its arguments and options, as `--help` prints them.
[The command line](../command-line.md) explains the commands with examples.

```sh
ottla --help
ottla topic create --help
```

Exit status 0 means success, 1 a failure, 2 a usage error.

Commands that talk to a cluster have these options too:
"""

SHARED = argparse.ArgumentParser(add_help=False)
"""Has the options of all commands that talk to a cluster. They are listed once."""
add_client_arguments(SHARED)


def build_page() -> str:
    parser = command_parser(COMMANDS)
    lines = [INTRODUCTION, "| option | what it does |", "|---|---|"]
    lines += [_build_row(SHARED, action) for action in SHARED._actions]
    lines += ["", "| command | what it does |", "|---|---|"]
    lines += [f"| [`ottla {name}`](#ottla-{name}) | {purpose} |" for name, purpose in COMMANDS.items()]
    for name, command in _find_commands(parser).items():
        lines += ["", f"## ottla {name}", "", *_describe(command, level=3)]
    return "\n".join(lines) + "\n"


def _describe(parser: argparse.ArgumentParser, level: int) -> Iterator[str]:
    yield (parser.description or "").strip()
    rows = list(_list_rows(parser))
    if rows:
        yield from ("", "| argument | what it does |", "|---|---|", *rows)
    for name, command in _find_commands(parser).items():
        yield from ("", f"{'#' * level} {parser.prog} {name}", "", *_describe(command, min(level + 1, 6)))


def _find_commands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The commands below a parser, by name; an alias is not listed again."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            unique = {id(command): (name, command) for name, command in reversed(list(action.choices.items()))}
            return dict(reversed(list(unique.values())))
    return {}


def _list_rows(parser: argparse.ArgumentParser) -> Iterator[str]:
    for action in parser._actions:
        left_out = action.help == argparse.SUPPRESS or _is_shared(action)
        if not left_out and not isinstance(action, argparse._HelpAction | argparse._SubParsersAction):
            yield _build_row(parser, action)


def _is_shared(action: argparse.Action) -> bool:
    return any((action.option_strings, action.help) == (other.option_strings, other.help) for other in SHARED._actions)


def _build_row(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    names = ", ".join(f"`{name}`" for name in action.option_strings) or f"`{_name(action)}`"
    if action.option_strings and action.nargs != 0:
        names += f" `[{_name(action)}]`" if action.nargs == "?" else f" `{_name(action)}`"
    text = parser._get_formatter()._expand_help(action) if action.help else ""
    return f"| {_escape(names)} | {_escape(' '.join(text.split()))} |"


def _escape(cell: str) -> str:
    return cell.replace("|", "\\|").replace("<", "&lt;")


def _name(action: argparse.Action) -> str:
    if action.metavar is not None:
        return action.metavar if isinstance(action.metavar, str) else " ".join(action.metavar)
    if action.choices is not None:
        return " or ".join(str(choice) for choice in action.choices)
    return action.dest.upper().replace("_", "-") if action.option_strings else action.dest


if __name__ == "__main__":
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(build_page(), encoding="utf-8")
