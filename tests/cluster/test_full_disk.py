"""A broker whose disk is really full, with real processes: others lead, it comes back, and it starts again."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.load import LedgerProducer, create_topic, read_log
from tests.cluster.processes import OttlaNodes, fill_disk, free_disk, run_nodes
from tests.simulation.checker import check
from tests.simulation.history import Event, History

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("zookeeper_jars")]

TOPIC = "ledger"
PARTITIONS = 6
VICTIM = 1


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[OttlaNodes]:
    with run_nodes(tmp_path / "cluster", disks=True) as running:
        if not running.has_disks:
            pytest.skip("only root can mount a disk that is small enough to be filled")
        yield running


def is_out(nodes: OttlaNodes) -> bool:
    """Whether the broker is in sync nowhere, and every partition has another leader."""
    found = nodes.find_partitions(TOPIC)
    return all(leader > 0 and VICTIM not in (leader, *isr) for leader, isr in found.values())


@pytest.mark.parametrize("is_killed", [False, True], ids=["it runs on", "it is killed and starts on the full disk"])
def test_a_full_disk_stops_no_producer(nodes: OttlaNodes, is_killed: bool) -> None:
    events: list[Event] = []
    ledger = create_topic(nodes.bootstrap, TOPIC, PARTITIONS)
    nodes.wait_in_sync(TOPIC)
    broker = nodes.brokers[VICTIM]
    producer = LedgerProducer("producer", nodes.bootstrap, ledger, events)
    producer.start()
    producer.await_acknowledged(300)
    fill_disk(broker.data)
    nodes.wait_for(lambda: is_out(nodes), "others lead everything")
    producer.await_acknowledged(300)
    if is_killed:
        broker.kill()
        broker.start()
        producer.await_acknowledged(300)
        assert is_out(nodes)
    assert broker.is_up
    free_disk(broker.data)
    nodes.wait_in_sync(TOPIC)
    producer.await_acknowledged(300)
    producer.stop()
    producer.join()
    history = History(frozenset(), events)
    history.final = {partition: read_log(nodes.bootstrap, partition, committed=False) for partition in ledger}
    assert (producer.failures, check(history)) == ([], [])
    assert "the disk is full" in broker.read_log()
