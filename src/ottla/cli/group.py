"""`ottla group list|describe|reset|delete`: consumer groups, their lag, and their committed offsets."""

import argparse
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ottla.cli.client import create_action_adder, explain_code, find_topic, open_own_client
from ottla.cli.command_error import CommandError, explain_error
from ottla.cli.consumer_groups import NOT_EMPTY, NOT_FOUND, list_groups, suggest_group
from ottla.cli.group_description import MemberRow, OffsetRow, describe_groups, show_groups
from ottla.cli.group_reset import ResetRow, add_reset_arguments, commit_plan, plan_reset
from ottla.cli.output import JSON, add_format_argument, hyphenate, show_json, show_rows

if TYPE_CHECKING:
    from ottla.client.client import Client

STATES = ("empty", "stable", "preparing-rebalance", "completing-rebalance", "assigning", "reconciling", "dead")
TYPES = ("classic", "consumer")
REASONS = {NOT_FOUND: "The group id does not exist", NOT_EMPTY: "The group is not empty"}
"""Why a group was not deleted."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    action = create_action_adder(parser)
    listing = action("list", "list groups")
    listing.add_argument("--state", action="append", choices=STATES, default=[], help="only these; may be repeated")
    listing.add_argument("--type", action="append", choices=TYPES, default=[], help="only these; may be repeated")
    add_format_argument(listing)
    describe = action("describe", "show offsets, lag and members of groups")
    describe.add_argument("names", nargs="+", metavar="GROUP")
    describe.add_argument("--members", action="store_true", help="one line per member instead of per partition")
    add_format_argument(describe)
    reset = action("reset", "set the committed offsets of a group without members")
    reset.add_argument("name", metavar="GROUP")
    add_reset_arguments(reset)
    add_format_argument(reset)
    delete = action("delete", "delete groups without members, or their committed offsets")
    delete.add_argument("names", nargs="+", metavar="GROUP")
    delete.add_argument(
        "-t",
        "--topic",
        action="append",
        default=[],
        metavar="TOPIC",
        help="delete only the offsets of this topic, which no member may read; may be repeated",
    )
    delete.add_argument("--if-exists", action="store_true", help="do not fail if a group does not exist")


def run(options: argparse.Namespace) -> int:
    actions = {"list": _list, "describe": _describe, "reset": _reset, "delete": _delete}
    actions[options.action](options)
    return 0


def _list(options: argparse.Namespace) -> None:
    with open_own_client(options) as own:
        groups = [(group.name, group.kind.lower(), hyphenate(group.state)) for group in list_groups(own)]
    rows = [
        (name, kind, state)
        for name, kind, state in groups
        if (not options.state or state in options.state) and (not options.type or kind in options.type)
    ]
    show_rows(options.format, ("group", "type", "state"), rows)


def _describe(options: argparse.Namespace) -> None:
    with open_own_client(options) as own:
        groups = describe_groups(own, options.names)
    if options.format == JSON:
        show_json([group.document() for group in groups])
    else:
        show_groups(groups, MemberRow if options.members else OffsetRow)


def _reset(options: argparse.Namespace) -> None:
    with open_own_client(options) as own:
        rows = plan_reset(own, options)
        if not options.dry_run:
            commit_plan(own, options.name, rows)
    show_rows(options.format, ResetRow._fields, rows)


def _delete(options: argparse.Namespace) -> None:
    from ottla.errors import KafkaError

    failures = []
    with open_own_client(options) as own:
        for name in options.names:
            if options.topic:
                _delete_offsets(own, name, options.topic)
                continue
            try:
                code = _delete_group(own, name)
            except KafkaError as error:
                failures.append(explain_error(error))
                continue
            if not code:
                print(f"group {name!r} deleted")
            elif code != NOT_FOUND or not options.if_exists:
                hint = suggest_group(own, name) if code == NOT_FOUND else ""
                failures.append(f"group {name!r}: {REASONS.get(code) or explain_code(code)}{hint}")
    if failures:
        raise CommandError("; ".join(failures))


def _delete_group(own: "Client", name: str) -> int:
    """Returns the error code."""
    from ottla.wire.messages.delete_groups import DeleteGroupsRequest

    (result,) = own.ask_coordinator("group", name, DeleteGroupsRequest(groups_names=[name])).results
    return int(result.error_code)


def _delete_offsets(own: "Client", name: str, topics: Iterable[str]) -> None:
    from ottla.client.groups import raise_for_errors
    from ottla.wire.messages.offset_delete import (
        OffsetDeleteRequest,
        OffsetDeleteRequestPartition,
        OffsetDeleteRequestTopic,
    )

    asked = []
    for topic in topics:
        numbers = [partition.partition_index for partition in find_topic(own, topic).partitions]
        partitions = [OffsetDeleteRequestPartition(partition_index=number) for number in numbers]
        asked.append(OffsetDeleteRequestTopic(name=topic, partitions=partitions))
    answer = own.ask_coordinator("group", name, OffsetDeleteRequest(group_id=name, topics=asked))
    raise_for_errors(answer, f"group {name!r}")
    print(f"group {name!r}: offsets of {', '.join(map(repr, topics))} deleted")
