"""Logs that start within a batch, because DeleteRecords went up to there: they are copied like any other.

A leader sends whole batches, so a follower's log holds the records of its first batch that were deleted, too. It serves
none of them, as its leader does not.
"""

import asyncio
import contextlib
import errno
import logging
from collections.abc import Coroutine
from typing import Any

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.records import batch
from ottla.records.record import Record
from ottla.replication.partition import Partition
from ottla.storage.files import Bytes
from ottla.storage.log import Log, LogSettings
from tests.simulation.disk import Crashed
from tests.simulation.loop import simulate
from tests.unit.replication.small_cluster import SmallBroker, SmallCluster, put, read
from tests.unit.storage.truncating import truncate_fully, truncate_to

SMALL = LogSettings(segment_bytes=400, index_interval_bytes=100)


def run(main: Coroutine[Any, Any, None]) -> None:
    simulate(main)


def produce_ten(broker: SmallBroker) -> None:
    broker.produce(*[b"%d" % number for number in range(10)])


async def begin(cluster: SmallCluster, start: int = 5) -> Any:
    """The leader's log starts within its second batch, from 1 to 10. The follower has the first one, and is away."""
    cluster.elect(1)
    cluster[1].produce(b"old")
    await cluster.wait_for_copies()
    cluster[2].log().flush()
    cluster[2].fetchers.leave(cluster[2].partition())
    state = cluster.elect(1, isr=(1,), learners=(1,))
    produce_ten(cluster[1])
    cluster[1].produce(b"more")
    cluster[1].partition().delete_records(start)
    return state


def known_epochs(log: Log) -> list[tuple[int, int]]:
    """Those that have records."""
    return [(epoch, start) for epoch, start in log.epochs.entries if start < log.end_offset]


def check_copy(cluster: SmallCluster, start: int) -> None:
    leader, follower = cluster[1].log(), cluster[2].log()
    assert leader.log_start_offset == follower.log_start_offset == start
    assert read(follower) == read(leader) and follower.end_offset == leader.end_offset
    assert known_epochs(follower) == known_epochs(leader)
    assert follower.producers.producers.keys() == leader.producers.producers.keys()
    assert cluster[2].partition().high_watermark.value >= start


@pytest.mark.parametrize("settings", [LogSettings(), SMALL])
@pytest.mark.parametrize("start", [1, 2, 5, 10, 11, 12])
def test_a_follower_begins_at_any_offset(start: int, settings: LogSettings) -> None:
    async def main() -> None:
        cluster = SmallCluster(1, 2, settings=settings)
        cluster[2].learn(0, await begin(cluster, start))
        await cluster.wait_for_copies()
        check_copy(cluster, start)
        # What was deleted is not read here either when this replica leads, also after a restart.
        cluster[2].die(lose_unsynced=False)
        cluster[2].restart(high_watermark=11, log_starts={0: start})
        cluster.elect(2, isr=(2,))
        assert read(cluster[2].log()) == read(cluster[1].log())
        if start > 1:
            with pytest.raises(KafkaError) as refused:
                cluster[2].partition().read(start - 1, 1000, read_committed=False, at_least_one=True)
            assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
        cluster[2].produce(b"by the next leader")
        await cluster.wait_for_copies()
        assert read(cluster[2].log()) == read(cluster[1].log())
        await cluster.close()

    run(main())


def test_the_log_warns_of_records_that_are_removed_and_of_no_others(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="ottla.replication.truncation")

    async def main() -> None:
        cluster = SmallCluster(1, 2)
        cluster[2].learn(0, await begin(cluster))
        await cluster.wait_for_copies()
        await cluster.close()

    run(main())
    assert [(record.levelno, record.getMessage().partition(":")[2][:22]) for record in caplog.records] == [
        (logging.WARNING, " starts anew at 5: its"),
        (logging.INFO, " has no records, and b"),
    ]


@pytest.mark.parametrize("lost", ["its records", "its end"])
def test_a_follower_that_lost_records_begins_again(lost: str) -> None:
    async def main() -> None:
        cluster = SmallCluster(1, 2)
        cluster[2].learn(0, await begin(cluster))
        await cluster.wait_for_copies()
        cluster[2].fetchers.leave(cluster[2].partition())
        if lost == "its records":
            truncate_fully(cluster[2].log(), 0)
        else:
            truncate_to(cluster[2].log(), 7)
        cluster[2].learn(0, cluster.elect(1, learners=(1,)))
        await cluster.wait_for_copies()
        check_copy(cluster, 5)
        await cluster.close()

    run(main())


def test_the_log_start_moves_while_it_is_copied() -> None:
    async def main() -> None:
        cluster = SmallCluster(1, 2)
        cluster[2].learn(0, await begin(cluster))
        for start in range(6, 11):
            await asyncio.sleep(0.002)
            cluster[1].partition().delete_records(start)
        await cluster.wait_for_copies()
        await cluster.wait_for(lambda: cluster[2].log().log_start_offset == 10)
        check_copy(cluster, 10)
        await cluster.close()

    run(main())


@pytest.mark.parametrize("lose_unsynced", [False, True])
@pytest.mark.parametrize("knows_start", [False, True])
def test_a_crash_at_any_moment_of_the_beginning(knows_start: bool, lose_unsynced: bool) -> None:
    async def main(step: int) -> bool:
        cluster = SmallCluster(1, 2)
        state = await begin(cluster)
        disk = cluster[2].disk
        disk.crash_at(disk.operations + step)
        cluster[2].learn(0, state)
        log = cluster[2].log()
        await cluster.wait_for(lambda: disk._dead or log.end_offset == 12)
        with contextlib.suppress(Crashed):
            log.flush()
        crashed = bool(disk._dead)
        with contextlib.suppress(Crashed):
            cluster[2].die(lose_unsynced=lose_unsynced)
        # The log start of the checkpoint can be from before or after.
        cluster[2].restart(log_starts={0: 5} if knows_start else None)
        cluster[2].learn(0, state)
        await cluster.wait_for_copies()
        await cluster.wait_for(lambda: cluster[2].log().log_start_offset == 5)
        check_copy(cluster, 5)
        await cluster.close()
        return crashed

    steps = 1
    while simulate(main(steps)):
        steps += 1
    assert steps > 10


def test_a_new_leader_is_followed_from_where_the_first_was_left() -> None:
    """The leader changes while the disk makes room for the first batch: that batch is not appended any more."""

    async def main() -> None:
        cluster = SmallCluster(1, 2, 3)
        cluster.elect(1)
        await asyncio.sleep(1)
        cluster[2].fetchers.leave(cluster[2].partition())
        state = cluster.elect(1, isr=(1, 3), learners=(1, 3))
        produce_ten(cluster[1])
        await cluster.wait_for(lambda: cluster[3].partition().high_watermark.value == 10)
        cluster[1].partition().delete_records(5)
        await cluster.wait_for(lambda: cluster[3].log().log_start_offset == 5)
        truncations = cluster[2].fetchers.truncations
        cluster[2].learn(0, state)
        await cluster.wait_for(lambda: truncations.count == 2)
        assert truncations.find(cluster[2].partition()) is not None and cluster[2].log().end_offset == 0
        cluster.elect(3)
        await cluster.wait_for_copies()
        for broker_id in (1, 2):
            assert read(cluster[broker_id].log()) == read(cluster[3].log())
            assert cluster[broker_id].log().log_start_offset == 5
        await cluster.close()

    run(main())


def test_logs_that_diverge_within_the_first_batch_become_equal() -> None:
    async def main() -> None:
        for common in (0, 3, 5, 7):
            cluster = SmallCluster(1, 2)
            cluster.elect(2)
            for _ in range(common):
                cluster[2].produce(b"common")
            await cluster.wait_for_copies()
            cluster[1].fetchers.leave(cluster[1].partition())
            cluster.elect(2, isr=(2,), learners=(2,))
            produce_ten(cluster[2])  # which are lost in an unclean election
            cluster[2].partition().delete_records(5)
            cluster[1].learn(0, cluster.elect(1, isr=(1,), learners=(1,)))
            produce_ten(cluster[1])
            cluster[1].partition().delete_records(6)
            cluster[2].learn(0, cluster.states[0])
            await cluster.wait_for(lambda cluster=cluster: read(cluster[2].log()) == read(cluster[1].log()))
            check_copy(cluster, 6)
            await cluster.close()

    run(main())


def test_a_log_that_diverges_only_before_the_leaders_start_is_replaced() -> None:
    """The leader has a batch from 3 to 12, and forgot with the records before 5 what epoch they were of."""

    async def main() -> None:
        cluster = SmallCluster(1, 2)
        cluster.elect(2)
        for _ in range(3):
            cluster[2].produce(b"common")
        await cluster.wait_for_copies()
        cluster[1].fetchers.leave(cluster[1].partition())
        cluster.elect(2, isr=(2,), learners=(2,))
        for _ in range(2):
            cluster[2].produce(b"lost in an unclean election")
        cluster[1].learn(0, cluster.elect(1, isr=(1,), learners=(1,)))
        produce_ten(cluster[1])
        cluster[1].partition().delete_records(5)
        cluster[2].learn(0, cluster.states[0])
        await cluster.wait_for_copies()
        check_copy(cluster, 5)
        await cluster.close()

    run(main())


@pytest.mark.parametrize("is_committed", [False, True])
def test_a_transaction_that_began_before_the_log_start(is_committed: bool) -> None:
    async def main() -> None:
        cluster = SmallCluster(1, 2)
        cluster.elect(1)
        await asyncio.sleep(0.1)
        cluster[2].fetchers.leave(cluster[2].partition())
        state = cluster.elect(1, isr=(1,), learners=(1,))
        put(
            cluster[1],
            *((f"key {number}", "value") for number in range(10)),
            producer_id=7,
            epoch=0,
            sequence=0,
            transactional=True,
        )
        cluster[1].partition().delete_records(5)
        marker = memoryview(batch.encode_control(7, 0, is_committed, 0, 0))
        cluster[1].partition().append(marker, batch.read_header(marker), 0, 1)
        cluster[2].learn(0, state)
        await cluster.wait_for_copies()
        check_copy(cluster, 5)
        leader, follower = cluster[1].log(), cluster[2].log()
        assert follower.aborted_transactions(5, 11) == leader.aborted_transactions(5, 11)
        assert len(follower.aborted_transactions(5, 11)) == (not is_committed)
        assert follower.last_stable_offset(11) == leader.last_stable_offset(11) == 11
        await cluster.close()

    run(main())


def test_a_follower_begins_within_a_batch_of_a_compacted_log() -> None:
    """Offsets are missing in the first batch, and behind it."""

    async def main() -> None:
        cluster = SmallCluster(1, 2, topic={"cleanup.policy": "compact,delete"})
        cluster.elect(1)
        cluster[2].fetchers.leave(cluster[2].partition())
        state = cluster.elect(1, isr=(1,), learners=(1,))
        left = [Record(offset, 0, b"key", b"value", ()) for offset in (3, 7, 9)]
        cluster[1].log().append_as_follower(bytes(batch.encode(left, leader_epoch=0)), 0)
        cluster[1].log().append_as_follower(bytes(batch.encode([left[0]._replace(offset=20)], leader_epoch=0)), 0)
        cluster[1].produce(b"after the hole")
        for start in (5, 8):
            cluster[1].partition().delete_records(start)
            cluster[2].learn(0, state)
            await cluster.wait_for_copies()
            await cluster.wait_for(lambda start=start: cluster[2].log().log_start_offset == start)
            check_copy(cluster, start)
            cluster[2].fetchers.leave(cluster[2].partition())
            truncate_fully(cluster[2].log(), 0)
        await cluster.close()

    run(main())


@pytest.mark.parametrize("operation", ["create", "append", "rename"])
def test_a_full_disk_delays_the_beginning(operation: str) -> None:
    async def main() -> None:
        cluster = SmallCluster(1, 2, replica_fetch_backoff_ms="100")
        state = await begin(cluster)
        truncations = cluster[2].fetchers.truncations
        cluster[2].learn(0, state)
        await cluster.wait_for(lambda: truncations.count == 1 and not truncations.find(cluster[2].partition()))
        cluster[2].disk.fail(operation, errno.ENOSPC, "/data/orders-0/*", times=None)
        await asyncio.sleep(5)
        assert cluster[2].log().end_offset <= 5 and not cluster[2].log().has_failed
        cluster[2].disk.heal()
        await cluster.wait_for_copies()
        check_copy(cluster, 5)
        await cluster.close()

    run(main())


def test_an_error_that_nobody_thought_of_delays_the_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    # The partition stayed paused until it had another leader.
    append_as_follower, errors = Partition.append_as_follower, [ValueError("nobody thought of it")]

    def fail_once(self: Partition, records: Bytes, now_ms: int) -> None:
        if self.broker_id == 2 and errors:
            raise errors.pop()
        append_as_follower(self, records, now_ms)

    async def main() -> None:
        cluster = SmallCluster(1, 2)
        state = await begin(cluster)
        monkeypatch.setattr(Partition, "append_as_follower", fail_once)
        cluster[2].learn(0, state)
        await cluster.wait_for_copies()
        assert not errors
        check_copy(cluster, 5)

    run(main())
