"""The broker is killed again and again while drivers of an exactly-once sink write and die too: all rows come once.

Spark itself is left out, so that there is time for many deaths. `make spark-chaos` includes it.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from random import Random
from threading import Event, Thread

import pytest

import ottla.testing
from ottla.client.client import Client
from ottla.client.connection import Unreachable
from ottla.client.exactly_once.task_ledger import BatchToRepeat, TaskLedger
from ottla.client.groups import fetch_offsets
from ottla.client.transaction_states import list_transactional_ids
from ottla.errors import KafkaError
from ottla.testing import LocalBroker
from tests.unit.client.crashes import MortalClient, dies
from tests.unit.client.exactly_once import test_batch_ledger, test_task_ledger
from tests.unit.client.reading_back import await_markers, values

KILLS = int(os.environ.get("OTTLA_KILLS", "2"))
BATCHES = 6 * KILLS
ATTEMPTS_MAX = 50
REQUESTS = {"batch": 18, "task": 45}
"""The most requests after which a driver dies. A batch that needs fewer requests sees no death."""


@contextmanager
def kill_often(broker: LocalBroker, random: Random) -> Iterator[None]:
    """Kill the broker often until the end of the block, but at most KILLS times."""
    over = Event()

    def kill() -> None:
        for _ in range(KILLS):
            if over.wait(random.uniform(0.05, 0.6)):
                return
            broker.kill()
            broker.restart()

    killer = Thread(target=kill)
    killer.start()
    try:
        yield
    finally:
        over.set()
        killer.join()


def insist(work: Callable[[Client], None], settings: dict[str, str], random: Random, requests: int) -> None:
    """Repeat the work until a driver completes it. Each driver may die at any request, before or after the answer."""
    for _ in range(ATTEMPTS_MAX):
        mortal = MortalClient(settings, random.randrange(requests), sends_before=random.random() < 0.5)
        try:
            if not dies(work, mortal):
                return
        except (KafkaError, Unreachable, BatchToRepeat):
            continue  # the query ends with an error line, and is started again
    raise AssertionError("no driver got through")


def run_tasks(client: Client, topic: str, batch_id: int, random: Random) -> None:
    """Run a batch as tasks with a new plan. Transactions that another plan left open are ended first, as a new run
    does."""
    test_task_ledger.run(client, topic, batch_id, random.randrange(1, 5))
    TaskLedger(client, "query", topic).end_leftovers()


@pytest.mark.parametrize("way", ["batch", "task"])
def test_drivers_and_brokers_that_die_lose_and_repeat_nothing(way: str, seed: int) -> None:
    """A batch is one transaction, or one for each task. The group's offsets that belong to a batch are never ahead of
    it."""
    random = Random(seed)
    with ottla.testing.broker(process=True) as broker:
        broker.create_topic("output", test_task_ledger.PARTITIONS)
        broker.create_topic(test_batch_ledger.SOURCE.topic)
        settings = {"bootstrap.servers": broker.bootstrap}
        reading = Client({**settings, "retry.backoff.ms": "20"})
        with kill_often(broker, Random(seed + 1)):
            for batch in range(BATCHES):
                if way == "batch":
                    work = partial(test_batch_ledger.run, topic="output", batch_id=batch)
                    insist(work, settings, random, REQUESTS[way])
                    await_markers(reading)
                    ahead = fetch_offsets(reading, "readers", [test_batch_ledger.SOURCE])[
                        test_batch_ledger.SOURCE
                    ].offset
                    assert values(reading, "output") == test_batch_ledger.model(ahead // 10)
                else:
                    work = partial(run_tasks, topic="output", batch_id=batch, random=random)
                    insist(work, settings, random, REQUESTS[way])
        await_markers(reading)
        if way == "batch":
            assert values(reading, "output") == test_batch_ledger.model(BATCHES)
        else:
            assert test_task_ledger.rows_of(reading, "output") == test_task_ledger.model(BATCHES)
        assert list_transactional_ids(reading, "", only_open=True) == []
        reading.close()
