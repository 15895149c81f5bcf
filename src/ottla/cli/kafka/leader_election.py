"""`ottla kafka leader-election`: kafka-leader-election."""

import argparse

from ottla.cli.cluster.elections import elect_leaders
from ottla.cli.command_error import USAGE_ERROR, CommandError
from ottla.cli.kafka.flags import TIMEOUT_MS, add_client_flags, add_switches, explain_code, open_client
from ottla.cli.numbers import parse_partition
from ottla.cli.plan_files import read_partitions
from ottla.errors import ErrorCode
from ottla.topic_partition import TopicPartition

TYPES = {"preferred": 0, "unclean": 1}


def add_flags(parser: argparse.ArgumentParser) -> None:
    add_client_flags(parser, config=["--admin.config"])
    parser.add_argument("--election-type", required=True, type=str.lower, choices=tuple(TYPES))
    parser.add_argument("--topic", help="the topic of --partition")
    parser.add_argument("--partition", type=parse_partition, help="the partition of --topic")
    parser.add_argument("--path-to-json-file", metavar="FILE", help='{"partitions": [{"topic": "a", "partition": 0}]}')
    add_switches(parser, [("--all-topic-partitions", "all partitions that need it")])


def run(options: argparse.Namespace) -> None:
    from ottla.client.groups import group_by_topic
    from ottla.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions

    if (options.topic is None) != (options.partition is None):
        raise CommandError("--topic and --partition belong together", USAGE_ERROR)
    given = (options.topic is not None, options.path_to_json_file is not None, options.all_topic_partitions)
    if sum(given) != 1:
        raise CommandError("give --topic, --path-to-json-file or --all-topic-partitions", USAGE_ERROR)
    wanted = None
    if options.topic is not None:
        wanted = [TopicPartition(options.topic, options.partition)]
    elif options.path_to_json_file is not None:
        wanted = list(read_partitions(options.path_to_json_file))
    asked = None
    if wanted is not None:
        by_topic = group_by_topic(dict.fromkeys(wanted))
        asked = [TopicPartitions(topic=topic, partitions=list(numbers)) for topic, numbers in by_topic.items()]
    request = ElectLeadersRequest(
        election_type=TYPES[options.election_type], topic_partitions=asked, timeout_ms=TIMEOUT_MS
    )
    with open_client(options) as client:
        results = elect_leaders(client, request)
    elected, kept, failures = [], [], []
    for where, each in results.items():
        if not each.error_code:
            elected.append(str(where))
        elif each.error_code == ErrorCode.ELECTION_NOT_NEEDED:
            kept.append(str(where))
        else:
            failures.append(f"{where}: {explain_code(each.error_code, each.error_message)}")
    if elected:
        name = options.election_type.upper()
        print(f"Successfully completed leader election ({name}) for partitions {', '.join(elected)}")
    if kept and wanted is not None:
        print(f"Valid replica already elected for partitions {', '.join(kept)}")
    if failures:
        raise CommandError("; ".join(failures))
