"""kill -9 of driver, Python workers and broker while a query runs: every row arrives once, and no group runs ahead.

`make spark-chaos` kills more often, and in all kinds of queries. The suite runs one kind, chosen by its seed, and kills
the broker and the driver. An executor dies in `test_cluster.py`; a Python worker alone dies only in `make spark-chaos`.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

import ottla.testing
from ottla.testing import LocalBroker
from tests.conftest import SEED
from tests.spark.driver import BATCH, KINDS
from tests.spark.killing import Job

CHAOS = "OTTLA_KILLS" in os.environ
KILLS = int(os.environ.get("OTTLA_KILLS", "1"))
VICTIMS = ("broker", "driver", "worker")


@pytest.fixture
def own_broker() -> Iterator[LocalBroker]:
    with ottla.testing.broker(process=True) as broker:
        yield broker


@pytest.mark.always
@pytest.mark.parametrize("kind", KINDS if CHAOS else [Random(SEED).choice(KINDS)])
def test_kills_lose_and_repeat_nothing(
    own_broker: LocalBroker, tmp_path: Path, early_python: str, seed: int, kind: str
) -> None:
    random = Random(seed)
    victims = random.sample(VICTIMS, len(VICTIMS))
    job = Job(own_broker, kind, tmp_path, early_python)
    try:
        job.send(BATCH)
        for number in range(KILLS):
            victim = victims[number] if number < len(victims) else random.choice(VICTIMS)
            job.send(BATCH)
            job.run()
            job.wait_for_writes(random)
            if victim == "driver":
                job.kill_driver()
            elif victim == "worker":
                job.kill_worker(random)
            else:
                job.kill_broker()
            job.check()
        job.run()
        job.wait_for_all()
        job.check_all()
    finally:
        job.close()
