"""Names of topics, groups and so on, for the shell: what could stand at the end of a command line that is being typed.

A completion script calls `ottla __complete LINE` when its own words do not suffice. The cluster is that of the line's
own options, of the environment or of the profile. A shell waits for the answer, so everything has to be done within
LIMIT_S: the process ends itself after that, whatever it waits for (even for a name server). Whatever fails, nothing is
printed, and the shell offers what it would offer without names.
"""

import argparse
import os
import shlex
import signal
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.client.client import Client

COMPLETE = "__complete"
"""The word that asks for names. It is no command: nobody types it."""

LIMIT_S = 1.0
LIMIT_VARIABLE = "OTTLA_COMPLETION_SECONDS"
LIMIT_MAX_S = 60.0

TOPIC, GROUP, USER, BROKER = "topic", "group", "user", "broker"
TRANSACTIONAL_ID, CONNECTOR, PROFILE = "transactional-id", "connector", "profile"
RESOURCE, SETTING = "resource", "setting"
"""The NAME and the KEY of `ottla config`: which names they are depends on the KIND before them."""

_BY_METAVAR = {
    "TOPIC": TOPIC,
    "TOPIC[:0,1]": TOPIC,
    "GROUP": GROUP,
    "USER": USER,
    "BROKER": BROKER,
    "TRANSACTIONAL_ID": TRANSACTIONAL_ID,
    "CONNECTOR": CONNECTOR,
}
_BY_DESTINATION = {"topic": TOPIC, "group": GROUP, "profile": PROFILE}
_BY_COMMAND = {
    "ottla profile": {"NAME": PROFILE},
    "ottla config": {"NAME": RESOURCE, "KEY": SETTING, "KEY=VALUE": SETTING},
    "ottla quota": {"NAME": USER},
}
_NEW_NAMES = ("ottla topic create", "ottla user create", "ottla profile create", "ottla connect up")
"""Commands whose positional arguments are names that do not exist yet, or files."""

_RESOURCES = {"topic": TOPIC, "group": GROUP, "broker": BROKER, "broker-logger": BROKER, "user": USER}
_URL_VARIABLE = "OTTLA_CONNECT"
_URL = "http://127.0.0.1:8083"


def find_kind(command: str, action: argparse.Action) -> str:
    """Which names an argument of a command takes, such as `topic`; empty if it takes none that a cluster knows."""
    if action.nargs == 0 or action.choices:
        return ""
    if not action.option_strings and command in _NEW_NAMES:
        return ""
    if action.dest == "profile":
        return PROFILE
    metavar = str(action.metavar or "")
    for start, kinds in _BY_COMMAND.items():
        if command.startswith(start + " ") and metavar in kinds:
            return kinds[metavar]
    return _BY_METAVAR.get(metavar, "") or ("" if metavar else _BY_DESTINATION.get(action.dest, ""))


def run(arguments: Sequence[str]) -> int:
    """Print the names that fit, one a line. Never fails."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # ends the process at once, also within a call of the C library
    signal.setitimer(signal.ITIMER_REAL, read_limit(os.environ))
    try:
        for name in find_names(arguments[0] if arguments else ""):
            print(name)
        sys.stdout.flush()
    except Exception:
        pass  # the shell offers nothing
    return 0


def read_limit(environment: "os._Environ[str] | dict[str, str]") -> float:
    try:
        given = float(environment.get(LIMIT_VARIABLE, ""))
    except ValueError:
        return LIMIT_S
    return given if 0 < given <= LIMIT_MAX_S else LIMIT_S


def find_names(line: str) -> list[str]:
    """The names that the last word of the line may become, sorted."""
    words = split_line(line)
    if len(words) < 2:
        return []
    place = _find_place(words[1:])
    if place is None:
        return []
    command, action, given = place
    begun = words[-1].partition("=")[2] if words[-1].startswith("--") else words[-1]
    if action.choices:
        found: Iterable[str] = map(str, action.choices)
    else:
        found = _list_names(find_kind(command, action), given, begun)
    return sorted({name for name in found if name.startswith(begun) and name.isprintable()})


def split_line(line: str) -> list[str]:
    """The words of a line; the last one may be empty, or have an open quote."""
    for end in ("", "'", '"'):
        try:
            words = shlex.split(line + end)
        except ValueError:
            continue
        return [*words, ""] if not end and line[-1:].isspace() else words
    return line.split()


def _find_place(words: list[str]) -> "tuple[str, argparse.Action, list[str]] | None":
    """The command, the argument of it that the last word is, and the words after the command's name."""
    from ottla.cli import COMMANDS, command_parser, resolve_alias

    words = [*resolve_alias(words[:-1], COMMANDS), words[-1]]
    command = next((word for word in words[:-1] if word in COMMANDS), "")
    parser: argparse.ArgumentParser = command_parser({command})
    while inner := next((each for each in parser._actions if isinstance(each, argparse._SubParsersAction)), None):
        words = [*resolve_alias(words[:-1], inner.choices), words[-1]]
        place = next((number for number, word in enumerate(words[:-1]) if word in inner.choices), None)
        if place is None:
            return None
        parser, words = inner.choices[words[place]], words[place + 1 :]
    action = _find_action(parser, words)
    return None if action is None else (parser.prog, action, words)


def _find_action(parser: argparse.ArgumentParser, words: Sequence[str]) -> argparse.Action | None:
    """The argument whose value the last word is."""
    options = {name: action for action in parser._actions for name in action.option_strings}
    *before, last = words
    if last.startswith("--") and "=" in last:
        return options.get(last.partition("=")[0])
    waiting: argparse.Action | None = None
    count = 0
    for word in before:
        if waiting is not None:
            waiting = None
        elif word in options:
            waiting = options[word] if options[word].nargs != 0 else None
        elif not word.startswith("-") or word == "-":
            count += 1
    if waiting is not None:
        return waiting
    if last.startswith("-"):
        return None
    for action in parser._actions:
        if not action.option_strings:
            if action.nargs in ("*", "+") or count == 0:
                return action
            count -= 1
    return None


def _list_names(kind: str, words: Sequence[str], begun: str) -> Iterable[str]:
    if kind == PROFILE:
        from ottla.cli.profiles import Profiles

        return Profiles(os.environ).list_names()
    if kind == CONNECTOR:
        return _list_connectors(_read_options(words, ("--url",)).get("--url"))
    if kind in (RESOURCE, SETTING):
        resource = next((word for word in words[:-1] if not word.startswith("-")), "")
        if kind == SETTING:
            return _list_settings(resource)
        kind = _RESOURCES.get(resource, "")
    if kind not in _ASKING:
        return []
    with closing(_open_client(words)) as client:
        names = _ASKING[kind](client)
    return names if begun.startswith("_") else [name for name in names if not name.startswith("__")]


def _read_options(words: Sequence[str], names: Sequence[str]) -> dict[str, str]:
    """The values of some options among the words, also those written `--name=value`."""
    found = {}
    for word, following in pairwise((*words, "")):
        name, equals, value = word.partition("=")
        if name in names:
            found[name] = value if equals else following
    return found


def _open_client(words: Sequence[str]) -> "Client":
    from ottla.cli.client_settings import read_client_settings
    from ottla.client.client import Client

    given = _read_options(words[:-1], ("-b", "--bootstrap", "--command-config", "--profile"))
    pairs = [following for word, following in pairwise(words[:-1]) if word == "-X"]
    options = argparse.Namespace(
        bootstrap=given.get("--bootstrap", given.get("-b")),
        command_config=given.get("--command-config"),
        profile=given.get("--profile"),
        client_settings=pairs,
    )
    limits = {
        "request.timeout.ms": str(int(read_limit(os.environ) * 1000)),
        "default.api.timeout.ms": "1",  # nothing is tried twice: where nobody listens, the shell gets no names at once
    }
    return Client({**read_client_settings(options).settings, **limits})


def _list_topics(client: "Client") -> list[str]:
    from ottla.wire.messages.metadata import MetadataRequest

    answer = client.ask_any(MetadataRequest(topics=None, allow_auto_topic_creation=False))
    return [topic.name for topic in answer.topics if topic.name]


def _list_groups(client: "Client") -> list[str]:
    from ottla.wire.messages.list_groups import ListGroupsRequest

    answers = client.ask_each(ListGroupsRequest()).values()
    return [group.group_id for answer in answers for group in answer.groups]


def _list_transactional_ids(client: "Client") -> list[str]:
    from ottla.wire.messages.list_transactions import ListTransactionsRequest

    answers = client.ask_each(ListTransactionsRequest()).values()
    return [state.transactional_id for answer in answers for state in answer.transaction_states]


def _list_users(client: "Client") -> list[str]:
    from ottla.cli.user import find_users

    return list(find_users(client))


def _list_brokers(client: "Client") -> list[str]:
    return [str(broker) for broker in client.list_brokers()]


_ASKING: dict[str, Callable[["Client"], list[str]]] = {
    TOPIC: _list_topics,
    GROUP: _list_groups,
    USER: _list_users,
    BROKER: _list_brokers,
    TRANSACTIONAL_ID: _list_transactional_ids,
}


def _list_connectors(url: str | None) -> list[str]:
    from ottla.cli.connect.asking import ask

    return list(ask(url or os.environ.get(_URL_VARIABLE) or _URL, "GET", "/connectors"))


def _list_settings(resource: str) -> list[str]:
    """The settings of a kind of resource. They come from this program, not from the cluster."""
    if resource == "topic":
        from ottla.config.topic import TopicConfig

        return list(TopicConfig.table)
    if resource == "group":
        from ottla.config.group import GroupConfig

        return list(GroupConfig.table)
    if resource in ("broker", "broker-logger"):
        return []
    from ottla.cli.quotas import KEYS

    return list(KEYS)
