"""`ottla kafka get-offsets`: kafka-get-offsets."""

import argparse
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.cli.client import require_text
from ottla.cli.command_error import USAGE_ERROR, CommandError
from ottla.cli.kafka.flags import add_client_flags, add_switches, compile_pattern, find_topics, open_client
from ottla.cli.numbers import INT32_MAX, INT64_MAX
from ottla.topic_partition import TopicPartition

if TYPE_CHECKING:
    from ottla.wire.messages.metadata import MetadataResponseTopic

SPECS = {
    "latest": -1,
    "earliest": -2,
    "max-timestamp": -3,
    "earliest-local": -4,
    "latest-tiered": -5,
    "earliest-pending-upload": -6,
}
_RULE = re.compile(r"([^:]*)(?::(?:(\d+)|(\d*)-(\d*))?)?")

Filter = Callable[[str, int], object]


def add_flags(parser: argparse.ArgumentParser) -> None:
    add_client_flags(parser)
    parser.add_argument("--topic", help="a topic, or a regular expression (default: all)")
    parser.add_argument("--partitions", type=parse_partitions, metavar="0,1", help="only these (default: all)")
    parser.add_argument(
        "--topic-partitions",
        type=parse_rules,
        metavar="TOPIC:0,TOPIC:2-5,...",
        help="partitions of topics: a number, or a range whose end is left out; topics may be regular expressions",
    )
    parser.add_argument(
        "--time",
        type=parse_spec,
        default=SPECS["latest"],
        help=f"milliseconds since 1970, or {', '.join(f'{name} ({number})' for name, number in SPECS.items())}",
    )
    add_switches(parser, [("--exclude-internal-topics", "leave internal topics out")])


def parse_spec(text: str) -> int:
    """An argparse type: which offset."""
    if text in SPECS:
        return SPECS[text]
    number = int(text) if re.fullmatch(r"-?\d{1,19}", text) else None
    if number is None or not min(SPECS.values()) <= number <= INT64_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is neither a time in milliseconds nor {', '.join(SPECS)}")
    return number


def parse_partitions(text: str) -> frozenset[int]:
    if not re.fullmatch(r"\s*\d{1,9}\s*(,\s*\d{1,9}\s*)*", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of partitions such as 0,1,2")
    return frozenset(int(number) for number in text.split(","))


def parse_rules(text: str) -> Filter:
    """An argparse type: whether a topic and a partition fit one of the rules."""
    rules: list[tuple[Callable[[str], object], int, int]] = []
    for part in text.split(","):
        found = _RULE.fullmatch(part.strip())
        if found is None:
            raise argparse.ArgumentTypeError(f"{part!r} is not TOPIC, TOPIC:0 or TOPIC:0-2")
        topic, one, low, high = found.groups()
        first = int(one or low or 0)
        end = first + 1 if one else int(high or INT32_MAX)
        try:
            rules.append((compile_pattern(topic or ".*", "--topic-partitions"), first, end))
        except CommandError as error:
            raise argparse.ArgumentTypeError(str(error)) from None
    return lambda topic, partition: any(fits(topic) and first <= partition < end for fits, first, end in rules)


def run(options: argparse.Namespace) -> None:
    if options.topic_partitions is not None and (options.topic is not None or options.partitions is not None):
        raise CommandError("--topic-partitions cannot be given with --topic or --partitions", USAGE_ERROR)
    require_text(options.topic or "")
    with open_client(options) as client:
        topics = find_topics(client, options.topic, internal=not options.exclude_internal_topics)
        wanted = _choose(topics, options)
        if not wanted:
            raise CommandError("no partition fits the flags")
        found = client.list_offsets(dict.fromkeys(wanted, options.time))
    for where, offset in sorted(found.items()):
        if offset.offset >= 0:
            print(f"{where.topic}:{where.partition}:{offset.offset}")


def _choose(topics: "dict[str, MetadataResponseTopic]", options: argparse.Namespace) -> list[TopicPartition]:
    """Partitions without a leader are left out, as Kafka's tool does."""
    return [
        TopicPartition(name, partition.partition_index)
        for name, topic in topics.items()
        for partition in topic.partitions
        if partition.leader_id >= 0
        and (options.partitions is None or partition.partition_index in options.partitions)
        and (options.topic_partitions is None or options.topic_partitions(name, partition.partition_index))
    ]
