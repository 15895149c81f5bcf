"""`ottla group list|describe|reset|delete`: consumer groups, their lag, and their committed offsets."""

import argparse
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ottla.cli.client import CommandClient, create_action_adder, explain
from ottla.cli.command_error import USAGE_ERROR, CommandError
from ottla.cli.group_description import MemberRow, OffsetRow, describe_groups, show_groups, suggest_group
from ottla.cli.group_reset import ResetRow, add_reset_arguments, commit_plan, plan_reset
from ottla.cli.output import JSON, add_format_argument, show_json, show_rows

if TYPE_CHECKING:
    from confluent_kafka.admin import ListConsumerGroupsResult

STATES = ("empty", "stable", "preparing-rebalance", "completing-rebalance", "assigning", "reconciling", "dead")
TYPES = ("classic", "consumer")


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
    from confluent_kafka import ConsumerGroupState, ConsumerGroupType, KafkaException

    client = CommandClient(options)
    states = {ConsumerGroupState[name.upper().replace("-REBALANCE", "_REBALANCING")] for name in options.state}
    types = {ConsumerGroupType[name.upper()] for name in options.type}
    try:
        asked = client.admin.list_consumer_groups(states=states, types=types)
    except (KafkaException, ValueError, TypeError) as error:
        raise CommandError(f"group list: {error}", USAGE_ERROR) from None
    found: ListConsumerGroupsResult = client.wait_for(asked, "cannot list groups")
    for failure in found.errors or ():
        raise CommandError(f"cannot list groups: {failure}")
    rows = sorted((group.group_id, _word(group.type.name), _word(group.state.name)) for group in found.valid or ())
    columns = ("group", "type", "state")
    show_rows(options.format, columns, rows)


def _word(name: str) -> str:
    return name.lower().replace("_rebalancing", "-rebalance")


def _describe(options: argparse.Namespace) -> None:
    groups = describe_groups(CommandClient(options), options.names)
    if options.format == JSON:
        show_json([group.document() for group in groups])
    else:
        show_groups(groups, MemberRow if options.members else OffsetRow)


def _reset(options: argparse.Namespace) -> None:
    client = CommandClient(options)
    rows = plan_reset(client, options)
    if not options.dry_run:
        commit_plan(client, options.name, rows)
    show_rows(options.format, ResetRow._fields, rows)


def _delete(options: argparse.Namespace) -> None:
    client = CommandClient(options)
    if options.topic:
        for name in options.names:
            _delete_offsets(client, name, options.topic)
        return
    from confluent_kafka import KafkaError, KafkaException

    failures = []
    for name, future in client.ask(client.admin.delete_consumer_groups, options.names).items():
        try:
            future.result()
            print(f"group {name!r} deleted")
        except KafkaException as error:
            if error.args[0].code() != KafkaError.GROUP_ID_NOT_FOUND or not options.if_exists:
                is_unknown = error.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND
                hint = suggest_group(client, name) if is_unknown else ""
                failures.append(f"group {name!r}: {explain(error.args[0])}{hint}")
    if failures:
        raise CommandError("; ".join(failures))


def _delete_offsets(client: CommandClient, name: str, topics: Iterable[str]) -> None:
    from ottla.client.groups import raise_for_errors
    from ottla.wire.messages.offset_delete import (
        OffsetDeleteRequest,
        OffsetDeleteRequestPartition,
        OffsetDeleteRequestTopic,
    )

    asked = []
    for topic in topics:
        numbers = [partition.id for partition in client.describe_topic(topic).partitions]
        partitions = [OffsetDeleteRequestPartition(partition_index=number) for number in numbers]
        asked.append(OffsetDeleteRequestTopic(name=topic, partitions=partitions))
    with client.open_own_client() as own:
        answer = own.ask_coordinator("group", name, OffsetDeleteRequest(group_id=name, topics=asked))
        raise_for_errors(answer, f"group {name!r}")
    print(f"group {name!r}: offsets of {', '.join(map(repr, topics))} deleted")
