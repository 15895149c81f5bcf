"""Threads of moves that are slow, while the move is given up, requested again, or finished."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from ottla.broker.broker import Broker
from ottla.cluster.topics import delete_topic
from ottla.records.batch import check, encode
from ottla.replication import moves
from ottla.storage import copying
from ottla.topic_partition import TopicPartition
from tests.unit.replication.test_moves import elsewhere, get, run, started, target, values, wait_for
from tests.unit.replication.three_directories import DIRECTORIES, TOPIC, append, create, directory_of, settled
from tests.unit.storage.logs import new_disk


class SlowThreads:
    """Threads that begin what they are given only when the test says so."""

    def __init__(self, owner: Any, *wanted: Callable[..., object]) -> None:
        """Takes the place of the threads of `owner`, for the functions that are wanted, or for all."""
        self.waiting: list[tuple[asyncio.Future[Any], Callable[..., Any], tuple[Any, ...]]] = []
        self._owner, self._wanted = owner, wanted
        self._quick = owner._offload
        owner._offload = self._offload

    def _offload(self, function: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        if self._wanted and function not in self._wanted:
            future: asyncio.Future[Any] = self._quick(function, *args)
            return future
        future = asyncio.get_running_loop().create_future()
        self.waiting.append((future, function, args))
        return future

    def become_quick(self) -> None:
        self._owner._offload = self._quick

    def run(self) -> None:
        """Do all that waits, in order."""
        waiting, self.waiting = self.waiting, []
        for future, function, args in waiting:
            try:
                future.set_result(function(*args))
            except Exception as error:
                future.set_exception(error)


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moves, "STEP_BYTES", 2000)
    monkeypatch.setattr(moves, "LAST_STEP_BYTES", 300)


def put(broker: Broker, value: bytes) -> asyncio.Future[None] | None:
    """Produce with acks=all. Returns what the producer waits for."""
    data = bytearray(encode([(None, value, (), 1)]))
    partition = get(broker)
    return partition.wait_for_acks(partition.append(memoryview(data), check(data), 1, -1), -1)


def list_failures(broker: Broker) -> list[str | None]:
    return [each.failure for each in broker.node.replicas.directories]


@pytest.mark.parametrize("step", ["create_copy", "append_pieces"])
def test_a_topic_that_is_created_again_waits_for_the_thread_of_a_move(step: str) -> None:
    # The thread wrote the old topic's id, and segments, into the directory of the new partition: its acknowledged
    # records were gone after the next start.
    async def main() -> None:
        disk = new_disk()
        broker = await started(disk)
        await create(broker, TOPIC)
        old = get(broker)
        for number in range(100):
            append(old, b"%d" % number)
        new = elsewhere(old)
        replication = broker.node.replication
        threads = SlowThreads(replication.moves, getattr(copying, step))
        replication.moves.move(old, target(broker, new))
        await wait_for(lambda: threads.waiting)
        await broker.node.metadata.change(partial(delete_topic, topic_id=old.topic_id))
        replication.moves.prefer(TopicPartition(TOPIC, 0), target(broker, new))
        creating = asyncio.ensure_future(create(broker, TOPIC, flush_messages="1"))
        await asyncio.sleep(1)
        assert not broker.node.replicas.of_topic(TOPIC)
        threads.run()
        await creating
        await wait_for(lambda: broker.node.replicas.of_topic(TOPIC))
        assert directory_of(broker, TOPIC, 0) == new
        for value in (b"a", b"b"):
            waiting = put(broker, value)
            assert waiting is not None
            await waiting
        broker.abort()
        disk.crash(lose_unsynced=False)
        broker = await started(disk)
        assert values(get(broker)) == [b"a", b"b"]
        await broker.stop(1.0)

    run(main())


@pytest.mark.parametrize("is_at_work", [False, True])
@pytest.mark.parametrize("step", ["create_copy", "append_pieces"])
def test_a_move_that_is_given_up_and_requested_again_ends(step: str, is_at_work: bool) -> None:
    # It ended with "exists already"; or the replica was deleted by the next start, as an incomplete copy.
    async def main() -> None:
        disk = new_disk()
        broker = await started(disk)
        await create(broker, TOPIC)
        partition = get(broker)
        for number in range(100):
            append(partition, b"%d" % number)
        old, new = directory_of(broker, TOPIC, 0), elsewhere(partition)
        replication = broker.node.replication
        threads = SlowThreads(replication.moves, getattr(copying, step))
        replication.moves.move(partition, target(broker, new))
        await wait_for(lambda: threads.waiting)
        threads.become_quick()
        if is_at_work:
            ((future, function, args),) = threads.waiting
            result = function(*args)
            threads.waiting = [(future, lambda: result, ())]
        replication.moves.move(partition, target(broker, old))
        replication.moves.move(partition, target(broker, new))
        await asyncio.sleep(0.02)
        threads.run()
        await wait_for(lambda: directory_of(broker, TOPIC, 0) == new)
        await settled()
        assert list_failures(broker) == [None] * 3
        broker.abort()
        disk.crash(lose_unsynced=False)
        broker = await started(disk)
        assert len(values(get(broker))) == 100
        await broker.stop(1.0)

    run(main())


def test_moves_that_wait_for_a_thread_do_not_remove_each_others_copies() -> None:
    # The first one, which was given up, removed the copy of the second. Its files were missed, and a directory that
    # was all right went offline.
    async def main() -> None:
        broker = await started(new_disk())
        await create(broker, TOPIC)
        partition = get(broker)
        append(partition, b"a")
        old, new = directory_of(broker, TOPIC, 0), elsewhere(partition)
        replication = broker.node.replication
        threads = SlowThreads(replication.moves)
        for path in (new, old, new):
            replication.moves.move(partition, target(broker, path))
            await settled()
        threads.become_quick()
        threads.run()
        await wait_for(lambda: directory_of(broker, TOPIC, 0) == new)
        assert list_failures(broker) == [None] * 3
        await broker.stop(1.0)

    run(main())


def test_a_producer_that_waits_for_a_flush_is_answered_after_a_move() -> None:
    # The copy is flushed before the switch, so no flush followed that would have answered.
    async def main() -> None:
        broker = await started(new_disk())
        await create(broker, TOPIC, flush_messages="1")
        partition = get(broker)
        threads = SlowThreads(partition.flushing)
        waiting = put(broker, b"a")
        assert waiting is not None and len(threads.waiting) == 1
        new = elsewhere(partition)
        broker.node.replication.moves.move(partition, target(broker, new))
        await wait_for(lambda: directory_of(broker, TOPIC, 0) == new)
        threads.become_quick()
        threads.run()
        async with asyncio.timeout(60):
            await waiting
        await broker.stop(1.0)

    run(main())


def test_a_replica_that_has_arrived_moves_on_while_its_checkpoints_are_written() -> None:
    # The new move cancelled the old one in the middle of a checkpoint: the next writer did not wait for the thread,
    # and both used the same temporary file.
    async def main() -> None:
        broker = await started(new_disk())
        await create(broker, TOPIC)
        partition = get(broker)
        append(partition, b"a")
        partition.log.flush()
        second = elsewhere(partition)
        (third,) = {*DIRECTORIES} - {second, directory_of(broker, TOPIC, 0)}
        replication = broker.node.replication
        threads = SlowThreads(replication.checkpoints)
        replication.moves.move(partition, target(broker, second))
        await wait_for(lambda: threads.waiting and directory_of(broker, TOPIC, 0) == second)
        threads.become_quick()
        replication.moves.move(partition, target(broker, third))
        await settled()
        assert replication.checkpoints.is_writing
        threads.run()
        await wait_for(lambda: directory_of(broker, TOPIC, 0) == third)
        assert values(partition) == [b"a"]
        await broker.stop(1.0)

    run(main())


def test_a_move_waits_in_peace_while_its_log_is_truncated() -> None:
    # The event loop did nothing but try to switch, for as long as the truncation waited for room.
    async def main() -> None:
        broker = await started(new_disk())
        await create(broker, TOPIC)
        partition = get(broker)
        append(partition, b"a")
        new = elsewhere(partition)
        partition.flushing.hold(lambda: None)
        threads = SlowThreads(broker.node.replication.moves)
        broker.node.replication.moves.move(partition, target(broker, new))
        steps, ends = 0, asyncio.get_running_loop().time() + 1
        while asyncio.get_running_loop().time() < ends:
            steps += len(threads.waiting)
            threads.run()
            await asyncio.sleep(0.001)
        assert steps < 150 and directory_of(broker, TOPIC, 0) != new
        partition.flushing.resume()
        threads.become_quick()
        threads.run()
        await wait_for(lambda: directory_of(broker, TOPIC, 0) == new)
        await broker.stop(1.0)

    run(main())


def test_a_move_goes_on_when_a_segment_was_removed_before_its_thread_read_it() -> None:
    async def main() -> None:
        broker = await started(new_disk())
        await create(broker, TOPIC)
        partition = get(broker)
        partition.log.settings = replace(partition.log.settings, segment_bytes=1000)
        for number in range(100):
            append(partition, b"%d" % number)
        new = elsewhere(partition)
        threads = SlowThreads(broker.node.replication.moves, copying.append_pieces)
        broker.node.replication.moves.move(partition, target(broker, new))
        await wait_for(lambda: threads.waiting)
        partition.delete_records(90)
        partition.log.files.drop_before(90)
        partition.log.files.take_deleted().run()
        threads.become_quick()
        threads.run()
        await wait_for(lambda: directory_of(broker, TOPIC, 0) == new)
        assert values(partition) == [b"%d" % number for number in range(90, 100)]
        await broker.stop(1.0)

    run(main())
