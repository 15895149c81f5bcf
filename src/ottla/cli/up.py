"""The options of `ottla up`. What it does is in `broker_process.py`: without it `ottla up --help` answers at once."""

import argparse

from ottla.cli.numbers import parse_broker_id, parse_port

CONSOLE_PORT = 9280


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = "Start a broker and serve until stopped."
    parser.add_argument("--data", metavar="DIR", help="data directory (default: ~/.local/share/ottla)")
    parser.add_argument(
        "--read-only",
        metavar="DIR",
        help="serve a data directory, also one of Apache Kafka's, without changing a byte of it",
    )
    parser.add_argument("--port", type=parse_port, help="port to listen on; 0 takes a free one (default: 9092)")
    parser.add_argument("--host", help="address to listen on; 0.0.0.0 lets other machines in (default: localhost)")
    parser.add_argument(
        "--allow-anonymous-network",
        action="store_true",
        help="let anybody on the network read, write and delete everything, if --host or the file say so",
    )
    parser.add_argument(
        "--metrics-port", type=parse_port, help="serve metrics for Prometheus on it; 0 takes a free one"
    )
    parser.add_argument(
        "--console",
        nargs="?",
        type=parse_port,
        const=CONSOLE_PORT,
        metavar="PORT",
        help=f"also start the web console, on localhost:{CONSOLE_PORT} or this port; 0 takes a free one",
    )
    parser.add_argument(
        "--node-id",
        type=parse_broker_id,
        help="number of this broker, unique in its cluster (default: 1, or a new one with --zookeeper)",
    )
    parser.add_argument(
        "--zookeeper",
        metavar="HOST:PORT[,...][/PATH]",
        help="join the cluster whose metadata is in ZooKeeper (default: this broker is a cluster of one)",
    )
    parser.add_argument(
        "--add-scram",
        action="append",
        default=[],
        metavar="SCRAM-SHA-256=[name=NAME,password=PASSWORD]",
        help="create a user of SCRAM if it does not exist, such as the first one of a cluster; may be repeated",
    )
    parser.add_argument("--config", metavar="FILE", help="settings in Kafka's server.properties format")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        dest="settings",
        metavar="KEY=VALUE",
        help="a setting with Kafka's name; wins over all other options; may be repeated",
    )
    parser.add_argument(
        "--log-level",
        default="info",
        choices=("debug", "info", "warning", "error"),
        help="how much is logged to stderr (default: info)",
    )


def run(options: argparse.Namespace) -> int:
    from ottla.cli import broker_process

    return broker_process.run(options)
