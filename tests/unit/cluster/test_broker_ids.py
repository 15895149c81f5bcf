"""Numbers for brokers without one: above those that people give, and never given twice."""

import asyncio
from collections.abc import Sequence
from random import Random

import pytest

from ottla.broker.node_ids import choose_node_id
from ottla.cluster.broker_ids import generate_broker_id
from ottla.cluster.memory_store import Fate, MemoryStore
from ottla.cluster.registration import unregister_broker
from ottla.cluster.restore import restore_store
from ottla.cluster.store import Operation
from ottla.config import BrokerConfig, ConfigError
from ottla.storage.directories import DataDirectory
from tests.simulation.disk import SimulatedDisk
from tests.simulation.loop import simulate
from tests.unit.cluster.cluster_members import offload
from tests.unit.cluster.clusters import cluster, decide, fenced


def make_directory(node_id: int | None) -> DataDirectory:
    disk = SimulatedDisk(Random(1))
    disk.make_directory("/data")
    directory = DataDirectory.open(disk, "/data")
    if node_id is not None:
        directory.claim("cluster", node_id, b"d" * 16)
    return directory


def choose(settings: dict[str, str], kept: int | None = None, store: MemoryStore | None = None) -> int:
    async def run() -> int:
        client = (store or MemoryStore()).client("broker")
        config = await choose_node_id(BrokerConfig.of(settings), [make_directory(kept)], client, Random(1))
        return config.node_id

    return simulate(run())


def test_numbers_are_above_the_reserved_ones_and_differ() -> None:
    async def run() -> list[int]:
        store = MemoryStore()
        taken = [generate_broker_id(store.client(f"broker-{each}"), 1000, Random(each)) for each in range(5)]
        return sorted(await asyncio.gather(*taken))

    assert simulate(run()) == [1001, 1002, 1003, 1004, 1005]


def test_a_lost_answer_costs_a_number_at_most() -> None:
    async def run() -> tuple[int, int]:
        store = MemoryStore()
        lost = iter([True])

        def decide(client: str, request: str, operations: Sequence[Operation]) -> Fate:
            is_lost = request == "commit" and "SetData" in repr(operations) and next(lost, False)
            return Fate(0.001, 0.001, is_lost, True)

        store.fate = decide
        first = await generate_broker_id(store.client("one"), 7, Random(1))
        return first, await generate_broker_id(store.client("two"), 7, Random(1))

    first, second = simulate(run())
    assert (first, second) == (9, 10)


def test_a_restored_store_gives_no_number_of_its_brokers() -> None:
    async def run() -> int:
        store = MemoryStore()
        await restore_store(store.client("restore"), cluster(brokers=3), Random(1), offload)
        return await generate_broker_id(store.client("broker"), 1, Random(1))

    assert simulate(run()) == 4


def test_a_restored_store_gives_no_number_of_a_broker_that_was_unregistered() -> None:
    image = cluster(brokers=3)
    for broker_id in (3, 2):
        image = decide(fenced(image, broker_id), unregister_broker(fenced(image, broker_id), broker_id))

    async def run() -> int:
        store = MemoryStore()
        await restore_store(store.client("restore"), image, Random(1), offload)
        return await generate_broker_id(store.client("broker"), 1, Random(1))

    assert simulate(run()) == 4


def test_a_number_that_was_given_or_kept_is_used() -> None:
    assert choose({"node.id": "7"}) == 7
    assert choose({"broker.id": "7"}) == 7
    assert choose({"broker.id": "-1"}, kept=1001) == 1001
    assert choose({}, kept=1) == 1, "the directory of a broker that was alone"
    assert choose({"broker.id.generation.enable": "false"}, kept=5) == 5
    assert choose({"node.id": "1001"}, kept=1001) == 1001


def test_without_a_number_one_is_generated() -> None:
    store = MemoryStore()
    assert choose({"broker.id": "-1", "reserved.broker.max.id": "10"}, store=store) == 11
    assert choose({}, store=store) == 1001


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"node.id": "1001"}, "node.id: 1001 is above reserved.broker.max.id"),
        ({"broker.id.generation.enable": "false"}, "needs an id"),
    ],
)
def test_what_is_refused(settings: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        choose(settings)


def test_any_number_may_be_given_where_none_is_generated() -> None:
    assert choose({"node.id": "5000", "broker.id.generation.enable": "false"}) == 5000
