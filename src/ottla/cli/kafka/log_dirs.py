"""`ottla kafka log-dirs`: kafka-log-dirs."""

import argparse
import json

from ottla.cli.cluster.overview import parse_broker_ids
from ottla.cli.command_error import CommandError
from ottla.cli.kafka.flags import add_client_flags, add_switches, open_client, require


def add_flags(parser: argparse.ArgumentParser) -> None:
    add_client_flags(parser)
    add_switches(parser, [("--describe", "show directories and the partitions in them")])
    parser.add_argument("--broker-list", type=parse_broker_ids, metavar="0,1", help="only these (default: all)")
    parser.add_argument("--topic-list", default="", metavar="TOPIC,TOPIC", help="only these (default: all)")


def run(options: argparse.Namespace) -> None:
    from ottla.client.connection import name_error
    from ottla.wire.messages.describe_log_dirs import DescribeLogDirsRequest

    require(options, "describe")
    topics = {name for name in options.topic_list.split(",") if name}
    brokers = []
    with open_client(options) as client:
        there = client.list_brokers()
        chosen = sorted(options.broker_list or there)
        if missing := [str(broker) for broker in chosen if broker not in there]:
            raise CommandError(f"there is no broker {', '.join(missing)}")
        print("Querying brokers for log directories information")
        for broker in chosen:
            answer = client.ask_broker(broker, DescribeLogDirsRequest(topics=None))
            if answer.error_code:
                raise CommandError(f"broker {broker}: {name_error(answer.error_code)}")
            directories = [
                {
                    "partitions": [
                        {
                            "partition": f"{topic.name}-{each.partition_index}",
                            "size": each.partition_size,
                            "offsetLag": each.offset_lag,
                            "isFuture": each.is_future_key,
                        }
                        for topic in directory.topics
                        if not topics or topic.name in topics
                        for each in topic.partitions
                    ],
                    "error": name_error(directory.error_code) if directory.error_code else None,
                    "logDir": directory.log_dir,
                }
                for directory in answer.results
            ]
            brokers.append({"broker": broker, "logDirs": directories})
    print(f"Received log directory information from brokers {','.join(map(str, chosen))}")
    print(json.dumps({"brokers": brokers, "version": 1}, separators=(",", ":")))
