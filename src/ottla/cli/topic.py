"""`ottla topic create|list|describe|alter|trim|delete`."""

import argparse
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ottla.cli.client import (
    OPERATION_MS,
    Answer,
    CommandClient,
    create_action_adder,
    explain,
    explain_code,
    find_topic,
    open_own_client,
)
from ottla.cli.command_error import USAGE_ERROR, CommandError
from ottla.cli.numbers import INT16_MAX, int_between, parse_count, parse_offset, parse_partition, parse_partition_count
from ottla.cli.output import JSON, add_format_argument, counted, show_json, show_rows
from ottla.cli.pairs import parse_pairs
from ottla.cli.resource_settings import change_settings, changes_of
from ottla.cli.suggestions import suggest
from ottla.cli.topic_description import describe_topics, show_topics
from ottla.cli.topic_trim import trim

if TYPE_CHECKING:
    from ottla.client.client import Client

BROKER_DEFAULT = -1
INTERNAL_PREFIX = "__"
LOSSES = {
    "__consumer_offsets": "the committed offsets of all groups",
    "__transaction_state": "the state of all transactions",
}
"""What a cluster loses with an internal topic."""

BARE_TIMEOUT = "Request timed out"
"""REQUEST_TIMED_OUT without a broker's message: librdkafka deletes topics with a version that has none."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    action = create_action_adder(parser)
    _add_create_arguments(action("create", "create topics"))
    listing = action("list", "list topics")
    listing.add_argument("--internal", action="store_true", help="also internal topics")
    add_format_argument(listing)
    describe = action("describe", "show partitions, offsets and settings of topics")
    describe.add_argument("names", nargs="+", metavar="TOPIC")
    add_format_argument(describe)
    _add_alter_arguments(action("alter", "add partitions to a topic, change its settings"))
    trimming = action("trim", "delete the oldest records of a topic")
    trimming.add_argument("name", metavar="TOPIC")
    trimming.add_argument(
        "-p", "--partition", type=parse_partition, action="append", help="only this partition; may be repeated"
    )
    where = trimming.add_mutually_exclusive_group(required=True)
    where.add_argument("--before", type=parse_offset, metavar="OFFSET", help="delete records before this offset")
    where.add_argument(
        "--older-than",
        metavar="TIME",
        help="delete records older than 7d, 2026-01-31T18:00:00Z, or milliseconds since 1970",
    )
    where.add_argument("--keep", type=parse_count, metavar="N", help="delete all but the newest N of each partition")
    where.add_argument("--all", action="store_true", help="delete all records")
    trimming.add_argument("--dry-run", action="store_true", help="only show what would be deleted")
    add_format_argument(trimming)
    delete = action("delete", "delete topics and all their records")
    delete.add_argument("names", nargs="+", metavar="TOPIC")
    delete.add_argument("--if-exists", action="store_true", help="do not fail if a topic does not exist")
    delete.add_argument("--force", action="store_true", help="delete internal topics too: their names begin with __")


def _add_create_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="+", metavar="TOPIC")
    parser.add_argument(
        "-p",
        "--partitions",
        type=parse_partition_count,
        default=BROKER_DEFAULT,
        help="number of partitions (default: the broker's num.partitions)",
    )
    parser.add_argument(
        "-r",
        "--replicas",
        "--replication-factor",
        type=int_between(1, INT16_MAX),
        default=BROKER_DEFAULT,
        metavar="N",
        help="replicas of each partition (default: the broker's default.replication.factor)",
    )
    _add_set_argument(parser)
    parser.add_argument("--if-not-exists", action="store_true", help="do not fail if a topic exists")
    parser.add_argument("--dry-run", action="store_true", help="only ask whether it could be done")


def _add_alter_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="TOPIC")
    parser.add_argument(
        "-p", "--partitions", type=parse_partition_count, help="new number of partitions; it can only grow"
    )
    _add_set_argument(parser)
    parser.add_argument(
        "--unset", action="append", default=[], metavar="KEY", help="reset to the broker's value; may be repeated"
    )
    parser.add_argument("--dry-run", action="store_true", help="only ask whether it could be done")


def _add_set_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        dest="settings",
        metavar="KEY=VALUE",
        help="a setting of the topic, with Kafka's name; may be repeated",
    )


def run(options: argparse.Namespace) -> int:
    actions = {
        "create": _create,
        "list": _list,
        "describe": _describe,
        "alter": _alter,
        "trim": trim,
        "delete": _delete,
    }
    actions[options.action](options)
    return 0


def _create(options: argparse.Namespace) -> None:
    from confluent_kafka import KafkaError
    from confluent_kafka.cimpl import NewTopic

    settings = parse_pairs(options.settings, "--set")
    client = CommandClient(options)
    topics = [
        NewTopic(name, num_partitions=options.partitions, replication_factor=options.replicas, config=settings)
        for name in options.names
    ]
    asked = client.change(client.admin.create_topics, topics, validate_only=options.dry_run)
    forgiven = (KafkaError.TOPIC_ALREADY_EXISTS,) if options.if_not_exists else ()
    _finish(asked, "would be created" if options.dry_run else "created", forgiven)


def _delete(options: argparse.Namespace) -> None:
    from confluent_kafka import KafkaError

    internal = next((name for name in options.names if name.startswith(INTERNAL_PREFIX)), None)
    if internal is not None and not options.force:
        loss = LOSSES.get(internal, "what a part of it keeps there")
        text = f"topic {internal!r} is internal: the cluster would lose {loss}. To delete it all the same, add --force"
        raise CommandError(text, USAGE_ERROR)
    client = CommandClient(options)
    asked = client.change(client.admin.delete_topics, options.names)
    _finish(asked, "deleted", (KafkaError.UNKNOWN_TOPIC_OR_PART,) if options.if_exists else (), client)


def _finish(
    asked: dict[str, Answer[None]], done: str, forgiven: Iterable[int], client: CommandClient | None = None
) -> None:
    """Print what was done for each topic, then raise CommandError for those that failed.

    With a client, a name that does not exist gets the nearest one that does.
    """
    from confluent_kafka import KafkaError, KafkaException

    failures = []
    for name, future in asked.items():
        try:
            future.result()
            print(f"topic {name!r} {done}")
        except KafkaException as error:
            code = error.args[0].code()
            if code in forgiven:
                continue
            is_unknown = client is not None and code == KafkaError.UNKNOWN_TOPIC_OR_PART
            hint = suggest(name, client.fetch_metadata().topics) if client is not None and is_unknown else ""
            said = explain(error.args[0])
            if said == BARE_TIMEOUT:
                said = f"{said}: the metadata could not be changed. Is ZooKeeper, or the controller, away?"
            is_named = said.lower().startswith(f"topic {name!r}".lower())  # `topic 'orders' already exists`
            failures.append(f"{said if is_named else f'topic {name!r}: {said}'}{hint}")
    if failures:
        raise CommandError("; ".join(failures))


def _list(options: argparse.Namespace) -> None:
    from ottla.wire.messages.metadata import MetadataRequest

    with open_own_client(options) as own:
        answer = own.ask_any(MetadataRequest(topics=None, allow_auto_topic_creation=False))
    rows = [
        (topic.name, len(topic.partitions), max((len(each.replica_nodes) for each in topic.partitions), default=0))
        for topic in answer.topics
        if options.internal or not topic.name.startswith(INTERNAL_PREFIX)
    ]
    show_rows(options.format, ("topic", "partitions", "replicas"), sorted(rows))


def _alter(options: argparse.Namespace) -> None:
    changes = changes_of(options.settings, options.unset)
    if options.partitions is None and not changes:
        raise CommandError("topic alter: nothing to change; give --partitions, --set or --unset", USAGE_ERROR)
    with open_own_client(options) as own:
        find_topic(own, options.name)
        if options.partitions is not None:
            _create_partitions(own, options.name, options.partitions, dry_run=options.dry_run)
        if changes:
            change_settings(own, "topic", options.name, changes, dry_run=options.dry_run)


def _create_partitions(own: "Client", name: str, count: int, *, dry_run: bool) -> None:
    from ottla.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic

    wanted = CreatePartitionsTopic(name=name, count=count, assignments=None)
    request = CreatePartitionsRequest(topics=[wanted], timeout_ms=OPERATION_MS, validate_only=dry_run)
    (result,) = own.ask_controller(request).results
    if result.error_code:
        raise CommandError(f"topic {name!r}: {explain_code(result.error_code, result.error_message)}")
    print(f"topic {name!r} {'can have' if dry_run else 'has'} {counted(count, 'partition')}")


def _describe(options: argparse.Namespace) -> None:
    with open_own_client(options) as own:
        topics = describe_topics(own, options.names)
    if options.format == JSON:
        show_json([topic.document() for topic in topics])
    else:
        show_topics(topics)
