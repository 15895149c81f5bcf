"""Flags that Kafka's tools share, and how a tool connects. A flag that KIP-1147 renamed has its old name too."""

import argparse
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ottla.cli.client import open_own_client
from ottla.cli.command_error import USAGE_ERROR, CommandError
from ottla.cli.suggestions import suggest

if TYPE_CHECKING:
    from ottla.client.client import Client
    from ottla.wire.messages.metadata import MetadataResponse, MetadataResponseTopic

TIMEOUT_MS = 30_000


def add_client_flags(
    parser: argparse.ArgumentParser, *, config: Sequence[str] = (), settings: Sequence[str] = ()
) -> None:
    """The flags for the address and the settings of the client; `config` and `settings` are old names."""
    parser.add_argument(
        "--bootstrap-server", dest="bootstrap", metavar="HOST:PORT", help="brokers of the cluster, separated by commas"
    )
    parser.add_argument(
        "--command-config", *config, dest="command_config", metavar="FILE", help="a properties file for the client"
    )
    parser.add_argument(
        "--command-property",
        *settings,
        action="append",
        default=[],
        dest="client_settings",
        metavar="KEY=VALUE",
        help="a setting of the client; may be repeated",
    )


def add_switches(parser: argparse.ArgumentParser, switches: Sequence[tuple[str, str]]) -> None:
    """Flags without a value, by name and purpose."""
    for name, purpose in switches:
        parser.add_argument(name, action="store_true", help=purpose)


def choose_action(options: argparse.Namespace, names: Sequence[str]) -> str:
    """The one of these switches that was given. CommandError unless it is exactly one."""
    given = [name for name in names if getattr(options, name.replace("-", "_"))]
    if len(given) != 1:
        raise CommandError(f"give exactly one of {', '.join(f'--{name}' for name in names)}", USAGE_ERROR)
    return given[0]


def require(options: argparse.Namespace, *names: str) -> None:
    """CommandError if one of these flags was not given."""
    for name in names:
        if not getattr(options, name.replace("-", "_")):
            raise CommandError(f"--{name} is missing", USAGE_ERROR)


@contextmanager
def open_client(options: argparse.Namespace) -> "Iterator[Client]":
    with open_own_client(options) as client:
        yield client


def compile_pattern(text: str, flag: str) -> Callable[[str], object]:
    """Tells whether a whole name matches. A comma separates alternatives, as in all tools of Kafka."""
    try:
        return re.compile(text.strip().strip("\"'").replace(",", "|").replace(" ", "")).fullmatch
    except re.error as error:
        raise CommandError(f"{flag}: {text!r} is not a regular expression: {error}", USAGE_ERROR) from None


def fetch_metadata(client: "Client") -> "MetadataResponse":
    from ottla.wire.messages.metadata import MetadataRequest, MetadataResponse

    answer: MetadataResponse = client.ask_any(MetadataRequest(topics=None, allow_auto_topic_creation=False))
    return answer


def find_topics(client: "Client", pattern: str | None, *, internal: bool = True) -> "dict[str, MetadataResponseTopic]":
    """Topics whose whole name matches a pattern, or all, by name."""
    fits = compile_pattern(pattern, "--topic") if pattern is not None else None
    found = {topic.name or "": topic for topic in fetch_metadata(client).topics}
    return {
        name: topic
        for name, topic in sorted(found.items())
        if (fits is None or fits(name)) and (internal or not topic.is_internal)
    }


def require_topics(client: "Client", options: argparse.Namespace) -> "dict[str, MetadataResponseTopic]":
    """The topics that --topic chooses. CommandError if there are none, unless --if-exists was given."""
    found = find_topics(client, options.topic, internal=not options.exclude_internal)
    if not found and options.topic is not None and not options.if_exists:
        hint = suggest(options.topic, find_topics(client, None))
        raise CommandError(f"topic {options.topic!r} does not exist{hint}")
    return found


def explain_code(code: int, message: str | None) -> str:
    from ottla.client.connection import name_error

    return f"{message} ({name_error(code)})" if message else name_error(code)


def parse_assignments(text: str) -> list[list[int]]:
    """An argparse type: `1:2,2:3` are the replicas of each partition."""
    try:
        found = [[int(broker) for broker in part.split(":")] for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of brokers such as 1:2,2:3") from None
    if any(len(set(replicas)) != len(replicas) for replicas in found):
        raise argparse.ArgumentTypeError(f"{text!r} names a broker twice for a partition")
    if len({len(replicas) for replicas in found}) != 1:
        raise argparse.ArgumentTypeError(f"{text!r} has partitions with different numbers of replicas")
    return found
