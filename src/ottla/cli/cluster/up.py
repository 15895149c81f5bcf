"""The options of `ottla cluster up`. What it does is in `local.py`, which the other actions start faster without."""

import argparse

from ottla.cli.cluster.actions import Actions, add_action
from ottla.cli.numbers import parse_port

DEFAULT_PORT = 9092


def add_actions(actions: Actions) -> None:
    up = add_action(actions, "up", "start a whole cluster on this machine", _up, client=False)
    up.add_argument("--brokers", type=int, default=3, metavar="N", help="how many brokers (default: 3)")
    up.add_argument(
        "--data", metavar="DIR", help="directory for the data of all of them (default: ~/.local/share/ottla-cluster)"
    )
    up.add_argument(
        "--zookeeper",
        metavar="HOST:PORT[/PATH]",
        help="a ZooKeeper that is running (default: start one; needs Java and PySpark, which the extra 'spark' brings)",
    )
    up.add_argument(
        "--restore",
        action="store_true",
        help="write a ZooKeeper that has lost its data again, from the newest copy of a broker",
    )
    up.add_argument("--port", type=parse_port, default=DEFAULT_PORT, help="port of the first broker; 0 takes free ones")
    up.add_argument("--host", default="localhost", help="address to listen on (default: localhost)")
    up.add_argument(
        "--allow-anonymous-network",
        action="store_true",
        help="let anybody on the network read, write and delete everything, if --host says so",
    )
    up.add_argument(
        "--set",
        action="append",
        default=[],
        dest="settings",
        metavar="KEY=VALUE",
        help="a setting of every broker, with Kafka's name; may be repeated",
    )


def _up(options: argparse.Namespace) -> int:
    from ottla.cli.cluster.local import up

    return up(options)
