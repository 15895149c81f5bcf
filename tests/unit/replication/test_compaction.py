"""Compaction in the background of a broker: which log, at which pace, and what it does when things change meanwhile."""

import asyncio
import errno
import logging
import os
import subprocess
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any, cast

import pytest

from ottla.broker.broker import Broker
from ottla.cluster.topics import NewTopic, create_topic, delete_topic
from ottla.config import BrokerConfig, TopicConfig
from ottla.records.batch import check, encode
from ottla.replication.compaction import LogChanged
from ottla.replication.in_sync import InSync
from ottla.replication.partition import Partition
from ottla.storage.cleaner.child import ChildCompactor
from ottla.storage.cleaner.order import Uncleanable
from ottla.storage.cleaner.swap import Phase, Swap
from ottla.storage.opening import create_log
from tests.simulation.disk import Crashed, SimulatedDisk
from tests.simulation.loop import simulate
from tests.unit.handlers.one_broker import DIRECTORY, FixedClock, listen
from tests.unit.storage.cleaner.compactions import contents
from tests.unit.storage.truncating import truncate_to

NOW = FixedClock().now_ms()
SETTINGS = {
    "cleanup.policy": "compact,delete",
    "internal.segment.bytes": "600",
    "min.cleanable.dirty.ratio": "0.01",
    "retention.ms": "-1",
}


class Threads:
    """Work is done a moment after it was asked for; `before` is called first, with how often that happened."""

    def __init__(self) -> None:
        self.calls = 0
        self.before: Callable[[int], None] = lambda call: None

    def __call__(self, function: Callable[..., Any], *arguments: Any) -> "asyncio.Future[Any]":
        future = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_later(0.001, self._run, future, function, arguments)
        return future

    def _run(self, future: "asyncio.Future[Any]", function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        self.calls += 1
        self.before(self.calls)
        try:
            result = function(*arguments)
        except (Exception, Crashed) as error:
            if not future.cancelled():
                future.set_exception(error)
        else:
            if not future.cancelled():
                future.set_result(result)


class Workshop:
    """A broker on a simulated disk, whose compaction is run by hand."""

    def __init__(self, disk: SimulatedDisk | None = None, **settings: str) -> None:
        self.disk = disk or SimulatedDisk(Random(1))
        self.threads = Threads()
        config = {name.replace("_", "."): value for name, value in settings.items()}
        self.broker = Broker(
            BrokerConfig.of({"log.cleaner.backoff.ms": "1000000000", **config}),
            DIRECTORY,
            disk=self.disk,
            clock=FixedClock(),
            random=Random(1),
            offload=self.threads,
            listen=listen,
            machine_code=False,
        )

    async def topic(self, name: str, **changes: str) -> Partition:
        configs = {**SETTINGS, **{key.replace("_", "."): value for key, value in changes.items()}}
        new = NewTopic(name, 1, configs=configs)
        node = self.broker.node
        await node.metadata.change(lambda image: create_topic(image, new, node.config, Random(2)))
        return self.broker.node.replicas.get(name, 0)

    async def compact(self) -> None:
        await self.broker.node.compaction.run()

    def uncleanable(self) -> list[Partition]:
        return [each for found in self.broker.node.compaction.list_uncleanable().values() for each in found]


def write(partition: Partition, batches: int, first: int = 0) -> None:
    """Four keys, two of them in each batch, over several segments; all of it is flushed."""
    for number in range(first, first + batches):
        first_key, second_key = b"k%d" % (number % 4), b"k%d" % ((number + 1) % 4)
        data = bytearray(encode([(first_key, b"%d" % number + b"." * 30, (), NOW), (second_key, b"x", (), NOW)]))
        partition.append(memoryview(data), check(data), NOW, 1)
    partition.log.flush()


def latest(partition: Partition) -> dict[str, tuple[int, str | None]]:
    return {key: (offset, value) for offset, key, value in contents(partition.log)}


def run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    simulate(work())


def test_the_dirtiest_log_comes_first_and_how_far_it_came_is_kept_over_a_restart() -> None:
    async def work() -> None:
        shop = Workshop()
        await shop.broker.start()
        half, whole = await shop.topic("half"), await shop.topic("whole")
        write(half, 30)
        await shop.compact()
        end = half.log.first_dirty_offset
        assert 0 < end == half.log.segments[-1].base_offset
        write(half, 10, first=30)
        write(whole, 50)
        order: list[str] = []
        shop.threads.before = lambda call: order.extend(
            each.topic for each in (half, whole) if each.log.first_dirty_offset > end and each.topic not in order
        )
        await shop.compact()
        ends = {each.topic: each.log.first_dirty_offset for each in (half, whole)}
        assert order[0] == "whole" and ends["half"] > end
        meter = shop.broker.node.compaction.meter
        assert meter.runs == 3 and meter.records_read > meter.records_written > 0
        await shop.broker.stop(1)
        again = Workshop(shop.disk)
        await again.broker.start()
        assert {each.topic: each.log.first_dirty_offset for each in again.broker.node.replicas} == ends
        await again.compact()
        assert again.broker.node.compaction.meter.runs == 0
        await again.broker.stop(1)

    run(work)


@pytest.mark.parametrize("end_offset", [30, 44])  # 44: in the last segment that is compacted
@pytest.mark.parametrize("cut", ["truncate", "drop", "both"])
def test_a_log_that_is_cut_at_any_moment_is_let_go_of(cut: str, end_offset: int) -> None:
    # Before any step of the work or of a swap: what was cut off never comes back, what was not stays.
    def cut_now(partition: Partition) -> None:
        if cut in ("drop", "both"):
            partition.log.advance_log_start(12)
            partition.log.drop_segments(12, in_order=True)
        if cut in ("truncate", "both"):
            truncate_to(partition.log, end_offset)

    async def work(moment: int) -> int:
        shop = Workshop()
        await shop.broker.start()
        partition = await shop.topic("table")
        write(partition, 30)
        before = {offset: entry for offset, *entry in contents(partition.log)}
        begun = shop.threads.calls
        shop.threads.before = lambda call: cut_now(partition) if call == begun + moment else None
        await shop.compact()
        calls = shop.threads.calls - begun
        assert not shop.uncleanable()
        start, end = partition.log.log_start_offset, partition.log.end_offset
        shop.disk.crash(lose_unsynced=False)
        again = Workshop(shop.disk)
        await again.broker.start()
        log = again.broker.node.replicas.get("table", 0).log
        found = {offset: entry for offset, *entry in contents(log)}
        assert found.items() <= before.items()
        if moment <= calls:
            assert start == (12 if cut != "truncate" else 0)
            assert end == (end_offset if cut != "drop" else 60)
            # Compaction may have taken the last records before the cut: then a restart finds an earlier end.
            assert log.end_offset <= end and (cut != "drop" or log.end_offset == end)
            assert all(start <= offset < log.end_offset for offset in found)
        await again.broker.stop(1)
        return calls

    moment, calls = 1, 1
    while moment <= calls:
        calls = simulate(work(moment))
        moment += 1
    assert moment > 20


def test_a_log_that_is_being_truncated_is_not_compacted() -> None:
    # Compaction keeps the last batch of each producer, and which one that is becomes known at the end.
    async def work() -> None:
        shop = Workshop()
        await shop.broker.start()
        partition = await shop.topic("table")
        write(partition, 30)
        partition.flushing.hold(lambda: None)
        await shop.compact()
        assert not partition.log.first_dirty_offset
        partition.flushing.resume()
        await shop.compact()
        assert partition.log.first_dirty_offset > 0
        await shop.broker.stop(1)

    run(work)


def test_what_cannot_be_compacted_waits_for_other_settings(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        shop = Workshop()
        await shop.broker.start()
        bad, good = await shop.topic("bad"), await shop.topic("good")
        write(bad, 30)
        write(good, 20)
        sound = shop.disk.read(f"{DIRECTORY}/bad-0/{0:020d}.log")
        file = shop.disk.open(f"{DIRECTORY}/bad-0/{0:020d}.log")
        file.write_at(100, b"\xff\xff")
        await shop.compact()
        await shop.compact()
        assert shop.uncleanable() == [bad] and good.log.first_dirty_offset > 0 == bad.log.first_dirty_offset
        file.write_at(0, sound)
        await shop.compact()
        assert shop.uncleanable() == [bad]
        config = TopicConfig.of({**SETTINGS, "segment.ms": "1000000"}, shop.broker.node.config)
        bad.configure(config, bad.log.settings)
        await shop.compact()
        assert not shop.uncleanable() and bad.log.first_dirty_offset > 0
        await shop.broker.stop(1)

    with caplog.at_level(logging.ERROR):
        run(work)
    assert [record.getMessage() for record in caplog.records if "cannot be compacted" in record.getMessage()] == [
        "bad-0 cannot be compacted until its settings change or the broker restarts: "
        f"{DIRECTORY}/bad-0/{0:020d}.log is damaged at byte 0: the batch with offset 0 fails its checksum"
    ]


def test_a_child_that_dies_costs_one_log_not_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        shop = Workshop()
        await shop.broker.start()
        first, second = await shop.topic("first"), await shop.topic("second")
        write(first, 30)
        write(second, 20)
        compactor = shop.broker._compactor
        step, deaths = compactor.step, [Uncleanable("the compacting process ended with status -9")]

        def dying() -> Any:
            if deaths:
                raise deaths.pop()
            return step()

        monkeypatch.setattr(compactor, "step", dying)
        await shop.compact()
        assert len(shop.uncleanable()) == 1
        assert sorted(each.log.first_dirty_offset > 0 for each in (first, second)) == [False, True]
        await shop.broker.stop(1)

    run(work)


def test_a_full_disk_is_waited_for() -> None:
    async def work() -> None:
        shop = Workshop()
        await shop.broker.start()
        partition = await shop.topic("table")
        write(partition, 30)
        before = latest(partition)
        shop.disk.fail("append", errno.ENOSPC, "*.log.cleaned", times=1)
        await shop.compact()
        assert not shop.uncleanable() and latest(partition) == before and not partition.log.first_dirty_offset
        assert not [name for name in shop.disk.list(f"{DIRECTORY}/table-0") if name.endswith(".cleaned")]
        await shop.compact()
        assert partition.log.first_dirty_offset > 0 and latest(partition) == before
        await shop.broker.stop(1)

    run(work)


@pytest.mark.parametrize("number", [errno.EAGAIN, errno.ENOMEM, errno.EMFILE])
def test_a_process_is_waited_for(
    number: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # The system has no room for another process for a while. No log is given up for that.
    async def work() -> None:
        shop = Workshop()
        await shop.broker.start()
        partition = await shop.topic("table")
        write(partition, 30)
        before, compaction = latest(partition), shop.broker.node.compaction
        inline, compaction._compactor = compaction._compactor, ChildCompactor()
        with monkeypatch.context() as patch:
            patch.setattr(subprocess, "Popen", refuse)
            await shop.compact()
        assert not shop.uncleanable() and latest(partition) == before and not partition.log.first_dirty_offset
        assert "cannot start the compacting process" in caplog.text
        compaction._compactor = inline
        await shop.compact()
        assert partition.log.first_dirty_offset > 0 and latest(partition) == before
        await shop.broker.stop(1)

    def refuse(*arguments: object, **options: object) -> None:
        raise OSError(number, os.strerror(number))

    run(work)


@pytest.mark.parametrize("nth", range(1, 5))
def test_a_disk_that_fails_in_a_swap_takes_its_directory_out_of_service(nth: int) -> None:
    # The first sync is the child's, the others are those of the swap; after a restart the log is whole.
    async def work() -> None:
        shop = Workshop()
        await shop.broker.start()
        partition = await shop.topic("table")
        write(partition, 30)
        before = latest(partition)
        await asyncio.sleep(1)  # flushes that were begun by rolling
        failures: list[str] = []
        partition.log.on_disk_failure = failures.append
        syncs = 0

        def step(operation: str, path: str, plain: Callable[[str, str], None] = shop.disk.step) -> None:
            nonlocal syncs
            syncs += (operation, path) == ("fsync_directory", f"{DIRECTORY}/table-0")
            if syncs == nth:
                syncs += 1
                raise OSError(errno.EIO, "the disk is sick", path)
            plain(operation, path)

        shop.disk.step = step  # type: ignore[method-assign]
        await shop.compact()
        del shop.disk.step
        assert shop.uncleanable() == [partition]
        assert len(failures) == (nth > 1)
        shop.disk.crash(lose_unsynced=True)
        again = Workshop(shop.disk)
        await again.broker.start()
        assert latest(again.broker.node.replicas.get("table", 0)) == before
        await again.broker.stop(1)

    run(work)


def test_a_log_that_moves_to_another_directory_in_a_swap_fails_none() -> None:
    # The files that the swap was to rename were gone with the old directory. The new one was blamed.
    async def work() -> None:
        shop = Workshop()
        await shop.broker.start()
        partition = await shop.topic("table")
        write(partition, 30)
        old, failures = partition.log, list[str]()

        def move(call: int) -> None:
            swap = old.files.swap
            if partition.log is old and isinstance(swap, Swap) and swap.phase is Phase.SWITCHED:
                copy = create_log(shop.disk, f"{DIRECTORY}/elsewhere-0", old.topic_id, old.settings, NOW)
                copy.on_disk_failure = failures.append
                shop.disk.rename(old.directory, f"{old.directory}-delete")
                partition.switch_log(copy)

        shop.threads.before = move
        await shop.compact()
        assert partition.log is not old and not failures and not shop.uncleanable()
        shop.broker.abort()

    run(work)


def test_a_topic_that_is_deleted_before_its_compaction_does_not_end_the_round() -> None:
    async def work() -> None:
        shop = Workshop()
        await shop.broker.start()
        first, second = await shop.topic("first"), await shop.topic("second")
        write(first, 40)
        write(second, 20)
        flush: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        first.flushing._offload = lambda *_: flush  # type: ignore[assignment]
        data = bytearray(encode([(b"k", b"not flushed", (), NOW)]))
        first.append(memoryview(data), check(data), NOW, 1)
        compacting = asyncio.ensure_future(shop.compact())
        await asyncio.sleep(1)
        assert not compacting.done()
        await shop.broker.node.metadata.change(partial(delete_topic, topic_id=first.topic_id))
        await compacting
        assert second.log.first_dirty_offset > 0
        flush.set_result(None)
        await shop.broker.stop(1)

    run(work)


def test_the_pace_is_kept() -> None:
    async def work() -> None:
        shop = Workshop(log_cleaner_io_max_bytes_per_second="100")
        await shop.broker.start()
        partition = await shop.topic("table")
        write(partition, 30)
        read = 2 * sum(segment.size for segment in partition.log.segments[:-1])
        began = asyncio.get_running_loop().time()
        await shop.compact()
        written = shop.broker.node.compaction.meter.bytes_written
        assert asyncio.get_running_loop().time() - began >= (read + written) / 100
        await shop.broker.stop(1)

    run(work)


def test_a_topic_that_is_not_compacted_any_more_is_left_alone() -> None:
    async def work() -> None:
        shop = Workshop()
        await shop.broker.start()
        partition = await shop.topic("table")
        write(partition, 30)
        config = TopicConfig.of({**SETTINGS, "cleanup.policy": "delete"}, shop.broker.node.config)
        partition.configure(config, partition.log.settings)
        await shop.compact()
        assert partition.log.first_dirty_offset == 0
        await shop.broker.stop(1)

    run(work)


def test_a_broker_that_stops_in_the_middle_stops_cleanly() -> None:
    async def work() -> None:
        for moment in range(1, 12):
            shop = Workshop()
            await shop.broker.start()
            partition = await shop.topic("table")
            write(partition, 30)
            before = contents(partition.log)[-1]
            begun = shop.threads.calls
            task = asyncio.get_running_loop().create_task(shop.compact())
            while shop.threads.calls < begun + moment:
                await asyncio.sleep(0.0005)
            task.cancel()
            await asyncio.wait([task])
            await shop.broker.stop(1)
            again = Workshop(shop.disk)
            await again.broker.start()
            names = shop.disk.list(f"{DIRECTORY}/table-0")
            assert not [name for name in names if name.endswith((".cleaned", ".swap"))]
            assert contents(again.broker.node.replicas.get("table", 0).log)[-1] == before
            await again.broker.stop(1)

    run(work)


@pytest.mark.parametrize("power_cut", [False, True])
def test_a_broker_that_crashes_while_it_compacts_finds_everything_again(power_cut: bool) -> None:
    # With all that is around a log: a crash in some of the operations, and twice over the same segments.
    async def work(operation: int) -> bool:
        shop = Workshop(SimulatedDisk(Random(operation)))
        await shop.broker.start()
        partition = await shop.topic("table")
        write(partition, 20)
        await asyncio.sleep(1)
        await shop.broker.node.replication.checkpoints.write_recovery_points()
        before = latest(partition)
        shop.disk.crash_at(shop.disk.operations + operation)
        crashed = False
        try:
            await shop.compact()
            partition.log.first_dirty_offset = 0
            await shop.compact()
        except Crashed:
            crashed = True
        with suppress(Crashed):
            shop.broker.abort()
        shop.disk.crash(lose_unsynced=power_cut)
        again = Workshop(shop.disk)
        await again.broker.start()
        found = again.broker.node.replicas.get("table", 0)
        assert latest(found) == before, operation
        await again.compact()
        assert latest(found) == before and found.log.first_dirty_offset > 0, operation
        await again.broker.stop(1)
        return crashed

    operation = 1 + power_cut
    while simulate(work(operation)):
        operation += 4
    assert operation > 100


def test_a_topic_that_was_created_again_is_checkpointed_before_it_is_compacted() -> None:
    # The recovery point of the deleted topic counted as that of the new one, which was on no disk. After a kill while
    # it was compacted, the gap that its first records left was taken for a loss: all that followed was cut off.
    async def work(operation: int) -> bool:
        shop = Workshop()
        await shop.broker.start()
        old = await shop.topic("table")
        write(old, 60)
        await shop.broker.node.replication.checkpoints.write_recovery_points()
        await shop.broker.node.metadata.change(partial(delete_topic, topic_id=old.topic_id))
        new = await shop.topic("table")
        assert new is not old
        data = bytearray(encode([(b"once", b"." * 30, (), NOW), (b"twice", b"x", (), NOW)]))
        new.append(memoryview(data), check(data), NOW, 1)
        write(new, 30)
        before, end_offset = latest(new), new.log.end_offset
        shop.disk.crash_at(shop.disk.operations + operation)
        crashed = False
        try:
            await shop.compact()
        except Crashed:
            crashed = True
        with suppress(Crashed):
            shop.broker.abort()
        shop.disk.crash(lose_unsynced=False)
        again = Workshop(shop.disk)
        await again.broker.start()
        found = again.broker.node.replicas.get("table", 0)
        assert (latest(found), found.log.end_offset) == (before, end_offset), operation
        await again.broker.stop(1)
        return crashed

    operation = 1
    while simulate(work(operation)):
        operation += 4
    assert operation > 30


def test_removed_tombstones_are_written_down_before_a_segment_lacks_them() -> None:
    # A kill at any moment, while a flush with an older content of the file is on its way in another thread.
    async def work(operation: int) -> tuple[bool, bool]:
        shop = Workshop()
        await shop.broker.start()
        partition = await shop.topic("table", delete_retention_ms="0")
        write(partition, 1)
        deleted = bytearray(encode([(b"deleted", None, (), NOW)]))
        tombstone = partition.append(memoryview(deleted), check(deleted), NOW, 1).base_offset
        write(partition, 20)
        await shop.compact()  # notes in the batch when the tombstone may go
        partition.log.first_dirty_offset = 0
        partition.log.removed_deletes.note(tombstone)
        partition.flushing.start()
        shop.disk.crash_at(shop.disk.operations + operation)
        crashed = False
        try:
            await shop.compact()
        except Crashed:
            crashed = True
        with suppress(Crashed):
            shop.broker.abort()
        shop.disk.crash(lose_unsynced=False)
        again = Workshop(shop.disk)
        await again.broker.start()
        log = again.broker.node.replicas.get("table", 0).log
        is_removed = "deleted" not in {key for _, key, _ in contents(log)}
        assert log.removed_deletes.before > tombstone or not is_removed, operation
        await again.broker.stop(1)
        return crashed, is_removed

    outcomes: list[tuple[bool, bool]] = []
    operation = 1
    while not outcomes or outcomes[-1][0]:
        outcomes.append(simulate(work(operation)))
        operation += 1
    assert {is_removed for _, is_removed in outcomes} == {False, True}


def test_removed_tombstones_of_a_deleted_log_are_not_written_down() -> None:
    # The flush that this waited for was the last thread in the log's directory, which a new partition may have now.
    async def main() -> None:
        shop = Workshop()
        await shop.broker.start()
        partition = await shop.topic("table")
        quick = partition.flushing._offload
        flush: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        partition.flushing._offload = lambda *_: flush  # type: ignore[assignment]
        write(partition, 1)
        partition.log.note_unsaved()
        partition.flushing.request()
        assert partition.flushing.threads == {flush}
        partition.flushing._offload = quick
        noting = asyncio.ensure_future(shop.broker.node.compaction._note_removed_deletes(partition, 1))
        await asyncio.sleep(0)
        await shop.broker.node.metadata.change(partial(delete_topic, topic_id=partition.topic_id))
        shop.disk.make_directory(partition.log.directory)  # of a new partition
        flush.set_result(None)
        with pytest.raises(LogChanged):
            await noting
        assert not shop.disk.list(partition.log.directory)
        shop.broker.abort()

    simulate(main())


def add_replica(partition: Partition) -> None:
    """A replica is added that has nothing yet."""
    assert partition.state is not None
    state = replace(partition.state, replicas=(partition.broker_id, 7), adding=(7,))
    partition.in_sync = InSync(partition.broker_id, state, 0, 0.0)


def begin_move(partition: Partition) -> None:
    partition.moving_to = cast(Any, "another directory")


@pytest.mark.parametrize("begin_copy", [add_replica, begin_move])
def test_tombstones_stay_for_who_begins_to_copy_during_a_compaction(begin_copy: Callable[[Partition], None]) -> None:
    # At any moment. It may have copied a value already that the compaction removes together with its tombstone: a
    # replica that lagged copied the tombstone with its horizon, and nothing was compacted here before.
    async def work(moment: int) -> tuple[int, bool]:
        shop = Workshop()
        await shop.broker.start()
        partition = await shop.topic("table", delete_retention_ms="0")
        write(partition, 1)
        deleted = bytearray(encode([(b"deleted", None, (), NOW)]))
        partition.append(memoryview(deleted), check(deleted), NOW, 1)
        write(partition, 20)
        await shop.compact()  # notes in the batch when the tombstone may go
        partition.log.first_dirty_offset = 0
        write(partition, 20)
        begun, was_there = shop.threads.calls, False

        def look(call: int) -> None:
            nonlocal was_there
            if call == begun + moment:
                was_there = "deleted" in latest(partition)
                begin_copy(partition)

        shop.threads.before = look
        await shop.compact()
        calls = shop.threads.calls - begun
        if moment <= calls:
            assert ("deleted" in latest(partition)) == was_there, moment
        partition.moving_to = None
        await shop.broker.stop(1)
        return calls, was_there

    seen, moment, calls = set(), 1, 1
    while moment <= calls:
        calls, was_there = simulate(work(moment))
        seen.add(was_there)
        moment += 1
    assert seen == {False, True}
