"""`ottla kafka consumer-groups`: kafka-consumer-groups."""

import argparse
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ottla.cli.client import require_text
from ottla.cli.command_error import USAGE_ERROR, CommandError
from ottla.cli.consumer_groups import describe_group, list_groups
from ottla.cli.kafka.describing_groups import show_group
from ottla.cli.kafka.flags import add_client_flags, add_switches, choose_action, explain_code, open_client
from ottla.cli.kafka.resetting_groups import add_reset_flags, choose_partitions, reset
from ottla.cli.kafka.tables import show_columns
from ottla.cli.numbers import parse_count
from ottla.cli.suggestions import suggest

if TYPE_CHECKING:
    from ottla.client.client import Client

ACTIONS = ("list", "describe", "delete", "reset-offsets", "delete-offsets")
STATES = ("Empty", "Stable", "PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling", "Dead")
TYPES = ("Classic", "Consumer")


def add_flags(parser: argparse.ArgumentParser) -> None:
    add_client_flags(parser)
    add_switches(
        parser,
        [
            ("--list", "list groups"),
            ("--describe", "show offsets and lag of groups"),
            ("--delete", "delete groups"),
            ("--reset-offsets", "set the offsets of groups without members; only --execute changes something"),
            ("--delete-offsets", "delete the offsets of a group for topics that it does not read"),
            ("--all-groups", "all groups"),
            ("--all-topics", "with --reset-offsets: all topics for which the group has offsets"),
            ("--members", "with --describe: members instead of offsets"),
            ("--offsets", "with --describe: offsets and lag, as without it"),
            ("--verbose", "with --describe: epochs and assignments too"),
        ],
    )
    parser.add_argument("--group", action="append", default=[], help="a group; may be repeated")
    parser.add_argument("--topic", action="append", default=[], help="TOPIC, or TOPIC:0,1; may be repeated")
    parser.add_argument(
        "--state", nargs="?", const="", help="with --list: states too, or only these; with --describe: the state"
    )
    parser.add_argument("--type", nargs="?", const="", help="with --list: types too, or only these")
    parser.add_argument("--timeout", type=parse_count, metavar="MS", help="has no effect")
    parser.add_argument("--validate-regex", metavar="REGEX", help="only check a pattern of topics, without a broker")
    add_reset_flags(parser)


def run(options: argparse.Namespace) -> None:
    if options.validate_regex is not None:
        _validate(options.validate_regex)
        return
    action = choose_action(options, ACTIONS)
    require_text(*options.group, *options.topic)
    if action != "list" and bool(options.group) == options.all_groups:
        raise CommandError(f"--{action}: give --group or --all-groups", USAGE_ERROR)
    with open_client(options) as client:
        if action == "list":
            _list(client, options)
            return
        names = list(dict.fromkeys(options.group)) or [each.name for each in list_groups(client)]
        if action == "describe":
            for name in names:
                show_group(client, describe_group(client, name), options)
        elif action == "reset-offsets":
            reset(client, names, options)
        elif action == "delete":
            _delete(client, names)
        else:
            _delete_offsets(client, names, options)


def _validate(pattern: str) -> None:
    import re2

    try:
        options = re2.Options()
        options.log_errors = False
        re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0].decode(errors="replace") if isinstance(error.args[0], bytes) else error
        raise CommandError(f"{pattern!r} is not a pattern of topics: {reason}") from None
    print(f"The regex `{pattern}` is valid.")


def _list(client: "Client", options: argparse.Namespace) -> None:
    states, types = _parse_names(options.state, STATES, "--state"), _parse_names(options.type, TYPES, "--type")
    groups = [
        group
        for group in list_groups(client)
        if (not states or group.state in states) and (not types or group.kind in types)
    ]
    if options.state is None and options.type is None:
        for group in groups:
            print(group.name)
        return
    titles, rows = ["GROUP"], [[group.name] for group in groups]
    for title, wanted, values in (
        ("TYPE", options.type, [group.kind for group in groups]),
        ("STATE", options.state, [group.state for group in groups]),
    ):
        if wanted is not None:
            titles.append(title)
            rows = [[*row, value] for row, value in zip(rows, values, strict=True)]
    show_columns(titles, rows, [25, *[20] * (len(titles) - 1)], gap=False)


def _parse_names(text: str | None, known: Sequence[str], flag: str) -> list[str]:
    """Names separated by commas, in any case."""
    by_name = {name.lower(): name for name in known}
    found = []
    for word in (text or "").split(","):
        name = by_name.get(word.strip().lower())
        if name is not None:
            found.append(name)
        elif word.strip():
            raise CommandError(f"{flag}: there is no {word.strip()!r}{suggest(word, known)}", USAGE_ERROR)
    return found


def _delete(client: "Client", names: Sequence[str]) -> None:
    from ottla.wire.messages.delete_groups import DeleteGroupsRequest

    failures, deleted = [], []
    for name in names:
        (result,) = client.ask_coordinator("group", name, DeleteGroupsRequest(groups_names=[name])).results
        if result.error_code:
            failures.append(f"group {name!r} was not deleted: {explain_code(result.error_code, None)}")
        else:
            deleted.append(name)
    if deleted:
        print(f"Deletion of requested consumer groups ({_quote(deleted)}) was successful.")
    if failures:
        raise CommandError("; ".join(failures))


def _quote(names: Iterable[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)


def _delete_offsets(client: "Client", names: Sequence[str], options: argparse.Namespace) -> None:
    from ottla.client.groups import group_by_topic
    from ottla.wire.messages.offset_delete import (
        OffsetDeleteRequest,
        OffsetDeleteRequestPartition,
        OffsetDeleteRequestTopic,
    )

    if len(names) != 1 or not options.topic:
        raise CommandError("--delete-offsets: give one --group, and --topic", USAGE_ERROR)
    partitions = choose_partitions(client, options.topic)
    asked = [
        OffsetDeleteRequestTopic(
            name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=number) for number in numbers]
        )
        for topic, numbers in group_by_topic(dict.fromkeys(partitions)).items()
    ]
    answer = client.ask_coordinator("group", names[0], OffsetDeleteRequest(group_id=names[0], topics=asked))
    if answer.error_code:
        raise CommandError(f"group {names[0]!r}: {explain_code(answer.error_code, None)}")
    rows = [
        (
            topic.name,
            each.partition_index,
            f"Error: {explain_code(each.error_code, None)}" * bool(each.error_code) or "Successful",
        )
        for topic in answer.topics
        for each in topic.partitions
    ]
    if all(row[2] == "Successful" for row in rows):
        print(f"Request succeeded for deleting offsets from group {names[0]}.")
    show_columns(("TOPIC", "PARTITION", "STATUS"), sorted(rows), (15, 10, 15))
