"""`ottla`: the command line. Each command is a module that is imported only when it runs, so that `ottla` starts fast.

The module of a command has `add_arguments(parser)` and `run(options)`, which returns the exit status: 0 for success, 1
for a failure, 2 for a usage error. `main` turns every exception into one line on stderr; a traceback is printed only if
OTTLA_TRACEBACK=1 is set or the log level is debug. Ctrl-C ends a command silently with 130, and a closed pipe
(`| head`) silently with 0.

    commands     up, demo/, topic, produce, consume, sql/, group, txn, stream/, connect/, mirror, sink, config,
                 user, acl, quota, profile, certificates, cluster/, console, kafka/, doctor/, bench/, log, generate/,
                 completion
    shared       client.py            clients of commands that talk to brokers
                 client_settings.py   their options, and settings from files, profiles and the environment
                 profiles.py          the files of profiles
                 suggestions.py       did you mean ...?
                 progress.py          progress bars on a terminal
                 command_error.py     errors as one line and an exit status
                 output.py            tables and JSON             settings.py         a broker's settings for `up`
                 escapes.py           \\n and \\x41 in arguments    process.py          limits of the broker's process
                 interruption.py      Ctrl-C for commands with child processes
                 plan_files.py        JSON files of partitions (cluster and kafka)
                 numbers.py           numbers in arguments, checked while they are parsed
                 pairs.py             arguments of the form key=value
                 console_process.py   the web console as a child process
                 ports.py             free ports for child processes
                 directories.py       where a broker's data is
    up           broker_process.py (the broker), exposure.py (whether a broker would let in anybody on the network)
    topic        topic_description.py, topic_trim.py, resource_settings.py (with config)
    group        group_description.py, group_reset.py, consumer_groups.py (with kafka consumer-groups)
    config       quota_settings.py, quotas.py (with quota), config_listing.py (list)
    completion   completion_names.py (what a shell asks while a line is typed)
    txn          hanging.py           transactions that no coordinator will end
    records      record_input.py, record_output.py, offset_ranges.py, topic_reader.py, group_reader.py, registries.py
                 input_progress.py    how far `produce` is in its files
    log          log_files.py (dump), log_verification.py, log_metadata.py and log_progress.py (verify)
"""

import argparse
import gc
import os
import sys
import time
from collections.abc import Collection, Sequence
from importlib import import_module
from signal import SIGINT
from typing import Any, NoReturn

from ottla import __version__
from ottla.cli.command_error import FAILURE, USAGE_ERROR, CommandError, explain_error

STARTED_S = time.perf_counter()
INTERRUPTED = 128 + SIGINT
TRACEBACK_VARIABLE = "OTTLA_TRACEBACK"
GARBAGE_THRESHOLD = 20_000
"""Imported modules stay and a request's objects are freed at once, so a rare garbage collection is enough."""

ALIASES = {
    "ls": ("list",),
    "rm": ("delete", "remove"),
    "del": ("delete", "remove"),
    "show": ("describe",),
    "info": ("describe", "status"),
}
"""Words that people try first. The plural of a command stands for it too."""

COMMANDS = {
    "up": "start a broker",
    "demo": "watch a broker at work, then try it yourself",
    "topic": "create, list, describe, alter, trim and delete topics",
    "produce": "send records from standard input or files",
    "consume": "print the records of topics",
    "sql": "query topics with SQL, on Spark",
    "group": "list, describe, reset and delete consumer groups",
    "txn": "list and describe transactions, find and end hanging ones",
    "stream": "run, list, describe, query, stop and reset apps of ottla.streams",
    "connect": "run workers of Kafka Connect; create, watch and change connectors",
    "mirror": "mirror topics and groups between clusters, as MirrorMaker 2 does",
    "sink": "list and describe queries that write topics exactly once",
    "config": "read and change settings of topics and brokers",
    "certificates": "make an authority and certificates for TLS, for a laptop or a test cluster",
    "user": "create, change, list and delete users who log in with SCRAM",
    "acl": "say who may do what",
    "quota": "limit how much users, client ids and addresses may take",
    "profile": "keep addresses and logins of clusters under names",
    "cluster": "start a cluster, show its brokers and partitions, move replicas and leaders",
    "console": "watch and change a cluster in a browser",
    "kafka": "run a tool of Apache Kafka by its own flags: ottla kafka topics --list",
    "doctor": "find the usual mistakes of a set-up, and say how to mend them",
    "bench": "a quick load test",
    "log": "look into a broker's files and verify them, without a broker",
    "generate": "write files for systemd, containers, Prometheus and Grafana",
    "completion": "print a script that lets your shell complete these commands",
}


def main(arguments: Sequence[str] | None = None) -> int:
    typed = list(sys.argv[1:] if arguments is None else arguments)
    if typed[:1] == ["__complete"]:  # asked by a shell, see completion_names.py
        from ottla.cli.completion_names import run

        return run(typed[1:])
    given = resolve_alias(typed, COMMANDS)
    command = next((word for word in given if not word.startswith("-")), "")
    _open_missing_streams()
    gc.set_threshold(GARBAGE_THRESHOLD)
    try:
        parser = command_parser({command}, others=command not in COMMANDS or given[0] != command)
        options, left = parser.parse_known_args(given)
        if left:
            _refuse_words(parser, options, left)
        status: int = import_module(f"ottla.cli.{options.command}").run(options)
        sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        _flush_output()
        return INTERRUPTED
    except BrokenPipeError:
        _flush_output()
        return 0
    except Exception as error:
        _flush_output()
        if _is_traceback_wanted():
            import traceback

            traceback.print_exc()
        print(f"ottla: {explain_error(error)}", file=sys.stderr)
        return error.status if isinstance(error, CommandError) else FAILURE


def _refuse_words(parser: argparse.ArgumentParser, options: argparse.Namespace, left: Sequence[str]) -> NoReturn:
    """End with a usage error that names the first word that the command does not know, and the nearest it knows."""
    from ottla.cli.suggestions import suggest

    for word in (options.command, getattr(options, "action", "")):
        inner = next((each for each in parser._actions if isinstance(each, argparse._SubParsersAction)), None)
        if inner is not None and word in inner.choices:
            parser = inner.choices[word]
    word = next((each for each in left if each.startswith("-")), left[0])
    name = word.partition("=")[0]
    if name.startswith("-"):
        names = [each for action in parser._actions for each in action.option_strings]
        parser.error(f"there is no option {name}{suggest(name, names).replace(repr(name), name)}")
    parser.error(f"one argument too many: {word!r}")


def _is_traceback_wanted() -> bool:
    if os.environ.get(TRACEBACK_VARIABLE, "") not in ("", "0"):
        return True
    logging = sys.modules.get("logging")
    return logging is not None and logging.getLogger("ottla").isEnabledFor(logging.DEBUG)


def _flush_output() -> None:
    """Write what was printed before the error. What cannot be written is discarded, or Python reports it at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _open_missing_streams() -> None:
    """Open /dev/null for streams that the shell has closed (`<&-`); Python has no objects for them."""
    if sys.stdin is None:
        sys.stdin = os.fdopen(os.open(os.devnull, os.O_RDONLY))
    if sys.stdout is None:
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    if sys.stderr is None:
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")


def resolve_alias(words: list[str], names: Collection[str]) -> list[str]:
    """Replace the first word that is no option by the name that it stands for: `topics` is `topic`, `ls` is `list`."""
    place = next((number for number, word in enumerate(words) if not word.startswith("-")), None)
    if place is None or words[place] in names:
        return words
    word = words[place]
    meant = next((name for name in (*ALIASES.get(word, ()), word.removesuffix("s")) if name in names), word)
    return [*words[:place], meant, *words[place + 1 :]]


class CommandParser(argparse.ArgumentParser):
    """Accepts options before, after and between positional arguments, and reports a usage error in one line."""

    _mixing = False

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        takes_rest = any(action.nargs == argparse.REMAINDER for action in self._actions)
        if self._subparsers is not None and args is not None:
            args = resolve_alias(list(args), self._list_actions())
        if self._mixing or takes_rest or self._subparsers is not None:
            return super().parse_known_args(args, namespace)
        self._mixing = True  # the call below calls this method again, for options and then for positional arguments
        try:
            return self.parse_known_intermixed_args(args, namespace)
        finally:
            self._mixing = False

    def _list_actions(self) -> Collection[str]:
        return next((each.choices for each in self._actions if isinstance(each, argparse._SubParsersAction)), ())

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if isinstance(action, argparse._SubParsersAction) and value not in action.choices:
            from ottla.cli.suggestions import suggest

            hint = suggest(value, action.choices) or f"; there are {', '.join(action.choices)}"
            self.error(f"there is no {str(action.metavar).lower()} {value!r}{hint}")
        if action.choices is not None and value not in action.choices and isinstance(value, str):
            from ottla.cli.suggestions import suggest

            choices = [str(choice) for choice in action.choices]
            hint = suggest(value, choices) or f"; it can be {', '.join(choices)}"
            name = "/".join(action.option_strings) or action.metavar or action.dest
            self.error(f"argument {name}: {value!r} is not possible{hint}")
        super()._check_value(action, value)

    def error(self, message: str) -> NoReturn:
        self.exit(USAGE_ERROR, f"{self.prog}: {message} (see {self.prog} --help)\n")


def command_parser(wanted: Collection[str], *, others: bool = True) -> CommandParser:
    """The parser of commands. Only the `wanted` ones have their arguments, because only they are imported.

    Without `others` it knows no other commands: making their parsers takes longer than parsing.
    """
    parser = CommandParser(prog="ottla", description="An event streaming platform that speaks Kafka.")
    parser.add_argument("--version", action="version", version=f"ottla {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, purpose in COMMANDS.items():
        if name not in wanted and not others:
            continue
        command = commands.add_parser(name, help=purpose, description=f"{purpose[0].upper()}{purpose[1:]}.")
        if name in wanted:
            import_module(f"ottla.cli.{name}").add_arguments(command)
    return parser
