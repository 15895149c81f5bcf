"""Markers and admissions on a simulated broker: retried until they are written, and stopped by a newer coordinator."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from errno import ENOSPC
from random import Random
from typing import Any

import pytest

from ottla.broker.call import Call, Client
from ottla.broker.node import Node
from ottla.coordinators.machine import Outcome, ProducerIdentity
from ottla.coordinators.transactions.admission import TransactionAdmission, TransactionVerification
from ottla.coordinators.transactions.machine import AbortWithFreshId, TransactionMachine, WriteMarkers
from ottla.errors import ErrorCode, KafkaError
from ottla.handlers import produce
from ottla.records import batch
from ottla.replication.partition import Partition
from ottla.replication.transactions import TransactionMarker, append_marker, is_open
from ottla.topic_partition import TopicPartition
from ottla.wire.messages.end_txn import EndTxnRequest
from ottla.wire.messages.init_producer_id import InitProducerIdRequest
from ottla.wire.produce import PartitionData, ProduceRequest, TopicData
from tests.simulation import admin
from tests.simulation.loop import simulate
from tests.simulation.world import Machine, World

PRODUCER = ProducerIdentity(7, 0)
NOW = 1_000
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def play(
    script: Callable[[Machine, Node], Awaitable[None]], *topics: str, settings: Mapping[str, str] | None = None
) -> None:
    async def main() -> None:
        world = World(seed=1)
        try:
            machine = world.add_machine("broker-1", {"node.id": "1", **(settings or {})})
            assert await machine.start()
            for topic in topics or ("t",):
                await admin.create_topic(machine, topic, 2, {}, Random(1))
            assert machine.process is not None
            await script(machine, machine.process.broker.node)
        finally:
            world.close()

    simulate(main())


def write(partition: Partition, producer: ProducerIdentity = PRODUCER) -> None:
    data = batch.encode(
        [(None, b"x", (), NOW)],
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        base_sequence=0,
        transactional=True,
    )
    partition.append(memoryview(data), batch.read_header(data), NOW, -1)


def errand(*partitions: TopicPartition, epoch: int = 1, version: int = 2) -> WriteMarkers:
    return WriteMarkers("x", ProducerIdentity(PRODUCER.id, epoch), True, frozenset(partitions), version)


async def perform(node: Node, errand: WriteMarkers | AbortWithFreshId, epoch: int) -> Any:
    """Run an errand. Returns the turn that follows it, whether the errand finishes at once or later."""
    turn = node.transactions.perform(errand, epoch)
    return await turn if asyncio.iscoroutine(turn) else turn


def test_an_errand_finishes_at_once_if_it_need_not_wait_for_the_disk() -> None:
    """The transaction is complete before its producer hears of the end, so the next one never comes too early."""

    async def script(machine: Machine, node: Node) -> None:
        for index in range(2):
            write(node.replicas.get("t", index))
        assert not asyncio.iscoroutine(node.transactions.perform(errand(T0, T1), 0))
        assert [node.replicas.get("t", index).last_stable_offset for index in range(2)] == [2, 2]

    play(script)


def test_an_errand_waits_while_the_disk_is_full() -> None:
    """The other partition gets its marker meanwhile; the errand ends when both have theirs."""

    async def script(machine: Machine, node: Node) -> None:
        full, fine = (node.replicas.get("t", index) for index in range(2))
        for partition in (full, fine):
            write(partition)
        machine.disk.fail("append", ENOSPC, "*t-0*.log", times=None)
        task = asyncio.get_running_loop().create_task(perform(node, errand(T0, T1), 3))
        await asyncio.sleep(30)
        assert not task.done()
        assert is_open(full, *PRODUCER) and not is_open(fine, *PRODUCER)
        machine.disk.heal()
        await asyncio.sleep(2)
        assert task.done() and (await task) is not None
        assert full.last_stable_offset == fine.last_stable_offset == 2
        assert fine.log.producers.producers[PRODUCER.id].coordinator_epoch == 3

    play(script)


def test_a_topic_that_is_gone_needs_no_marker() -> None:
    async def script(machine: Machine, node: Node) -> None:
        write(node.replicas.get("t", 0))
        assert await perform(node, errand(T0, TopicPartition("gone", 0)), 0) is not None
        assert node.replicas.get("t", 0).last_stable_offset == 2

    play(script)


def test_a_newer_coordinator_ends_the_errand_of_an_older_one() -> None:
    """The older coordinator must not say that the transaction is complete: it was replaced."""

    async def script(machine: Machine, node: Node) -> None:
        partition = node.replicas.get("t", 0)
        write(partition)
        append_marker(partition, TransactionMarker(PRODUCER.id, 1, False, coordinator_epoch=9, version=2), NOW)
        end = partition.log.end_offset
        assert await perform(node, errand(T0), 8) is None
        assert partition.log.end_offset == end

    play(script)


def test_a_partition_with_a_newer_epoch_does_not_delay_the_errand() -> None:
    async def script(machine: Machine, node: Node) -> None:
        partition = node.replicas.get("t", 0)
        write(partition, ProducerIdentity(PRODUCER.id, 5))
        assert await perform(node, errand(T0), 0) is not None
        assert is_open(partition, PRODUCER.id, 5)

    play(script)


def test_a_new_coordinator_may_write_the_same_marker_again() -> None:
    """KAFKA-19999: a marker at the same epoch, with no transaction open, is a retry of the last marker."""

    async def script(machine: Machine, node: Node) -> None:
        partition = node.replicas.get("t", 0)
        write(partition)
        for coordinator_epoch in (1, 2):
            assert await perform(node, errand(T0), coordinator_epoch) is not None
        assert partition.last_stable_offset == partition.log.end_offset == 3

    play(script)


def test_an_overdue_transaction_gets_a_new_producer_id() -> None:
    async def script(machine: Machine, node: Node) -> None:
        taken = await node.producer_ids.next()
        decide = await perform(node, AbortWithFreshId("x", PRODUCER), 0)
        assert decide is not None
        asked: list[int] = []

        class Machine(TransactionMachine):
            def abort_overdue(
                self, transactional_id: str, producer: ProducerIdentity, turn: Any, fresh_id: int
            ) -> Outcome:
                asked.append(fresh_id)
                return Outcome()

        decide(Machine(), None)
        assert asked == [taken + 1]

    play(script)


class Coordinator:
    """A coordinator that gives prepared answers, runs a function in between, and records which broker was asked."""

    def __init__(self, *answers: object, meanwhile: Callable[[], None] = lambda: None) -> None:
        self.answers = list(answers)
        self.asked: list[int] = []
        self.meanwhile = meanwhile

    async def answer(self, broker_id: int, *args: object) -> object:
        self.asked.append(broker_id)
        await asyncio.sleep(0)
        answer = self.answers.pop(0)
        self.meanwhile()
        if isinstance(answer, KafkaError):
            raise answer
        return answer

    add_partitions = find_missing_partitions = answer


def test_a_transaction_that_ends_while_it_is_verified_is_verified_again() -> None:
    """Otherwise the batch would begin a transaction that nobody ends."""

    async def script(machine: Machine, node: Node) -> None:
        partition = node.replicas.get("t", 0)
        marker = TransactionMarker(PRODUCER.id, 0, True, 0)

        def end_once() -> None:
            if partition.log.end_offset == 0:
                append_marker(partition, marker, NOW)

        coordinator: Any = Coordinator(frozenset(), frozenset({T0}), meanwhile=end_once)
        refused = await TransactionAdmission(node.transactions, coordinator).admit(
            "x", PRODUCER, [partition], TransactionVerification.VERIFY_WITHOUT_ABORTABLE
        )
        assert [error.code for error in refused.values()] == [ErrorCode.INVALID_TXN_STATE]
        assert coordinator.answers == []
        assert coordinator.asked == [1, 1]  # the leader of the transactional id's partition, by the metadata

    play(script)


def test_adding_a_partition_waits_briefly_for_the_last_markers() -> None:
    async def script(machine: Machine, node: Node) -> None:
        partition = node.replicas.get("t", 0)
        busy = KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        coordinator: Any = Coordinator(busy, busy, None)
        began = asyncio.get_running_loop().time()
        assert (
            await TransactionAdmission(node.transactions, coordinator).admit(
                "x", PRODUCER, [partition], TransactionVerification.ADD_PARTITION
            )
            == {}
        )
        assert asyncio.get_running_loop().time() - began < 0.02
        coordinator = Coordinator(*[busy] * 20)
        refused = await TransactionAdmission(node.transactions, coordinator).admit(
            "x", PRODUCER, [partition], TransactionVerification.ADD_PARTITION
        )
        assert refused[partition].code is ErrorCode.CONCURRENT_TRANSACTIONS
        assert asyncio.get_running_loop().time() - began < 0.2

    play(script)


def test_every_refusal_has_an_error_code_that_the_client_knows() -> None:
    """A client of transactions v1 would treat a coordinator's problems as fatal, so it is told to send the batch
    again."""

    async def script(machine: Machine, node: Node) -> None:
        partition = node.replicas.get("t", 0)
        for code, verification, told in (
            (ErrorCode.PRODUCER_FENCED, TransactionVerification.ADD_PARTITION, ErrorCode.INVALID_PRODUCER_EPOCH),
            (
                ErrorCode.INVALID_PRODUCER_ID_MAPPING,
                TransactionVerification.VERIFY_WITHOUT_ABORTABLE,
                ErrorCode.INVALID_PRODUCER_ID_MAPPING,
            ),
            (
                ErrorCode.CONCURRENT_TRANSACTIONS,
                TransactionVerification.VERIFY_WITHOUT_ABORTABLE,
                ErrorCode.NOT_ENOUGH_REPLICAS,
            ),
            (
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                TransactionVerification.ADD_PARTITION,
                ErrorCode.NOT_ENOUGH_REPLICAS,
            ),
            (ErrorCode.NOT_COORDINATOR, TransactionVerification.VERIFY, ErrorCode.NOT_ENOUGH_REPLICAS),
        ):
            coordinator: Any = Coordinator(KafkaError(code))
            refused = await TransactionAdmission(node.transactions, coordinator).admit(
                "x", PRODUCER, [partition], verification
            )
            assert refused[partition].code is told

    play(script)


def test_a_partition_of_the_open_transaction_is_not_verified_again() -> None:
    async def script(machine: Machine, node: Node) -> None:
        partition = node.replicas.get("t", 0)
        write(partition)
        nobody: Any = Coordinator()
        assert (
            await TransactionAdmission(node.transactions, nobody).admit(
                "x", PRODUCER, [partition], TransactionVerification.VERIFY_WITHOUT_ABORTABLE
            )
            == {}
        )

    play(script)


def transactional_produce(name: str, producer: ProducerIdentity, **sequences: int) -> Call[Any]:
    """A request of protocol version 1 with a batch for each of these partitions (`p0`, `p1`) of topic t."""
    batches = {
        int(partition[1:]): batch.encode(
            [(None, b"x%d" % sequence, (), NOW)],
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            base_sequence=sequence,
            transactional=True,
        )
        for partition, sequence in sequences.items()
    }
    partitions = [PartitionData(index, memoryview(bytearray(data))) for index, data in batches.items()]
    request = ProduceRequest(name, -1, 1000, [TopicData("t", partitions=partitions)])
    return Call(0, 11, 1, None, request, Client(1, "PLAINTEXT", ("127.0.0.1", 1), ("127.0.0.1", 2)))


async def send(node: Node, call: Call[Any]) -> list[int]:
    answer: Any = produce.handle(node, call)
    while asyncio.isfuture(answer) or asyncio.iscoroutine(answer):
        answer = await answer
    return [each.error_code for topic in answer.topics for each in topic.partitions]


async def begin(node: Node, name: str) -> ProducerIdentity:
    request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
    response = await node.transactions.init_producer_id(request)
    return ProducerIdentity(response.producer_id, response.producer_epoch)


async def end(node: Node, name: str, producer: ProducerIdentity, *, committed: bool) -> None:
    request = EndTxnRequest(
        transactional_id=name, producer_id=producer.id, producer_epoch=producer.epoch, committed=committed
    )
    await node.transactions.end(request, version=0)


@pytest.mark.parametrize("delayed", ["question", "answer"])
def test_a_batch_is_not_appended_behind_the_marker_of_its_transaction(delayed: str) -> None:
    # The request has a partition in which the transaction is open, and one that the coordinator is asked about. While
    # the question is on its way the transaction is aborted. The next one would commit what is appended now.
    async def script(machine: Machine, node: Node) -> None:
        producer = await begin(node, "x")
        await node.transactions.add_partitions("x", producer, [T0, T1], version=0)
        assert await send(node, transactional_produce("x", producer, p0=0)) == [ErrorCode.NONE]
        peers: Any = node.admission._peers
        ask, may_go_on = peers.find_missing_partitions, asyncio.Event()

        async def ask_slowly(*arguments: Any) -> Any:
            if delayed == "answer":
                found = await ask(*arguments)
                await may_go_on.wait()
                return found
            await may_go_on.wait()
            return await ask(*arguments)

        peers.find_missing_partitions = ask_slowly
        late = asyncio.ensure_future(send(node, transactional_produce("x", producer, p0=1, p1=0)))
        await asyncio.sleep(1)
        await end(node, "x", producer, committed=False)
        await asyncio.sleep(1)
        partition = node.replicas.get("t", 0)
        log_end = partition.log.end_offset
        may_go_on.set()
        assert await late == [ErrorCode.TRANSACTION_ABORTABLE] * 2
        assert partition.log.end_offset == log_end and not is_open(partition, *producer)

    play(script)


def test_a_coordinator_that_is_loaded_again_has_one_errand_for_each_transaction() -> None:
    # One turn asks for the markers of two transactions. Those of the first are written at once, and their end cannot be
    # stored: the coordinator is loaded again. An errand left over would write another marker into a later transaction.
    async def script(machine: Machine, node: Node) -> None:
        producers = {name: await begin(node, name) for name in "ab"}
        for name, where in (("a", T0), ("b", T1)):
            await node.transactions.add_partitions(name, producers[name], [where], version=0)
            produced = transactional_produce(name, producers[name], **{f"p{where.partition}": 0})
            assert await send(node, produced) == [ErrorCode.NONE]
        for log in ("t-0", "t-1"):
            machine.disk.fail("append", ENOSPC, f"*{log}*.log", times=None)
        for name, producer in producers.items():
            await end(node, name, producer, committed=False)
        await asyncio.sleep(0.5)
        machine.disk.heal()  # there is room for the markers of a, and not for the coordinator's log
        for log in ("t-1", "__transaction_state-0"):
            machine.disk.fail("append", ENOSPC, f"*{log}*.log", times=None)
        with contextlib.suppress(KafkaError):
            await begin(node, "c")  # cannot be stored: the coordinator is loaded again
        await asyncio.sleep(0.35)
        machine.disk.heal()
        machine.disk.fail("append", ENOSPC, "*t-1*.log", times=None)
        await asyncio.sleep(10)
        errands = [task for task in asyncio.all_tasks() if "_write_and_complete" in repr(task.get_coro())]
        assert len(errands) == 1

    play(script, settings={"transaction.state.log.num.partitions": "1"})
