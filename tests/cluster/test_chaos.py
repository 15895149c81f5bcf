"""Real brokers, a real ZooKeeper and real clients under trouble: nothing that was acknowledged is lost.

Brokers are killed, stopped, paused for three sessions, cut off from each other and from ZooKeeper, in one direction
too; ZooKeeper is killed and paused; disks are filled. Meanwhile idempotent and transactional producers write with
acks=all and min.insync.replicas=2, consumers read, and an administrator reassigns partitions, moves replicas between
data directories, and changes, creates and deletes topics. In the end the checker of the simulation judges what all
clients saw, and everything that the administrator began has ended.

OTTLA_CHAOS_HOURS=1    round after round for so long; `make cluster-chaos` sets it
"""

import os
import time
from pathlib import Path
from random import Random

import pytest

from tests.cluster.administration import Administrator
from tests.cluster.faults import Faults
from tests.cluster.load import Load
from tests.cluster.processes import OttlaNodes, run_nodes
from tests.samples import sample_size
from tests.simulation.checker import check

HOURS = float(os.environ.get("OTTLA_CHAOS_HOURS", "0"))
FAULTS = sample_size(2, 20)
"""Faults in a round."""


def play_round(nodes: OttlaNodes, name: str, random: Random) -> None:
    """Some faults under load, then peace, and the verdict."""
    load = Load(nodes.bootstrap, name, random)
    administrator = Administrator(nodes, load, name, Random(random.random()))
    faults = Faults(nodes, load, random)
    problems: list[str] = []
    try:
        load.start()
        administrator.start()
        load.await_progress()
        for _ in range(FAULTS):
            faults.strike()
            load.await_progress()
        administrator.settle()
        load.finish()
        workers = [*load.workers, administrator]
        failures = {worker.name: worker.failures[:3] for worker in workers if worker.failures}
        problems += [str(violation) for violation in check(load.history)]
        print(f"{len(load.history.events)} events, {load.describe()}")
        print(administrator.describe())
        assert not problems and not failures, (faults.told, problems[:10], failures)
        administrator.check_replicas()
    except BaseException:
        explanation = nodes.directory / f"problems-{name}.txt"
        topics = [load.ledger[0].topic, load.transfers[0].topic] if problems else []
        batches = [line for topic in topics for line in administrator.describe_batches(topic)]
        explanation.write_text("\n".join([*problems, *faults.told, *administrator.told, *load.list_told(), *batches]))
        print(f"what was found, done, and told by clients, and all batches: {explanation}")
        raise
    load.delete_topics(administrator.list_topics())


@pytest.mark.always
@pytest.mark.usefixtures("zookeeper_jars")
def test_nothing_acknowledged_is_lost_whatever_fails(tmp_path: Path, seed: int) -> None:
    # With one ZooKeeper, and three in a long run. The seed decides which faults come, not when they hit.
    random = Random(seed)
    ends = time.monotonic() + HOURS * 3600
    brokers, zookeepers = (4, 3) if HOURS else (3, 1)
    settings = {"log.cleaner.backoff.ms": "1000"}
    with run_nodes(tmp_path / "cluster", zookeepers, settings, disks=True, brokers=brokers, directories=2) as nodes:
        round_number = 0
        while round_number == 0 or time.monotonic() < ends:
            play_round(nodes, str(round_number), random)
            round_number += 1
