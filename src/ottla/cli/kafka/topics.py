"""`ottla kafka topics`: kafka-topics."""

import argparse
from typing import TYPE_CHECKING, Any

from ottla.cli.client import require_text
from ottla.cli.command_error import USAGE_ERROR, CommandError
from ottla.cli.kafka.describing_topics import describe
from ottla.cli.kafka.flags import (
    TIMEOUT_MS,
    add_client_flags,
    add_switches,
    choose_action,
    explain_code,
    find_topics,
    open_client,
    parse_assignments,
    require,
    require_topics,
)
from ottla.cli.numbers import INT16_MAX, int_between, parse_count, parse_partition_count
from ottla.cli.pairs import parse_pairs

if TYPE_CHECKING:
    from ottla.client.client import Client

ACTIONS = ("create", "list", "describe", "alter", "delete")
DEFAULT = -1
ALREADY_EXISTS = 36

COLLISION = (
    "WARNING: in names of metrics '.' and '_' are the same, so topics whose names differ only there could collide; "
    "it is best to use one of the two."
)


def add_flags(parser: argparse.ArgumentParser) -> None:
    add_client_flags(parser)
    add_switches(parser, [(f"--{name}", f"{name} topics") for name in ACTIONS])
    parser.add_argument("--topic", help="the topic; to list, describe, alter and delete also a regular expression")
    parser.add_argument("--topic-id", metavar="ID", help="with --describe: the id of a topic")
    parser.add_argument("--partitions", type=parse_partition_count, help="the number of partitions")
    parser.add_argument("--replication-factor", type=int_between(1, INT16_MAX), help="replicas of each partition")
    parser.add_argument(
        "--replica-assignment", type=parse_assignments, metavar="1:2,2:3", help="the replicas of each partition"
    )
    parser.add_argument(
        "--config", action="append", default=[], metavar="KEY=VALUE", help="a setting of the new topic; may be repeated"
    )
    add_switches(
        parser,
        [
            ("--if-exists", "do nothing if the topic does not exist"),
            ("--if-not-exists", "do nothing if the topic exists"),
            ("--exclude-internal", "leave internal topics out"),
            ("--under-replicated-partitions", "with --describe: only these"),
            ("--unavailable-partitions", "with --describe: only these"),
            ("--under-min-isr-partitions", "with --describe: only these"),
            ("--at-min-isr-partitions", "with --describe: only these"),
            ("--topics-with-overrides", "with --describe: only topics with settings of their own"),
        ],
    )
    parser.add_argument(
        "--partition-size-limit-per-response", type=parse_count, help="partitions that a broker describes in one answer"
    )


def run(options: argparse.Namespace) -> None:
    action = choose_action(options, ACTIONS)
    if action in ("create", "alter", "delete"):
        require(options, "topic")
    require_text(*filter(None, (options.topic, options.topic_id, *options.config)))
    if options.replica_assignment and ((options.partitions and action == "create") or options.replication_factor):
        raise CommandError("--replica-assignment says how many partitions and replicas there are", USAGE_ERROR)
    with open_client(options) as client:
        if action == "create":
            _create(client, options)
        elif action == "list":
            for name in find_topics(client, options.topic, internal=not options.exclude_internal):
                print(name)
        elif action == "describe":
            describe(client, options)
        elif action == "alter":
            _alter(client, options)
        else:
            _delete(client, options)


def _create(client: "Client", options: argparse.Namespace) -> None:
    from ottla.wire.messages.create_topics import (
        CreatableReplicaAssignment,
        CreatableTopic,
        CreatableTopicConfig,
        CreateTopicsRequest,
    )

    settings = parse_pairs(options.config, "--config")
    name = options.topic
    if "." in name or "_" in name:
        print(COLLISION)
    assignments = [
        CreatableReplicaAssignment(partition_index=number, broker_ids=replicas)
        for number, replicas in enumerate(options.replica_assignment or ())
    ]
    topic = CreatableTopic(
        name=name,
        num_partitions=options.partitions or DEFAULT,
        replication_factor=options.replication_factor or DEFAULT,
        assignments=assignments,
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in settings.items()],
    )
    (result,) = client.connect_any().ask(CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS)).topics
    if result.error_code == ALREADY_EXISTS and options.if_not_exists:
        return
    _raise_for(result, name)
    print(f"Created topic {name}.")


def _alter(client: "Client", options: argparse.Namespace) -> None:
    from ottla.wire.messages.create_partitions import (
        CreatePartitionsAssignment,
        CreatePartitionsRequest,
        CreatePartitionsTopic,
    )

    require(options, "partitions")
    for name, topic in require_topics(client, options).items():
        new = (options.replica_assignment or [])[len(topic.partitions) :]
        assignments = [CreatePartitionsAssignment(broker_ids=replicas) for replicas in new]
        wanted = CreatePartitionsTopic(name=name, count=options.partitions, assignments=assignments or None)
        request = CreatePartitionsRequest(topics=[wanted], timeout_ms=TIMEOUT_MS)
        (result,) = client.connect_any().ask(request).results
        _raise_for(result, name)


def _delete(client: "Client", options: argparse.Namespace) -> None:
    from ottla.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState

    names = list(require_topics(client, options))
    if not names:
        return
    request = DeleteTopicsRequest(
        topics=[DeleteTopicState(name=name) for name in names], topic_names=names, timeout_ms=TIMEOUT_MS
    )
    for result in client.connect_any().ask(request).responses:
        _raise_for(result, result.name)


def _raise_for(result: Any, name: str) -> None:
    if result.error_code:
        raise CommandError(f"topic {name!r}: {explain_code(result.error_code, result.error_message)}")
