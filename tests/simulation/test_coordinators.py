"""What runs the coordinators' machines, on a simulated broker: replies, loading, failures, timers and errands.

The machine is a notebook: it stores what it is told under a name, as the metadata of a committed offset.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from errno import EIO, ENOSPC
from typing import Any

import pytest

from ottla.broker.node import Node
from ottla.config import BrokerConfig
from ottla.coordinators.formats import GROUP_FORMAT, OffsetCommitKey, OffsetCommitValue
from ottla.coordinators.internal_topics import InternalTopic, key_hash
from ottla.coordinators.machine import NOTHING, Meters, Outcome, Producer, Reply, StoredRecord, Turn
from ottla.coordinators.runtime import Coordinator, CoordinatorContext
from ottla.errors import ErrorCode, KafkaError
from ottla.records import batch
from ottla.replication.transactions import TransactionMarker
from tests.simulation.history import Ending
from tests.simulation.loop import simulate
from tests.simulation.world import Machine, World

TOPIC = "notebooks"
FLUSHED = {"log.flush.interval.messages": "1"}


class Notebook:
    def __init__(self) -> None:
        self.notes: dict[str, str] = {}
        self.pending: dict[int, dict[str, str]] = {}
        self.wake_at: int | None = None
        self.woken: list[int] = []
        self.loads = 0

    def replay(self, record: StoredRecord, written_ms: int, producer: Producer | None) -> None:
        key, value = record
        assert isinstance(key, OffsetCommitKey)
        notes = self.notes if producer is None else self.pending.setdefault(producer.id, {})
        if isinstance(value, OffsetCommitValue):
            notes[key.group_id] = value.metadata
        else:
            notes.pop(key.group_id, None)

    def end_transaction(self, producer: Producer, committed: bool) -> None:
        pending = self.pending.pop(producer.id, {})
        if committed:
            self.notes |= pending

    def finish_loading(self, turn: Turn) -> Outcome:
        self.loads += 1
        return NOTHING

    def wake(self, turn: Turn) -> Outcome:
        self.woken.append(turn.monotonic_ms)
        self.wake_at = None
        return NOTHING


class NotebookCoordinator(Coordinator[Notebook]):
    OPERATIONS = ("look", "note", "test")


def note(name: str, text: str, producer: Producer | None = None) -> Callable[[Notebook, Turn], Outcome]:
    record = StoredRecord(OffsetCommitKey(group_id=name), OffsetCommitValue(metadata=text))
    return lambda notebook, turn: Outcome([record], [Reply(turn.ticket, f"noted {text}")], producer)


def look(name: str) -> Callable[[Notebook, Turn], Outcome]:
    return lambda notebook, turn: Outcome(replies=[Reply(turn.ticket, notebook.notes.get(name))])


def wait_for_ever(notebook: Notebook, turn: Turn) -> Outcome:
    return NOTHING


def coordinator_of(machine: Machine, partitions: int = 1) -> Coordinator[Notebook]:
    assert machine.process is not None
    node: Node = machine.process.broker.node
    replicas = node.replicas
    context = CoordinatorContext(
        node.broker_id,
        node.metadata,
        replicas,
        node.clock,
        node.random,
        node.replication._offload,
        lambda: node.config,
        Meters.fresh(),
    )
    topic = InternalTopic(TOPIC, lambda config: partitions, lambda config: 3, lambda config: {})
    coordinator = NotebookCoordinator(topic, GROUP_FORMAT, Notebook, context)
    node.metadata.on_change(lambda before, after, changes: coordinator.apply(before, after))
    coordinator.follow(node.image)
    return coordinator


def play(script: Callable[[Machine], Awaitable[None]], **settings: str) -> None:
    async def main() -> None:
        world = World(seed=1)
        try:
            machine = world.add_machine("broker-1", {"node.id": "1", **settings})
            assert await machine.start()
            await script(machine)
            assert not world.surprises
        finally:
            world.close()

    simulate(main())


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    """What the coordinators log: the simulation keeps log lines away from the handlers of the test run."""
    logger = logging.getLogger("ottla.coordinators")
    logger.addHandler(caplog.handler)
    yield caplog
    logger.removeHandler(caplog.handler)


async def failure(awaitable: Awaitable[Any]) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        await awaitable
    return caught.value.code


async def loaded(coordinator: Coordinator[Notebook], index: int = 0) -> Notebook:
    """The machine of a partition, as soon as it is loaded."""
    while index not in coordinator._shards or not coordinator._shards[index].is_loaded:
        await asyncio.sleep(0.01)
    return coordinator._shards[index].machine


def test_what_was_noted_is_found_by_the_next_life() -> None:
    """The topic is made on first use; after a restart the machine is loaded from its log."""

    async def script(machine: Machine) -> None:
        coordinator = coordinator_of(machine)
        assert await coordinator.run("note", "a", note("a", "one")) == "noted one"
        assert await coordinator.run("note", "b", note("b", "two")) == "noted two"
        await machine.stop()
        await machine.start()
        coordinator = coordinator_of(machine)
        assert await failure(coordinator.run("look", "a", look("a"))) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert await failure(coordinator.run_all("look", look("a"))) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert (await loaded(coordinator)).loads == 1
        assert await coordinator.run("look", "a", look("a")) == "one"
        assert await coordinator.run_all("look", look("b")) == ["two"]

    play(script)


def test_a_reply_waits_for_the_disk() -> None:
    """Where every record is flushed, nobody hears of what a power cut could take back, neither writer nor reader."""

    async def script(machine: Machine) -> None:
        coordinator = coordinator_of(machine)
        await coordinator.create_topic()
        loop = asyncio.get_running_loop()
        writer = loop.create_task(coordinator.run("note", "a", note("a", "one")))
        await asyncio.sleep(0)
        reader = loop.create_task(coordinator.run("look", "a", look("a")))
        await asyncio.sleep(0)
        assert not writer.done() and not reader.done()
        assert (await writer, await reader) == ("noted one", "one")
        machine.crash(Ending.POWER_CUT)
        await machine.start()
        coordinator = coordinator_of(machine)
        await loaded(coordinator)
        assert await coordinator.run("look", "a", look("a")) == "one"

    play(script, **FLUSHED)


def test_a_reply_that_comes_before_anybody_waits() -> None:
    """What `answer` returns may be awaited late: the reply, or the news that there is none, is not lost."""

    async def script(machine: Machine) -> None:
        coordinator = coordinator_of(machine)
        await coordinator.create_topic()
        promised = coordinator.answer("note", "a", note("a", "one"))
        await asyncio.sleep(1)
        assert await promised == "noted one"
        assert coordinator.answer("look", "a", look("a")) == "one"
        forgotten = coordinator.answer("test", "a", wait_for_ever)
        coordinator.stop()
        assert await failure(forgotten) == ErrorCode.NOT_COORDINATOR

    play(script, **FLUSHED)


def test_a_reply_that_comes_too_late(logged: pytest.LogCaptureFixture) -> None:
    """The disk takes longer than offsets.commit.timeout.ms: who asked is told to ask again, and the log says why."""

    async def script(machine: Machine) -> None:
        coordinator = coordinator_of(machine)
        await coordinator.run("note", "a", note("a", "one"))
        assert machine.process is not None
        machine.process._threads.closed = True  # from now on no flush ends
        began = asyncio.get_running_loop().time()
        assert await failure(coordinator.run("note", "a", note("a", "two"))) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert f"{TOPIC}-0: note was not committed in time" in logged.messages
        assert asyncio.get_running_loop().time() - began == pytest.approx(5, abs=0.01)
        assert await failure(coordinator.run("look", "a", look("a"))) == ErrorCode.COORDINATOR_NOT_AVAILABLE

    play(script, **FLUSHED)


def test_a_failed_append_begins_again(logged: pytest.LogCaptureFixture) -> None:
    """The disk is full: the request fails, everyone who waits is told, and the machine is loaded again from the log.

    The broker's log names the operation whose records were lost.
    """

    async def script(machine: Machine) -> None:
        coordinator = coordinator_of(machine)
        await coordinator.run("note", "a", note("a", "one"))
        patient = asyncio.get_running_loop().create_task(failure(coordinator.run("test", "a", wait_for_ever)))
        await asyncio.sleep(0)
        before = await loaded(coordinator)
        machine.disk.fail("append", ENOSPC, f"*{TOPIC}-0*.log")
        assert await failure(coordinator.run("note", "a", note("a", "two"))) == ErrorCode.NOT_COORDINATOR
        assert await patient == ErrorCode.NOT_COORDINATOR
        assert any(line.startswith(f"{TOPIC}-0: the records of note cannot be appended") for line in logged.messages)
        assert await failure(coordinator.run("look", "a", look("a"))) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        after = await loaded(coordinator)
        assert after is not before
        assert await coordinator.run("look", "a", look("a")) == "one"
        assert await coordinator.run("note", "a", note("a", "three")) == "noted three"

    play(script)


def test_a_log_that_cannot_be_read_is_tried_again() -> None:
    """As long as the disk gives errors nobody is answered wrongly; when it is well again, all is there."""

    async def script(machine: Machine) -> None:
        coordinator = coordinator_of(machine)
        await coordinator.run("note", "a", note("a", "one"))
        coordinator.stop()
        machine.disk.fail("read", EIO, f"*{TOPIC}-0*.log", times=3)
        coordinator = coordinator_of(machine)
        await loaded(coordinator)
        assert await coordinator.run("look", "a", look("a")) == "one"

    play(script)


def test_leadership_that_goes() -> None:
    """Whoever waits is sent to look for the new coordinator, at once."""

    async def script(machine: Machine) -> None:
        coordinator = coordinator_of(machine)
        await coordinator.run("note", "a", note("a", "one"))
        patient = asyncio.get_running_loop().create_task(failure(coordinator.run("test", "a", wait_for_ever)))
        await asyncio.sleep(0)
        assert machine.process is not None
        partition = machine.process.broker.node.replicas.get(TOPIC, 0)
        assert partition.state is not None
        partition.become(replace(partition.state, leader=2, leader_epoch=partition.leader_epoch + 1))
        assert await patient == ErrorCode.NOT_COORDINATOR
        assert await failure(coordinator.run("look", "a", look("a"))) == ErrorCode.NOT_COORDINATOR

    play(script)


def test_a_broker_that_stops_answers() -> None:
    """Nobody who waits holds up the end of a broker."""

    async def script(machine: Machine) -> None:
        coordinator = coordinator_of(machine)
        patient = asyncio.get_running_loop().create_task(failure(coordinator.run("test", "a", wait_for_ever)))
        await asyncio.sleep(0.01)
        coordinator.stop()
        assert await patient == ErrorCode.NOT_COORDINATOR
        assert await failure(coordinator.run("look", "a", look("a"))) == ErrorCode.NOT_COORDINATOR

    play(script)


def test_a_refusal_changes_nothing() -> None:
    """KafkaError of the machine reaches the one who asked, and nobody else."""

    async def script(machine: Machine) -> None:
        coordinator = coordinator_of(machine)
        await coordinator.run("note", "a", note("a", "one"))

        def refuse(notebook: Notebook, turn: Turn) -> Outcome:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)

        before = await loaded(coordinator)
        assert await failure(coordinator.run("test", "a", refuse)) == ErrorCode.GROUP_ID_NOT_FOUND
        assert await loaded(coordinator) is before
        assert not coordinator._shards[0].waiting

    play(script)


def test_operations_are_counted_by_name() -> None:
    """Once each, also if the topic is created first, if the operation is refused, or if it asks all partitions."""

    async def script(machine: Machine) -> None:
        def refuse(notebook: Notebook, turn: Turn) -> Outcome:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)

        coordinator = coordinator_of(machine, partitions=3)
        await coordinator.run("note", "a", note("a", "one"))
        await coordinator.run_all("look", look("a"))
        await failure(coordinator.run("test", "a", refuse))
        coordinator.tell_all("test", wait_for_ever)
        assert coordinator.operations == {"look": 1, "note": 1, "test": 2}

    play(script)


def test_one_who_goes_away() -> None:
    """A client that hangs up leaves nothing behind; a reply to it is nobody's."""

    async def script(machine: Machine) -> None:
        coordinator = coordinator_of(machine)
        await coordinator.create_topic()
        impatient = asyncio.get_running_loop().create_task(coordinator.run("test", "a", wait_for_ever))
        await asyncio.sleep(0.01)
        ticket = coordinator._tickets
        impatient.cancel()
        await asyncio.wait([impatient])
        assert not coordinator._shards[0].waiting
        late = Outcome(replies=[Reply(ticket, "late")])
        coordinator.tell_all("test", lambda notebook, turn: late)

    play(script)


def test_a_machine_is_woken_in_time() -> None:
    """Not before it wants to be; an alarm that was put off rings once, at the later time."""

    async def script(machine: Machine) -> None:
        coordinator = coordinator_of(machine)
        await coordinator.create_topic()
        notebook = await loaded(coordinator)

        def in_a_while(milliseconds: int) -> Callable[[Notebook, Turn], Outcome]:
            def decide(notebook: Notebook, turn: Turn) -> Outcome:
                notebook.wake_at = turn.monotonic_ms + milliseconds
                return Outcome(replies=[Reply(turn.ticket, notebook.wake_at)])

            return decide

        await coordinator.run("test", "a", in_a_while(1000))
        await asyncio.sleep(0.5)
        wanted = await coordinator.run("test", "a", in_a_while(1000))
        await asyncio.sleep(3)
        assert notebook.woken == [wanted]
        await coordinator.run("test", "a", in_a_while(5000))
        wanted = await coordinator.run("test", "a", in_a_while(10))
        await asyncio.sleep(1)
        assert notebook.woken[1:] == [wanted]

    play(script)


def test_a_turn_while_an_alarm_is_about_to_ring() -> None:
    """uvloop gives a timer that is due at once a handle without a time. The next turn is answered like any other."""

    async def script(machine: Machine) -> None:
        coordinator = coordinator_of(machine)
        await coordinator.create_topic()
        notebook = await loaded(coordinator)
        loop = asyncio.get_running_loop()

        def at_once(notebook: Notebook, turn: Turn) -> Outcome:
            notebook.wake_at = turn.monotonic_ms
            return Outcome(replies=[Reply(turn.ticket, notebook.wake_at)])

        def call_at(when: float, callback: Callable[..., object], *arguments: Any) -> asyncio.Handle:
            return loop.call_soon(callback, *arguments)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(loop, "call_at", call_at)
            first, second = coordinator.answer("test", "a", at_once), coordinator.answer("test", "a", at_once)
        await asyncio.sleep(1)
        assert first == second
        assert notebook.woken == [first]

    play(script)


def test_an_errand_comes_back_as_a_turn() -> None:
    """It is run when the records that go with it are committed, in the coordinator's epoch."""

    async def script(machine: Machine) -> None:
        coordinator = coordinator_of(machine)
        errands = []

        async def perform(errand: Any, epoch: int) -> Callable[[Notebook, Turn], Outcome]:
            errands.append((errand, epoch))
            await asyncio.sleep(1)
            record = StoredRecord(OffsetCommitKey(group_id="a"), OffsetCommitValue(metadata="done"))
            return lambda notebook, turn: Outcome([record])

        coordinator.perform = perform
        await coordinator.run(
            "test", "a", lambda notebook, turn: Outcome(replies=[Reply(turn.ticket, 1)], errands=["fetch"])
        )
        assert await coordinator.run("look", "a", look("a")) is None
        await asyncio.sleep(2)
        assert await coordinator.run("look", "a", look("a")) == "done"
        assert errands == [("fetch", coordinator._shards[0].epoch)]

    play(script)


def test_an_errand_that_fails_begins_again() -> None:
    """The log has what it was sent for: the machine is loaded anew, and sends it again. Who asked is answered."""

    async def script(machine: Machine) -> None:
        coordinator = coordinator_of(machine)

        def perform(errand: Any, epoch: int) -> Any:
            raise OSError(EIO, "nobody expected this")

        coordinator.perform = perform
        record = StoredRecord(OffsetCommitKey(group_id="a"), OffsetCommitValue(metadata="kept"))
        decided = Outcome([record], errands=["fetch"])
        assert (
            await coordinator.run("test", "a", lambda notebook, turn: decided._replace(replies=[Reply(turn.ticket, 1)]))
            == 1
        )
        assert await failure(coordinator.run("look", "a", look("a"))) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert (await loaded(coordinator)).notes == {"a": "kept"}

    play(script)


def test_transactions_end_in_log_and_machine_together() -> None:
    """What is pending counts from the marker on, or never; a reload finds the same."""

    async def script(machine: Machine) -> None:
        coordinator = coordinator_of(machine)
        await coordinator.run("note", "a", note("a", "one", Producer(5, 0)))
        await coordinator.run("note", "b", note("b", "two", Producer(6, 0)))
        await coordinator.run("note", "c", note("c", "open", Producer(7, 0)))
        assert await coordinator.run("look", "a", look("a")) is None
        assert coordinator.end_transaction(0, TransactionMarker(5, 0, True, 1)) is None
        assert coordinator.end_transaction(0, TransactionMarker(6, 0, False, 1)) is None
        for _ in range(2):
            notebook = await loaded(coordinator)
            assert notebook.notes == {"a": "one"}
            assert notebook.pending == {7: {"c": "open"}}
            coordinator.stop()
            coordinator = coordinator_of(machine)

    play(script)


def test_a_very_large_outcome_is_packed() -> None:
    """A batch that is larger than max.message.bytes fits when it is compressed, and is loaded again."""

    async def script(machine: Machine) -> None:
        coordinator = coordinator_of(machine)
        text = "x" * 30_000
        records = [
            StoredRecord(OffsetCommitKey(group_id=f"g{number}"), OffsetCommitValue(metadata=text))
            for number in range(100)
        ]
        await coordinator.run("test", "a", lambda notebook, turn: Outcome(records, [Reply(turn.ticket, 1)]))
        coordinator.stop()
        coordinator = coordinator_of(machine)
        assert len((await loaded(coordinator)).notes) == 100

    play(script)


def test_what_cannot_be_read_is_passed_over() -> None:
    """A damaged record and one of a newer broker stay in the log; everything else is loaded."""

    async def script(machine: Machine) -> None:
        coordinator = coordinator_of(machine)
        await coordinator.run("note", "a", note("a", "one"))
        partition = coordinator._shards[0].partition
        for key in (b"\0\x01", b"\0\x63 is newer", b""):
            data = batch.encode([(key, b"nonsense", (), 1)])
            partition.append(memoryview(data), batch.read_header(data), 1, 1)
        coordinator.stop()
        coordinator = coordinator_of(machine)
        assert (await loaded(coordinator)).notes == {"a": "one"}

    play(script)


def test_partitions_are_those_of_kafka() -> None:
    """Java's hash of the name decides, for names of any script."""
    assert [key_hash(name) for name in ("", "a", "my-group", "gruppe-ä", "群组", "\U0001f600")] == [
        0,
        97,
        1906497762,
        673522898,
        1045408,
        1772899,
    ]
    assert key_hash("polygenelubricants") == 0  # its hash is the smallest int, which has no absolute value


def test_configured_sizes() -> None:
    """The topic has as many partitions as it was told, and not more replicas than there are brokers."""

    async def script(machine: Machine) -> None:
        coordinator = coordinator_of(machine, partitions=7)
        topic = await coordinator.create_topic()
        assert [len(partition.replicas) for partition in topic.partitions] == [1] * 7
        assert coordinator.partition_for("a") == 97 % 7

    play(script)
    assert BrokerConfig.of({}).offsets_topic_num_partitions == 50
