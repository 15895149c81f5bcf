"""A database is changed and copied through change capture, topics, a join and sinks, while parts of all that are killed
or paused at random points: both sides are equal in the end."""

import os
import time
from pathlib import Path
from random import Random

import pytest

import ottla.testing
from benchmarks.peers.postgresql import LOGICAL
from tests.connect.jdbc_databases import postgresql_server
from tests.connect.runs import wait_until
from tests.connect.shop import KINDS, Shop

BIG = 500_000
KILLS = int(os.environ.get("OTTLA_KILLS", "14"))
MEMORY_MAX = 3 * 1024**3
"""Of the worker: a JVM with a heap of 1 GB, its driver, and Python workers. Shared pages are counted for each."""


def run_shop(directory: Path, kinds: list[str], big_rows: int, random: Random) -> int:
    """Returns the memory that the worker had at most."""
    with postgresql_server(LOGICAL) as server, ottla.testing.broker(process=True) as broker:
        shop = Shop(directory, server, broker, random)
        try:
            shop.change(200)
            wait_until(lambda: not shop.look(), shop.explain)
            shop.change_many(big_rows)
            for kind in kinds:
                shop.change(random.randrange(20, 100))
                time.sleep(random.random())
                shop.look()
                shop.hit(kind)
            shop.change(50)
            deadline = time.monotonic() + 300 + big_rows / 500
            while shop.look():
                assert time.monotonic() < deadline, shop.explain()
                time.sleep(0.5)
            shop.change(10)
            wait_until(lambda: not shop.look(), shop.explain)
        finally:
            shop.close()
    return shop.memory_max


@pytest.mark.long
def test_a_few_kills(tmp_path: Path, seed: int) -> None:
    """Three kinds of faults, as the seed chooses, and a transaction of 5,000 rows."""
    random = Random(seed)
    run_shop(tmp_path, random.sample(KINDS, 3), 5_000, random)


@pytest.mark.long
@pytest.mark.skipif("OTTLA_KILLS" not in os.environ, reason="make connect-chaos runs it")
def test_many_kills(tmp_path: Path, seed: int) -> None:
    """All kinds in turns, in a new order each time, and a transaction of 500,000 rows in little memory."""
    random = Random(seed)
    kinds: list[str] = []
    while len(kinds) < KILLS:
        kinds += random.sample(KINDS, len(KINDS))
    memory_max = run_shop(tmp_path, kinds[:KILLS], BIG, random)
    print(f"the worker had at most {memory_max / 1e6:,.0f} MB")
    assert memory_max < MEMORY_MAX
