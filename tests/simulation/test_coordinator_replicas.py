"""The runtime of the coordinators in a partition with two replicas: what waits for the follower, what is refused."""

import asyncio
from dataclasses import replace
from errno import EIO

from ottla.coordinators.machine import Outcome, Turn
from ottla.errors import ErrorCode, KafkaError
from ottla.replication.partition import Partition
from tests.simulation.test_coordinators import (
    TOPIC,
    Notebook,
    catch_error_code,
    coordinator_of,
    look,
    note,
    play,
    wait_until_loaded,
)
from tests.simulation.world import Machine


def make_replicated(machine: Machine, isr: tuple[int, ...] = (1, 2)) -> Partition:
    """Give the coordinator's partition a second replica: broker 2, which fetches when a test says so."""
    assert machine.process is not None
    partition = machine.process.broker.node.replicas.get(TOPIC, 0)
    assert partition.state is not None
    state = partition.state
    partition.become(replace(state, replicas=(1, 2), isr=isr, partition_epoch=state.partition_epoch + 1))
    return partition


def fetch_all(partition: Partition) -> None:
    """Broker 2 has everything."""
    partition.note_follower_fetch(2, 1, partition.log.end_offset, 0, asyncio.get_running_loop().time())


def test_a_new_leader_answers_nothing_that_is_not_committed() -> None:
    """Neither a reply nor a refusal that comes from records which the ISR does not have: they may yet be lost."""

    async def script(machine: Machine) -> None:
        coordinator = coordinator_of(machine)
        await coordinator.run("note", "a", note("a", "one"))
        partition = make_replicated(machine)
        fetch_all(partition)
        loop = asyncio.get_running_loop()
        noted = loop.create_task(coordinator.run("note", "a", note("a", "two")))
        await asyncio.sleep(0)
        coordinator.stop()
        noted.cancel()
        coordinator = coordinator_of(machine)  # as after a change of leaders: the record is in the log
        await wait_until_loaded(coordinator)

        def refuse(notebook: Notebook, turn: Turn) -> Outcome:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, notebook.notes["a"])

        looked = loop.create_task(coordinator.run("look", "a", look("a")))
        refused = loop.create_task(catch_error_code(coordinator.run("test", "a", refuse)))
        await asyncio.sleep(1)
        assert not looked.done() and not refused.done()
        fetch_all(partition)
        assert await looked == "two"
        assert await refused is ErrorCode.GROUP_ID_NOT_FOUND

    play(script)


def test_too_few_replicas_refuse_a_write_before_its_turn() -> None:
    """The machine stays loaded and reads are answered; what no client waits for is done when replicas are back."""

    async def script(machine: Machine) -> None:
        coordinator = coordinator_of(machine, settings={"min.insync.replicas": "2"})
        await coordinator.run("note", "a", note("a", "one"))
        partition = make_replicated(machine, isr=(1,))
        before = await wait_until_loaded(coordinator)
        turns: list[str] = []

        def count(notebook: Notebook, turn: Turn) -> Outcome:
            turns.append("a")
            return note("a", "three")(notebook, turn)

        assert await catch_error_code(coordinator.run("test", "a", count)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert not turns
        assert await coordinator.run("look", "a", look("a")) == "one"
        # An outcome that may be refused is decided, and then refused.
        tried = coordinator.run("note", "a", lambda *_: note("a", "two")(*_)._replace(may_be_refused=True))
        assert await catch_error_code(tried) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        coordinator.tell_all("test", count)
        await asyncio.sleep(1)
        assert not turns
        make_replicated(machine)
        fetch_all(partition)
        await asyncio.sleep(0)
        fetch_all(partition)
        assert turns == ["a"]
        assert await coordinator.run("look", "a", look("a")) == "three"
        assert await wait_until_loaded(coordinator) is before

    play(script)


def test_a_machine_is_not_woken_while_it_cannot_write() -> None:
    async def script(machine: Machine) -> None:
        coordinator = coordinator_of(machine, settings={"min.insync.replicas": "2"})
        await coordinator.create_topic()
        notebook = await wait_until_loaded(coordinator)
        partition = make_replicated(machine, isr=(1,))
        loop = asyncio.get_running_loop()
        notebook.wake_at = round(loop.time() * 1000)
        await coordinator.run("look", "a", look("a"))
        await asyncio.sleep(5)
        assert notebook.wake_at is not None
        make_replicated(machine)
        fetch_all(partition)
        await asyncio.sleep(1)
        assert notebook.wake_at is None

    play(script)


def test_a_failed_load_keeps_its_delay_when_the_metadata_changes() -> None:
    """A change of some ISR is no reason to read a damaged log again at once; a new leader epoch is."""

    async def script(machine: Machine) -> None:
        coordinator = coordinator_of(machine)
        await coordinator.run("note", "a", note("a", "one"))
        coordinator.stop()
        machine.disk.fail("read_at", EIO, f"*{TOPIC}-0*.log", times=9)
        coordinator = coordinator_of(machine)
        while coordinator._failures.get(0, 0) < 5:
            await asyncio.sleep(0.01)
        assert machine.process is not None
        for _ in range(10):
            coordinator.follow(machine.process.broker.node.image)
            await asyncio.sleep(0)
        assert coordinator._failures[0] == 5 and coordinator.loading_count == 1

    play(script)
