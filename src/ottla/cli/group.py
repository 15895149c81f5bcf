"""`ottla group list|describe|reset|delete`: who reads what, how far they are behind, and where they go on."""

import argparse
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ottla.cli.client import Cluster, actions_of, explanation
from ottla.cli.group_description import MemberRow, OffsetRow, described, show_described
from ottla.cli.group_reset import ResetRow, add_reset_arguments, reset_plan, store
from ottla.cli.output import JSON, add_format_argument, show_json, show_table
from ottla.cli.refusal import BAD_REQUEST, Refusal

if TYPE_CHECKING:
    from confluent_kafka.admin import ListConsumerGroupsResult

STATES = ("empty", "stable", "preparing-rebalance", "completing-rebalance", "assigning", "reconciling", "dead")
TYPES = ("classic", "consumer")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    action = actions_of(parser)
    listing = action("list", "list groups")
    listing.add_argument("--state", action="append", choices=STATES, default=[], help="only these; may be repeated")
    listing.add_argument("--type", action="append", choices=TYPES, default=[], help="only these; may be repeated")
    add_format_argument(listing)
    describe = action("describe", "show offsets, lag and members of groups")
    describe.add_argument("names", nargs="+", metavar="GROUP")
    describe.add_argument("--members", action="store_true", help="a line for each member instead of each partition")
    add_format_argument(describe)
    reset = action("reset", "set where a group goes on; it must have no members")
    reset.add_argument("name", metavar="GROUP")
    add_reset_arguments(reset)
    add_format_argument(reset)
    delete = action("delete", "delete groups without members, or what they have committed")
    delete.add_argument("names", nargs="+", metavar="GROUP")
    delete.add_argument(
        "-t",
        "--topic",
        action="append",
        default=[],
        metavar="TOPIC",
        help="only the offsets of this topic, of a group that does not read it; may be repeated",
    )
    delete.add_argument("--if-exists", action="store_true", help="a group that is not there is no error")


def run(options: argparse.Namespace) -> int:
    actions = {"list": _list, "describe": _describe, "reset": _reset, "delete": _delete}
    actions[options.action](options)
    return 0


def _list(options: argparse.Namespace) -> None:
    from confluent_kafka import ConsumerGroupState, ConsumerGroupType, KafkaException

    cluster = Cluster(options)
    states = {ConsumerGroupState[name.upper().replace("-REBALANCE", "_REBALANCING")] for name in options.state}
    types = {ConsumerGroupType[name.upper()] for name in options.type}
    try:
        asked = cluster.admin.list_consumer_groups(states=states, types=types)
    except (KafkaException, ValueError, TypeError) as error:
        raise Refusal(f"group list: {error}", BAD_REQUEST) from None
    found: ListConsumerGroupsResult = cluster.answer(asked, "the list of groups")
    for failure in found.errors or ():
        raise Refusal(f"the list of groups: {failure}")
    rows = sorted((group.group_id, _word(group.type.name), _word(group.state.name)) for group in found.valid or ())
    columns = ("group", "type", "state")
    if options.format == JSON:
        show_json([dict(zip(columns, row, strict=True)) for row in rows])
    else:
        show_table(columns, rows)


def _word(name: str) -> str:
    return name.lower().replace("_rebalancing", "-rebalance")


def _describe(options: argparse.Namespace) -> None:
    groups = described(Cluster(options), options.names)
    if options.format == JSON:
        show_json([group.document() for group in groups])
    else:
        show_described(groups, MemberRow if options.members else OffsetRow)


def _reset(options: argparse.Namespace) -> None:
    cluster = Cluster(options)
    rows = reset_plan(cluster, options)
    if not options.dry_run:
        store(cluster, options.name, rows)
    if options.format == JSON:
        show_json([row._asdict() for row in rows])
    else:
        show_table(ResetRow._fields, rows)


def _delete(options: argparse.Namespace) -> None:
    cluster = Cluster(options)
    if options.topic:
        for name in options.names:
            _delete_offsets(cluster, name, options.topic)
        return
    from confluent_kafka import KafkaError, KafkaException

    failures = []
    for name, future in cluster.asked(cluster.admin.delete_consumer_groups, options.names).items():
        try:
            future.result()
            print(f"group {name!r} deleted")
        except KafkaException as error:
            if error.args[0].code() != KafkaError.GROUP_ID_NOT_FOUND or not options.if_exists:
                failures.append(f"group {name!r}: {explanation(error.args[0])}")
    if failures:
        raise Refusal("; ".join(failures))


def _delete_offsets(cluster: Cluster, name: str, topics: Iterable[str]) -> None:
    from ottla.errors import ErrorCode
    from ottla.wire.messages.offset_delete import (
        OffsetDeleteRequest,
        OffsetDeleteRequestPartition,
        OffsetDeleteRequestTopic,
        OffsetDeleteResponse,
    )

    asked = []
    for topic in topics:
        numbers = [partition.id for partition in cluster.topic(topic).partitions]
        partitions = [OffsetDeleteRequestPartition(partition_index=number) for number in numbers]
        asked.append(OffsetDeleteRequestTopic(name=topic, partitions=partitions))
    with cluster.coordinator("group", name) as connection:
        response: OffsetDeleteResponse = connection.ask(OffsetDeleteRequest(group_id=name, topics=asked))
    codes = [response.error_code]
    codes += [partition.error_code for topic in response.topics for partition in topic.partitions]
    wrong = next((code for code in codes if code), 0)
    if wrong:
        raise Refusal(f"group {name!r}: {ErrorCode(wrong).name}")
    print(f"group {name!r}: offsets of {', '.join(map(repr, topics))} deleted")
