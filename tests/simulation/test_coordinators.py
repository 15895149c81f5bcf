"""The runtime of the coordinators, on a simulated broker: replies, loading, failures, timers and errands.

The machine under test is a notebook: it stores texts under names, as the metadata of committed offsets.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import replace
from errno import EIO, ENOSPC
from typing import Any

import pytest

from ottla.broker.node import Node
from ottla.config import BrokerConfig
from ottla.coordinators.formats import GROUP_FORMAT, OffsetCommitKey, OffsetCommitValue
from ottla.coordinators.internal_topics import InternalTopic, key_hash
from ottla.coordinators.machine import NOTHING, Meters, Outcome, ProducerIdentity, Reply, StoredRecord, Turn
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

    def replay(self, record: StoredRecord, written_ms: int, producer: ProducerIdentity | None) -> None:
        key, value = record
        assert isinstance(key, OffsetCommitKey)
        notes = self.notes if producer is None else self.pending.setdefault(producer.id, {})
        if isinstance(value, OffsetCommitValue):
            notes[key.group_id] = value.metadata
        else:
            notes.pop(key.group_id, None)

    def end_transaction(self, producer: ProducerIdentity, committed: bool) -> None:
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
    RUN_BELOW_MIN_ISR = frozenset({"look", "note"})


def note(name: str, text: str, producer: ProducerIdentity | None = None) -> Callable[[Notebook, Turn], Outcome]:
    record = StoredRecord(OffsetCommitKey(group_id=name), OffsetCommitValue(metadata=text))
    return lambda notebook, turn: Outcome([record], [Reply(turn.ticket, f"noted {text}")], producer)


def look(name: str) -> Callable[[Notebook, Turn], Outcome]:
    return lambda notebook, turn: Outcome(replies=[Reply(turn.ticket, notebook.notes.get(name))])


def wait_for_ever(notebook: Notebook, turn: Turn) -> Outcome:
    return NOTHING


def coordinator_of(
    machine: Machine, partitions: int = 1, settings: Mapping[str, str] | None = None
) -> Coordinator[Notebook]:
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
    topic = InternalTopic(TOPIC, lambda config: partitions, lambda config: 3, lambda config: settings or {})
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
    """Captures the coordinators' log lines, which the simulation keeps away from the handlers of the test run."""
    logger = logging.getLogger("ottla.coordinators")
    logger.addHandler(caplog.handler)
    yield caplog
    logger.removeHandler(caplog.handler)


async def catch_error_code(awaitable: Awaitable[Any]) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        await awaitable
    return caught.value.code


async def wait_until_loaded(coordinator: Coordinator[Notebook], index: int = 0) -> Notebook:
    """Wait until a partition's machine is loaded, and return it."""
    while index not in coordinator._shards or not coordinator._shards[index].is_loaded:
        await asyncio.sleep(0.01)
    return coordinator._shards[index].machine


def test_a_restarted_broker_finds_what_was_stored() -> None:
    """The topic is created on first use; after a restart the machine is loaded from its log."""

    async def script(machine: Machine) -> None:
        coordinator = coordinator_of(machine)
        assert await coordinator.run("note", "a", note("a", "one")) == "noted one"
        assert await coordinator.run("note", "b", note("b", "two")) == "noted two"
        await machine.stop()
        await machine.start()
        coordinator = coordinator_of(machine)
        assert await catch_error_code(coordinator.run("look", "a", look("a"))) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert await catch_error_code(coordinator.run_all("look", look("a"))) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert (await wait_until_loaded(coordinator)).loads == 1
        assert await coordinator.run("look", "a", look("a")) == "one"
        assert await coordinator.run_all("look", look("b")) == ["two"]

    play(script)


def test_a_reply_waits_for_the_disk() -> None:
    """Where every record is flushed, neither a writer nor a reader is answered before the record is safe from a power
    cut."""

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
        await wait_until_loaded(coordinator)
        assert await coordinator.run("look", "a", look("a")) == "one"

    play(script, **FLUSHED)


def test_a_reply_may_come_before_it_is_awaited() -> None:
    """What `answer` returns may be awaited late: the reply, or the error that there is none, is not lost."""

    async def script(machine: Machine) -> None:
        coordinator = coordinator_of(machine)
        await coordinator.create_topic()
        promised = coordinator.answer("note", "a", note("a", "one"))
        await asyncio.sleep(1)
        assert await promised == "noted one"
        assert coordinator.answer("look", "a", look("a")) == "one"
        forgotten = coordinator.answer("test", "a", wait_for_ever)
        coordinator.stop()
        assert await catch_error_code(forgotten) == ErrorCode.NOT_COORDINATOR

    play(script, **FLUSHED)


def test_a_late_reply_is_a_timeout(logged: pytest.LogCaptureFixture) -> None:
    """When the disk takes longer than offsets.commit.timeout.ms, the client is told to retry, and the log says why."""

    async def script(machine: Machine) -> None:
        coordinator = coordinator_of(machine)
        await coordinator.run("note", "a", note("a", "one"))
        assert machine.process is not None
        machine.process._threads.closed = True  # from now on no flush ends
        began = asyncio.get_running_loop().time()
        assert (
            await catch_error_code(coordinator.run("note", "a", note("a", "two")))
            == ErrorCode.COORDINATOR_NOT_AVAILABLE
        )
        assert f"{TOPIC}-0: note was not committed in time" in logged.messages
        assert asyncio.get_running_loop().time() - began == pytest.approx(5, abs=0.01)
        assert await catch_error_code(coordinator.run("look", "a", look("a"))) == ErrorCode.COORDINATOR_NOT_AVAILABLE

    play(script, **FLUSHED)


def test_a_failed_append_reloads_the_machine(logged: pytest.LogCaptureFixture) -> None:
    """When the disk is full, all waiting requests fail, and the machine is loaded again from the log.

    The broker's log names the operation whose records were lost.
    """

    async def script(machine: Machine) -> None:
        coordinator = coordinator_of(machine)
        await coordinator.run("note", "a", note("a", "one"))
        patient = asyncio.get_running_loop().create_task(catch_error_code(coordinator.run("test", "a", wait_for_ever)))
        await asyncio.sleep(0)
        before = await wait_until_loaded(coordinator)
        machine.disk.fail("append", ENOSPC, f"*{TOPIC}-0*.log")
        assert await catch_error_code(coordinator.run("note", "a", note("a", "two"))) == ErrorCode.NOT_COORDINATOR
        assert await patient == ErrorCode.NOT_COORDINATOR
        assert any(line.startswith(f"{TOPIC}-0: the records of note cannot be appended") for line in logged.messages)
        assert await catch_error_code(coordinator.run("look", "a", look("a"))) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        after = await wait_until_loaded(coordinator)
        assert after is not before
        assert await coordinator.run("look", "a", look("a")) == "one"
        assert await coordinator.run("note", "a", note("a", "three")) == "noted three"

    play(script)


def test_loading_is_retried_while_the_log_cannot_be_read() -> None:
    """While the disk returns errors nobody gets a wrong answer; when it works again, everything is loaded."""

    async def script(machine: Machine) -> None:
        coordinator = coordinator_of(machine)
        await coordinator.run("note", "a", note("a", "one"))
        coordinator.stop()
        machine.disk.fail("read_at", EIO, f"*{TOPIC}-0*.log", times=3)
        coordinator = coordinator_of(machine)
        await wait_until_loaded(coordinator)
        assert coordinator._failures[0] == 3
        assert await coordinator.run("look", "a", look("a")) == "one"

    play(script)


def test_lost_leadership_answers_everyone_who_waits() -> None:
    """When leadership is lost, all waiting requests are answered at once with NOT_COORDINATOR."""

    async def script(machine: Machine) -> None:
        coordinator = coordinator_of(machine)
        await coordinator.run("note", "a", note("a", "one"))
        patient = asyncio.get_running_loop().create_task(catch_error_code(coordinator.run("test", "a", wait_for_ever)))
        await asyncio.sleep(0)
        assert machine.process is not None
        partition = machine.process.broker.node.replicas.get(TOPIC, 0)
        assert partition.state is not None
        partition.become(replace(partition.state, leader=2, leader_epoch=partition.leader_epoch + 1))
        assert await patient == ErrorCode.NOT_COORDINATOR
        assert await catch_error_code(coordinator.run("look", "a", look("a"))) == ErrorCode.NOT_COORDINATOR

    play(script)


def test_a_stopping_broker_answers_everyone_who_waits() -> None:
    """Waiting requests do not delay the stop of a broker."""

    async def script(machine: Machine) -> None:
        coordinator = coordinator_of(machine)
        patient = asyncio.get_running_loop().create_task(catch_error_code(coordinator.run("test", "a", wait_for_ever)))
        await asyncio.sleep(0.01)
        coordinator.stop()
        assert await patient == ErrorCode.NOT_COORDINATOR
        assert await catch_error_code(coordinator.run("look", "a", look("a"))) == ErrorCode.NOT_COORDINATOR

    play(script)


def test_a_refusal_changes_nothing() -> None:
    """A KafkaError that the machine raises reaches the caller of that operation, and nobody else."""

    async def script(machine: Machine) -> None:
        coordinator = coordinator_of(machine)
        await coordinator.run("note", "a", note("a", "one"))

        def refuse(notebook: Notebook, turn: Turn) -> Outcome:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)

        before = await wait_until_loaded(coordinator)
        assert await catch_error_code(coordinator.run("test", "a", refuse)) == ErrorCode.GROUP_ID_NOT_FOUND
        assert await wait_until_loaded(coordinator) is before
        assert not coordinator._shards[0].waiting

    play(script)


def test_operations_are_counted_by_name() -> None:
    """Each operation is counted once, also if it creates the topic first, is refused, or asks all partitions."""

    async def script(machine: Machine) -> None:
        def refuse(notebook: Notebook, turn: Turn) -> Outcome:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)

        coordinator = coordinator_of(machine, partitions=3)
        await coordinator.run("note", "a", note("a", "one"))
        await coordinator.run_all("look", look("a"))
        await catch_error_code(coordinator.run("test", "a", refuse))
        coordinator.tell_all("test", wait_for_ever)
        assert coordinator.operations == {"look": 1, "note": 1, "test": 2}

    play(script)


def test_a_client_that_disconnects_leaves_nothing_behind() -> None:
    """A client that disconnects leaves nothing behind, and a reply to it is dropped."""

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
    """A machine is woken at the time it asked for. A postponed alarm rings once, at the later time."""

    async def script(machine: Machine) -> None:
        coordinator = coordinator_of(machine)
        await coordinator.create_topic()
        notebook = await wait_until_loaded(coordinator)

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


def test_a_turn_is_answered_while_an_alarm_is_due() -> None:
    """uvloop gives a timer that is due at once a handle without a time. The next turn is answered like any other."""

    async def script(machine: Machine) -> None:
        coordinator = coordinator_of(machine)
        await coordinator.create_topic()
        notebook = await wait_until_loaded(coordinator)
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
    """An errand runs after the records of its outcome are committed, in the coordinator's epoch."""

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


def test_a_failed_errand_is_repeated_after_a_reload() -> None:
    """The log has the cause of the errand: the machine is loaded again and repeats the errand. The client is
    answered."""

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
        assert await catch_error_code(coordinator.run("look", "a", look("a"))) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert (await wait_until_loaded(coordinator)).notes == {"a": "kept"}

    play(script)


def test_transactions_end_in_log_and_machine_together() -> None:
    """Pending records take effect with the marker, or never; a reload finds the same."""

    async def script(machine: Machine) -> None:
        coordinator = coordinator_of(machine)
        await coordinator.run("note", "a", note("a", "one", ProducerIdentity(5, 0)))
        await coordinator.run("note", "b", note("b", "two", ProducerIdentity(6, 0)))
        await coordinator.run("note", "c", note("c", "open", ProducerIdentity(7, 0)))
        assert await coordinator.run("look", "a", look("a")) is None
        assert coordinator.end_transaction(0, TransactionMarker(5, 0, True, 1)) is None
        assert coordinator.end_transaction(0, TransactionMarker(6, 0, False, 1)) is None
        for _ in range(2):
            notebook = await wait_until_loaded(coordinator)
            assert notebook.notes == {"a": "one"}
            assert notebook.pending == {7: {"c": "open"}}
            coordinator.stop()
            coordinator = coordinator_of(machine)

    play(script)


def test_a_very_large_outcome_is_compressed() -> None:
    """A batch that is larger than max.message.bytes fits when it is compressed, and can be loaded."""

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
        assert len((await wait_until_loaded(coordinator)).notes) == 100

    play(script)


def test_records_that_cannot_be_read_are_passed_over() -> None:
    """A damaged record and a record of a newer broker stay in the log; everything else is loaded."""

    async def script(machine: Machine) -> None:
        coordinator = coordinator_of(machine)
        await coordinator.run("note", "a", note("a", "one"))
        partition = coordinator._shards[0].partition
        for key in (b"\0\x01", b"\0\x63 is newer", b""):
            data = batch.encode([(key, b"nonsense", (), 1)])
            partition.append(memoryview(data), batch.read_header(data), 1, 1)
        coordinator.stop()
        coordinator = coordinator_of(machine)
        assert (await wait_until_loaded(coordinator)).notes == {"a": "one"}

    play(script)


def test_names_have_the_same_partitions_as_in_kafka() -> None:
    """Java's hash of the name chooses the partition, for names in any script."""
    assert [key_hash(name) for name in ("", "a", "my-group", "gruppe-ä", "群组", "\U0001f600")] == [
        0,
        97,
        1906497762,
        673522898,
        1045408,
        1772899,
    ]
    assert key_hash("polygenelubricants") == 0  # its hash is the smallest int, whose absolute value is not an int


def test_the_internal_topic_has_the_configured_size() -> None:
    """The topic has the configured number of partitions, and not more replicas than there are brokers."""

    async def script(machine: Machine) -> None:
        coordinator = coordinator_of(machine, partitions=7)
        topic = await coordinator.create_topic()
        assert [len(partition.replicas) for partition in topic.partitions] == [1] * 7
        assert coordinator.partition_for("a") == 97 % 7

    play(script)
    assert BrokerConfig.of({}).offsets_topic_num_partitions == 50
