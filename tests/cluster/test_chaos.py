"""Real brokers, a real ZooKeeper and real clients under trouble: nothing that was acknowledged is lost.

Brokers are killed, stopped, paused for three sessions, cut off from each other and from ZooKeeper, in one direction
too; ZooKeeper is killed and paused; disks are filled. Meanwhile idempotent and transactional producers write with
acks=all and min.insync.replicas=2, and consumers read. In the end the checker of the simulation judges what all clients
saw.

OTTLA_CHAOS_HOURS=1    round after round for so long; `make chaos-cluster` sets it
"""

import os
import time
from pathlib import Path
from random import Random

import pytest

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
    load.start()
    faults = Faults(nodes, load, random)
    load.await_progress()
    for _ in range(FAULTS):
        faults.strike()
        load.await_progress()
    for partitions in (load.ledger, load.transfers):
        nodes.wait_in_sync(partitions[0].topic)
    load.finish()
    failures = {worker.name: worker.failures[:3] for worker in load.workers if worker.failures}
    problems = [str(violation) for violation in check(load.history)]
    print(f"{len(load.history.events)} events, {load.describe()}")
    assert not problems and not failures, (faults.told, problems[:10], failures)
    load.delete_topics()


@pytest.mark.always
@pytest.mark.usefixtures("zookeeper_jars")
def test_nothing_acknowledged_is_lost_whatever_fails(tmp_path: Path, seed: int) -> None:
    # With one ZooKeeper, and three in a long run. The seed decides which faults come, not when they hit.
    random = Random(seed)
    ends = time.monotonic() + HOURS * 3600
    with run_nodes(tmp_path / "cluster", zookeepers=3 if HOURS else 1, disks=True) as nodes:
        round_number = 0
        while round_number == 0 or time.monotonic() < ends:
            play_round(nodes, str(round_number), random)
            round_number += 1
