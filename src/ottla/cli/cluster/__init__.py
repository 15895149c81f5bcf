"""`ottla cluster`: starts a cluster on this machine, shows the state of one, and moves replicas and leaders.

overview.py    one view of brokers, partitions and their trouble: what the other actions read
asking.py      questions that only each broker can answer for itself
obstacles.py   which brokers cannot change the metadata
directories.py which brokers are cordoned, and how much of a partition each has
status.py      status, brokers
moves.py       reassign, drain: their options; lists moves and cancels them
plans.py       which replicas move where
factors.py     plans with another number of replicas
execution.py   begins the moves of a plan, and waits for them
throttle.py    a limit on the rate of moves
actions.py     how these modules add their actions
elections.py   elect, unregister
restore.py     restore: the metadata into ZooKeeper again, from a broker's copy
up.py          up: its options
local.py       up: ZooKeeper and several brokers as child processes of this command
zookeeper_server.py  ZooKeeper servers as child processes
"""

import argparse

from ottla.cli.cluster import elections, moves, restore, status, up


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    for module in (up, status, moves, elections, restore):
        module.add_actions(actions)


def run(options: argparse.Namespace) -> int:
    status: int = options.run(options)
    return status
