"""`ottla kafka TOOL ...`: the tools of Apache Kafka by their own flags, for scripts and habits that exist already.

Each tool is a module with `add_flags(parser)` and `run(options)`, imported only when it runs. Its output has the form
of Kafka's own tool. Errors are Ottla's: one line on stderr, status 2 for wrong flags and 1 for every other failure.

    flags.py                 flags that tools share, and how a tool connects
    tables.py                tables as those tools print them
    topics.py                kafka-topics; describing_topics.py is its --describe
    consumer_groups.py       kafka-consumer-groups; groups.py asks, describing_groups.py and resetting_groups.py do
    console_producer.py      console_consumer.py      configs.py          acls.py             get_offsets.py
    delete_records.py        leader_election.py       reassign_partitions.py
    broker_api_versions.py   transactions.py          log_dirs.py         features.py
                             the tools of these names
"""

import argparse
from importlib import import_module

from ottla.cli.command_error import USAGE_ERROR, CommandError
from ottla.cli.suggestions import suggest

TOOLS = {
    "topics": "create, list, describe, alter and delete topics",
    "console-producer": "send lines of standard input as records",
    "console-consumer": "print records",
    "consumer-groups": "list, describe, delete and reset consumer groups",
    "configs": "show and change settings, quotas and SCRAM credentials",
    "acls": "add, remove and list ACLs",
    "get-offsets": "print offsets of partitions",
    "delete-records": "delete the oldest records of partitions",
    "leader-election": "elect leaders of partitions",
    "reassign-partitions": "move replicas to other brokers",
    "broker-api-versions": "print the APIs and versions of each broker",
    "transactions": "list and describe transactions, find and abort hanging ones",
    "log-dirs": "print directories and the sizes of partitions in them",
    "features": "show and change the levels of features",
}
"""Kafka's tools without `kafka-`, and what they are for."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    width = max(map(len, TOOLS))
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = "tools:\n" + "\n".join(f"  {name:<{width}}  {purpose}" for name, purpose in TOOLS.items())
    parser.add_argument("tool", metavar="TOOL", help="a tool of Apache Kafka, such as topics or kafka-topics.sh")
    parser.add_argument("flags", nargs=argparse.REMAINDER, metavar="FLAGS", help="its flags; --help lists them")


def run(options: argparse.Namespace) -> int:
    from ottla.cli import CommandParser

    name = options.tool.removeprefix("kafka-").removesuffix(".sh")
    if name not in TOOLS:
        hint = suggest(name, TOOLS) or f"; there are {', '.join(TOOLS)}"
        raise CommandError(f"kafka: there is no tool {options.tool!r}{hint}", USAGE_ERROR)
    tool = import_module(f"ottla.cli.kafka.{name.replace('-', '_')}")
    purpose = TOOLS[name]
    parser = CommandParser(prog=f"ottla kafka {name}", description=f"{purpose[0].upper()}{purpose[1:]}.")
    tool.add_flags(parser)
    status: int = tool.run(parser.parse_args(options.flags)) or 0
    return status
