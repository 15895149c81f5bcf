"""`ottla bench`: measures how fast one client produces records to a topic and consumes them, and how long one takes.

Without --topic it creates a topic and deletes it at the end. Values are hexadecimal noise, which compresses to about
half. The latency of `produce` is from the call of produce() to the acknowledgement; without --rate the client's queue
is always full, and most of the latency is waiting in it. The latency of `end-to-end` is from the call of produce() to
the consumer.

    measuring.py     what is measured           throughput.py    produce and consume
    latency.py       end-to-end
"""

import argparse
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from ottla.cli.bench.measuring import CONSUME, END_TO_END, PHASES, PRODUCE, Measurement
from ottla.cli.client import CommandClient
from ottla.cli.client_settings import add_client_arguments
from ottla.cli.command_error import USAGE_ERROR, CommandError
from ottla.cli.numbers import INT32_MAX, int_between, parse_partition_count, parse_seconds
from ottla.cli.output import add_format_argument, show_rows
from ottla.cli.produce import ALL, CODECS

RECORD_BYTES_MAX = 10_000_000
"""A limit for the size of a record, so that the random values fit into memory."""
COUNT_MAX = 10_000_000
"""A limit for the records of the end-to-end test, so that their latencies fit into memory."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_client_arguments(parser)
    parser.add_argument("--topic", help="use this topic and keep it (default: a new one, deleted at the end)")
    parser.add_argument(
        "-p", "--partitions", type=parse_partition_count, default=4, help="partitions of the new topic (default: 4)"
    )
    parser.add_argument(
        "--seconds",
        type=parse_seconds,
        default=5.0,
        help="how long records are produced, and how long end-to-end takes at most (default: 5)",
    )
    parser.add_argument(
        "--record-bytes",
        type=int_between(0, RECORD_BYTES_MAX),
        default=200,
        help="size of a record's value (default: 200)",
    )
    parser.add_argument(
        "--rate",
        type=int_between(1, INT32_MAX),
        help="records a second (default: as many as possible; end-to-end has one under way at a time)",
    )
    parser.add_argument("-z", "--codec", choices=CODECS, default="none", help="compression (default: none)")
    parser.add_argument(
        "--acks", choices=("0", "1", ALL), default=ALL, help="replicas that must have a record (default: all)"
    )
    parser.add_argument("--only", choices=PHASES, help="only this measurement; consume needs --topic")
    parser.add_argument(
        "-n",
        "--count",
        type=int_between(1, COUNT_MAX),
        default=1_000,
        metavar="N",
        help="records of end-to-end (default: 1000)",
    )
    parser.add_argument(
        "--warm-up",
        type=int_between(0, COUNT_MAX),
        default=100,
        metavar="N",
        help="records that end-to-end sends before those that count (default: 100)",
    )
    add_format_argument(parser)


def run(options: argparse.Namespace) -> int:
    if options.only == CONSUME and options.topic is None:
        raise CommandError("bench: --only consume needs --topic", USAGE_ERROR)
    client = CommandClient(options)
    with _topic(client, options) as topic:
        measurements = list(_measure(client, topic, options))
    show_rows(options.format, Measurement._fields, measurements)
    return 0


def _measure(client: CommandClient, topic: str, options: argparse.Namespace) -> Iterator[Measurement]:
    from ottla.cli.bench.latency import LatencyTest
    from ottla.cli.bench.throughput import ProduceLoad, consume

    phases = PHASES if options.only is None else (options.only,)
    produced: Measurement | None = None
    if PRODUCE in phases:
        produced = ProduceLoad(client, topic, options).run(options.seconds, options.rate)
        yield produced
    if CONSUME in phases:
        consumed = consume(client, topic)
        yield consumed
        if options.topic is None and produced is not None and produced.records != consumed.records:
            raise CommandError(f"bench: {produced.records} records were produced and {consumed.records} came back")
    if END_TO_END in phases:
        yield LatencyTest(client, topic, options).run()


@contextmanager
def _topic(client: CommandClient, options: argparse.Namespace) -> Iterator[str]:
    from confluent_kafka.cimpl import NewTopic

    if options.topic is not None:
        client.describe_topic(options.topic)
        yield options.topic
        return
    name = f"ottla-bench-{os.getpid()}-{time.time_ns() // 1_000_000}"
    asked = client.change(client.admin.create_topics, [NewTopic(name, num_partitions=options.partitions)])
    client.wait_for(asked[name], f"topic {name!r}")
    try:
        yield name
    finally:
        client.wait_for(client.change(client.admin.delete_topics, [name])[name], f"topic {name!r}")
